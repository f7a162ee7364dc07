// One training step of a linear layer y = x W under FSDP and tensor parallelism, on 8 ranks in this
// process. Every rank owns an f32 shard of W; for the step it gathers its tensor-parallel columns
// in bf16. Its gradient is a contribution, because ranks of fsdp see different data; a
// reduce-scatter sums the contributions in f32 and gives each rank the gradient of its shard.
//
//   ./bazelw run //examples:fsdp_step
//
// prints
//
//   forward:  cast{bf16} all_gather{fsdp}
//   backward: cast{f32} reduce_scatter{fsdp}
//   after a step, every shard is as one process would have it
#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "meshift/gradient.h"
#include "meshift/local_world.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr int64_t kIn = 10;  // rows of W: not a multiple of fsdp's 4
constexpr int64_t kOut = 6;
constexpr float kRate = 0.25F;

// Exact for the short numbers of this example.
uint16_t ToBF16(float value) { return std::bit_cast<uint32_t>(value) >> 16; }
float FromBF16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// The weight, and the sample that the ranks with coordinate `data` on fsdp see.
float Weight(int64_t i, int64_t j) { return static_cast<float>(i * kOut + j) / 4; }
float Input(int64_t data, int64_t i) { return static_cast<float>(data + i % 3); }
// The gradient by y of the loss, the sum of y[j] * (j + 1).
float Upstream(int64_t j) { return static_cast<float>(j + 1); }

struct Rank {
  std::unique_ptr<Redistributor> redistribute;
  std::vector<float> shard;      // of W
  std::vector<uint16_t> weight;  // the gathered column block
  std::vector<uint16_t> gradient;
  std::vector<float> shard_gradient;
};

// The result of one process without a mesh.
float WeightAfterStep(int64_t i, int64_t j, int64_t samples) {
  float gradient = 0;
  for (int64_t data = 0; data < samples; ++data) gradient += Input(data, i) * Upstream(j);
  return Weight(i, j) - kRate * gradient;
}

absl::Status PrintPlan(const char* name, const Sharding& from, const Sharding& to,
                       std::optional<DType> reduce_dtype) {
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(from, to, {.reduce_dtype = reduce_dtype}));
  fmt::print("{}", name);
  for (const Step& step : plan.steps()) fmt::print(" {}", step.Label());
  fmt::print("\n");
  return absl::OkStatus();
}

absl::Status Main() {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse("fsdp=4,tp=2"));
  MESHIFT_ASSIGN_OR_RETURN(
      const Sharding shard,
      Sharding::Parse(fmt::format("f32[{},{}]", kIn, kOut), mesh, "S(0),S(1)"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding weight,
                           Sharding::Parse(fmt::format("bf16[{},{}]", kIn, kOut), mesh, "R,S(1)"));
  MESHIFT_ASSIGN_OR_RETURN(const RedistributionPair gradient,
                           GradientOf(shard, weight, {.summed_over = {"fsdp"}}));

  MESHIFT_ASSIGN_OR_RETURN(auto world, LocalWorld::Create({.num_ranks = mesh.NumRanks()}));
  std::vector<Rank> ranks(mesh.NumRanks());
  for (int64_t r = 0; r < mesh.NumRanks(); ++r) {
    MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                             Redistributor::Create(mesh, world->engine(r)));
    ranks[r].redistribute = std::make_unique<Redistributor>(std::move(redistribute));
    const Box box = shard.LocalBox(r);
    for (int64_t i = 0; i < box.size[0]; ++i) {
      for (int64_t j = 0; j < box.size[1]; ++j) {
        ranks[r].shard.push_back(Weight(box.offset[0] + i, box.offset[1] + j));
      }
    }
    ranks[r].shard_gradient.resize(ranks[r].shard.size());
    ranks[r].weight.resize(weight.LocalBox(r).NumElements());
    ranks[r].gradient.resize(ranks[r].weight.size());
  }

  // Forward: gather the weight.
  std::vector<RunHandle> runs;
  for (int64_t r = 0; r < mesh.NumRanks(); ++r) {
    Rank& rank = ranks[r];
    MESHIFT_ASSIGN_OR_RETURN(
        RunHandle run,
        (*rank.redistribute)({.from = shard,
                              .to = weight,
                              .source = TensorView::Contiguous(rank.shard.data(), DType::kF32,
                                                               shard.LocalBox(r).size),
                              .target = TensorView::Contiguous(rank.weight.data(), DType::kBF16,
                                                               weight.LocalBox(r).size)}));
    runs.push_back(std::move(run));
  }
  for (const RunHandle& run : runs) MESHIFT_RETURN_IF_ERROR(run.Wait());

  // Each rank computes with its sample and its columns: the outer product of x and dL/dy.
  for (int64_t r = 0; r < mesh.NumRanks(); ++r) {
    const Coordinate at = *mesh.CoordinateOf(r);
    const Box box = weight.LocalBox(r);
    for (int64_t i = 0; i < box.size[0]; ++i) {
      for (int64_t j = 0; j < box.size[1]; ++j) {
        const int64_t k = i * box.size[1] + j;
        if (FromBF16(ranks[r].weight[k]) != Weight(i, box.offset[1] + j)) {
          return absl::InternalError(
              fmt::format("rank {} gathered {} at [{},{}]", r, FromBF16(ranks[r].weight[k]), i, j));
        }
        ranks[r].gradient[k] = ToBF16(Input(at[0], i) * Upstream(box.offset[1] + j));
      }
    }
  }

  // Backward: sum the contributions in f32, and scatter.
  runs.clear();
  for (int64_t r = 0; r < mesh.NumRanks(); ++r) {
    Rank& rank = ranks[r];
    MESHIFT_ASSIGN_OR_RETURN(
        RunHandle run,
        (*rank.redistribute)({.from = gradient.from,
                              .to = gradient.to,
                              .source = TensorView::Contiguous(rank.gradient.data(), DType::kBF16,
                                                               weight.LocalBox(r).size),
                              .target = TensorView::Contiguous(rank.shard_gradient.data(),
                                                               DType::kF32, shard.LocalBox(r).size),
                              .reduce_dtype = DType::kF32}));
    runs.push_back(std::move(run));
  }
  for (const RunHandle& run : runs) MESHIFT_RETURN_IF_ERROR(run.Wait());

  for (int64_t r = 0; r < mesh.NumRanks(); ++r) {
    const Box box = shard.LocalBox(r);
    for (int64_t k = 0; k < box.NumElements(); ++k) {
      ranks[r].shard[k] -= kRate * ranks[r].shard_gradient[k];
      const int64_t i = box.offset[0] + k / box.size[1];
      const int64_t j = box.offset[1] + k % box.size[1];
      const float wanted = WeightAfterStep(i, j, mesh.dim(0).size);
      if (ranks[r].shard[k] != wanted) {
        return absl::InternalError(
            fmt::format("rank {} holds {} at [{},{}], not {}", r, ranks[r].shard[k], i, j, wanted));
      }
    }
  }
  MESHIFT_RETURN_IF_ERROR(PrintPlan("forward: ", shard, weight, std::nullopt));
  MESHIFT_RETURN_IF_ERROR(PrintPlan("backward:", gradient.from, gradient.to, DType::kF32));
  fmt::print("after a step, every shard is as one process would have it\n");
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main() {
  const absl::Status status = meshift::Main();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}
