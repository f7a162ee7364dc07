// How near plans come to the lower bounds (planner/cost/lower_bound.h):
//
//   ./bazelw run //bench:near_bound
//
// All pairs of R and S, with every order of cuts, on small meshes, for even tensors of about 1 KiB,
// 1 MiB and 1 GiB; and all pairs from sources that are partial on one or two mesh dims. Prints a
// row per mesh, source and tensor; then for each row the pairs that are furthest from their bounds,
// with their plans and the reason for their time. docs/benchmarks.md records the rows.
#include "tests/near_bound.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/text_table.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

// Tensors of bf16 that every list of cuts divides evenly.
struct Size {
  std::string_view name;
  Shape matrix;
  Shape cube;
};
const std::vector<Size>& OfPowers() {
  static const auto& sizes = *new std::vector<Size>{{"1 KiB", {16, 32}, {8, 8, 8}},
                                                    {"1 MiB", {512, 1024}, {64, 64, 128}},
                                                    {"1 GiB", {16384, 32768}, {512, 1024, 1024}}};
  return sizes;
}
const std::vector<Size>& OfSixes() {
  static const auto& sizes = *new std::vector<Size>{{"1 KiB", {18, 30}, {6, 6, 12}},
                                                    {"1 MiB", {720, 732}, {72, 84, 84}},
                                                    {"1 GiB", {23166, 23172}, {810, 816, 816}}};
  return sizes;
}

struct World {
  const char* mesh;
  const char* topology;
  const std::vector<Size>& sizes;
  int most_partial;
};

std::string_view SourceOf(int partial) {
  constexpr std::string_view kNames[] = {"R, S", "one P", "two P"};
  return kNames[partial];
}

std::string Fixed(const RatioMean& ratio) {
  return ratio.count == 0 ? "-" : fmt::format("{:.3f}", ratio.Mean());
}

void PrintWorst(std::string_view of, const std::vector<NearPlan>& plans,
                double (NearPlan::*ratio)() const) {
  if (!plans.empty()) fmt::print("  {}:\n", of);
  for (const NearPlan& plan : plans) {
    fmt::print("    {:.2f}  {}: {}\n          {}\n", (plan.*ratio)(), plan.text, plan.steps,
               plan.why);
  }
}

absl::Status Print() {
  const World worlds[] = {
      {"a=2,b=2,c=2", "flat", OfPowers(), 2},     {"a=4,b=2", "flat", OfPowers(), 2},
      {"a=2,b=3", "flat", OfSixes(), 2},          {"a=4,b=4", "nvlink=4", OfPowers(), 0},
      {"a=2,b=2,c=4", "nvlink=4", OfPowers(), 0}, {"a=4,b=2,c=2", "nvlink=4", OfPowers(), 0}};
  const auto right = TextTable::Align::kRight;
  TextTable table({{"mesh"},
                   {"topology"},
                   {"source"},
                   {"tensor"},
                   {"pairs", right},
                   {"bytes", right},
                   {"worst", right},
                   {"worst rank's", right},
                   {"slow bytes", right},
                   {"time", right},
                   {"worst", right},
                   {"below", right},
                   {"larger", right},
                   {"ops"}});
  std::vector<std::pair<std::string, NearBound>> all;
  for (const World& world : worlds) {
    const absl::StatusOr<Topology> topology = Topology::Parse(world.topology);
    if (!topology.ok()) return topology.status();
    for (int partial = 0; partial <= world.most_partial; ++partial) {
      for (const Size& size : world.sizes) {
        for (const Shape* shape : {&size.matrix, &size.cube}) {
          absl::StatusOr<NearBound> near = MeasureNearBound({.mesh = world.mesh,
                                                             .shape = *shape,
                                                             .partial_dims = partial,
                                                             .options = {.topology = *topology}});
          if (!near.ok()) return near.status();
          const std::string tensor = fmt::format("{}, {}-D", size.name, shape->size());
          std::string ops;
          for (const auto& [op, count] : near->ops) {
            ops += fmt::format("{}{} {}", ops.empty() ? "" : ", ", op, count);
          }
          table.AddRow({world.mesh, world.topology, std::string(SourceOf(partial)), tensor,
                        fmt::format("{}", near->pairs), Fixed(near->bytes),
                        fmt::format("{:.2f}", near->bytes.worst), Fixed(near->sent),
                        Fixed(near->slow_bytes), Fixed(near->time),
                        fmt::format("{:.2f}", near->time.worst), fmt::format("{}", near->below),
                        fmt::format("{}", near->larger), ops});
          all.emplace_back(
              fmt::format("{} {}, {}, {}", world.mesh, world.topology, SourceOf(partial), tensor),
              *std::move(near));
        }
      }
    }
  }
  fmt::print("{}", table.ToString());
  for (const auto& [name, near] : all) {
    fmt::print("\n{}\n", name);
    PrintWorst("bytes", near.worst_bytes, &NearPlan::BytesRatio);
    PrintWorst("slow bytes", near.worst_slow_bytes, &NearPlan::SlowRatio);
    PrintWorst("time", near.worst_time, &NearPlan::TimeRatio);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main() {
  const absl::Status status = meshift::Print();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}
