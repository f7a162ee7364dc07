// Redistributes the parameters of a model, with each dim scaled by 1/16 and by 1/128, among eight
// ranks of the local engine: in one call for all, against one call each.
//
//   ./bazelw run //bench:coalesce_bench
//
// Prints the time of both, the ratios of time and of processor time, and the number of collectives
// per rank. Cases: the gather of FSDP's shards, the sum of gradients into them, and several limits
// on merging. The default limit is the number of bytes that this engine moves while a collective
// starts; the last one is that of NVLink.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/text_table.h"
#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 8;
constexpr int kRounds = 9;

absl::StatusOr<std::vector<std::string>> Tensors(const std::string& path, int64_t scale) {
  std::ifstream file(path);
  const auto model = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!model.is_object() || !model.contains("parameters")) {
    return InvalidArgument("{} is not a model file", path);
  }
  std::vector<std::string> tensors;
  for (const auto& parameter : model["parameters"]) {
    std::vector<int64_t> shape = parameter["shape"];
    for (int64_t& size : shape) size = std::max<int64_t>(size / scale, 1);
    tensors.push_back(
        fmt::format("{}[{}]", model["dtype"].get<std::string>(), fmt::join(shape, ",")));
  }
  return tensors;
}

struct Took {
  double wall_ms = 1e9;
  double cpu_ms = 1e9;  // over all threads
};

// All ranks' redistributors, and the memory of all tensors.
class Job {
 public:
  static absl::StatusOr<std::unique_ptr<Job>> Create(const std::vector<std::string>& tensors,
                                                     const std::string& from, const std::string& to,
                                                     std::optional<int64_t> coalesce_bytes) {
    auto job = std::make_unique<Job>();
    MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                             DeviceMesh::Create({{.name = "fsdp", .size = kRanks}}));
    MESHIFT_ASSIGN_OR_RETURN(job->world_, LocalWorld::Create({.num_ranks = kRanks}));
    for (const std::string& tensor : tensors) {
      MESHIFT_ASSIGN_OR_RETURN(Sharding source, Sharding::Parse(tensor, mesh, from));
      MESHIFT_ASSIGN_OR_RETURN(Sharding target, source.WithPlacements(to));
      job->shardings_.emplace_back(std::move(source), std::move(target));
    }
    job->lists_.resize(kRanks);
    for (int64_t r = 0; r < kRanks; ++r) {
      MESHIFT_ASSIGN_OR_RETURN(
          Redistributor redistributor,
          Redistributor::Create(mesh, job->world_->engine(r),
                                {.expert = {.coalesce_bytes = coalesce_bytes}}));
      job->redistributors_.push_back(std::move(redistributor));
      for (const auto& [source, target] : job->shardings_) {
        const TensorView in = job->View(source, r);
        const TensorView out = job->View(target, r);
        job->lists_[r].push_back({.from = source, .to = target, .source = in, .target = out});
      }
    }
    return job;
  }

  // The time of a round in milliseconds; the least of several.
  absl::StatusOr<Took> Run(bool together) {
    Took best;
    for (int round = 0; round <= kRounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      const std::clock_t cpu_begin = std::clock();
      std::vector<RunHandle> runs;
      calls_ = 0;
      const auto add = [&](absl::StatusOr<RunHandle> run, int64_t r) -> absl::Status {
        MESHIFT_RETURN_IF_ERROR(run.status());
        runs.push_back(*std::move(run));
        if (r > 0) return absl::OkStatus();
        const std::vector<int64_t>& calls = redistributors_[0].last_run().calls;
        calls_ += std::accumulate(calls.begin(), calls.end(), int64_t{0});
        return absl::OkStatus();
      };
      for (size_t i = 0; i < (together ? 1 : shardings_.size()); ++i) {
        for (int64_t r = 0; r < kRanks; ++r) {
          MESHIFT_RETURN_IF_ERROR(
              add(together ? redistributors_[r](lists_[r]) : redistributors_[r](lists_[r][i]), r));
        }
      }
      for (const RunHandle& run : runs) MESHIFT_RETURN_IF_ERROR(run.Wait());
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      const double cpu = 1e3 * static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
      if (round == 0) continue;  // the first round plans
      best.wall_ms = std::min(best.wall_ms, took.count());
      best.cpu_ms = std::min(best.cpu_ms, cpu);
    }
    return best;
  }
  int64_t calls() const { return calls_; }  // calls of rank 0 in the last round

 private:
  TensorView View(const Sharding& sharding, int64_t rank) {
    TensorView view =
        TensorView::Contiguous(nullptr, sharding.dtype(), sharding.LocalBox(rank).size);
    memory_.emplace_back(view.NumBytes());
    view.data = memory_.back().data();
    return view;
  }

  std::vector<std::vector<char>> memory_;
  std::unique_ptr<LocalWorld> world_;
  std::vector<std::pair<Sharding, Sharding>> shardings_;
  std::vector<Redistributor> redistributors_;
  std::vector<std::vector<Redistribution>> lists_;

  int64_t calls_ = 0;
};

absl::Status Compare(const std::string& path, int64_t scale) {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> tensors, Tensors(path, scale));
  fmt::print("# {} tensors of {}, each dim / {}, {} ranks of the local engine\n", tensors.size(),
             path, scale, kRanks);
  using Align = TextTable::Align;
  TextTable table({{"from -> to"},
                   {"merged up to", Align::kRight},
                   {"collectives", Align::kRight},
                   {"together ms", Align::kRight},
                   {"each ms", Align::kRight},
                   {"each / together", Align::kRight},
                   {"of cpu time", Align::kRight}});
  for (const auto& [from, to] : {std::pair("S(0)", "R"), std::pair("P", "S(0)")}) {
    for (const std::optional<int64_t> limit :
         {std::optional<int64_t>(), std::optional<int64_t>(int64_t{64} << 10),
          std::optional<int64_t>(int64_t{3600} << 10)}) {
      MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Job> job,
                               Job::Create(tensors, from, to, limit));
      MESHIFT_ASSIGN_OR_RETURN(const Took each, job->Run(/*together=*/false));
      const int64_t calls_each = job->calls();
      MESHIFT_ASSIGN_OR_RETURN(const Took together, job->Run(/*together=*/true));
      table.AddRow({fmt::format("{} -> {}", from, to),
                    limit ? fmt::format("{} KiB", *limit >> 10) : "default",
                    fmt::format("{} for {}", job->calls(), calls_each),
                    fmt::format("{:.2f}", together.wall_ms), fmt::format("{:.2f}", each.wall_ms),
                    fmt::format("{:.2f}", each.wall_ms / together.wall_ms),
                    fmt::format("{:.2f}", each.cpu_ms / together.cpu_ms)});
    }
  }
  fmt::print("{}", table.ToString());
  return absl::OkStatus();
}

absl::Status Main(const std::string& path) {
  MESHIFT_RETURN_IF_ERROR(Compare(path, 16));
  return Compare(path, 128);
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  const absl::Status status = meshift::Main(argc > 1 ? argv[1] : "examples/models/llama3-8b.json");
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}
