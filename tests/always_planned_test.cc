// Every valid problem has a plan. Random pairs of all kinds, on one mesh and between meshes, are
// planned and proven; if a problem is refused, this test looks for the reason by the definition.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "placement/cast.h"
#include "placement/op_table.h"
#include "testing/random.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

using testkit::Random;

constexpr int kNumShards = 4;  // as shard_count in BUILD; a test case per shard
constexpr int64_t kCases = 12000;

struct Case {
  Sharding from;
  Sharding to;
  PlannerOptions options;
};

// 1 to 5 dims, some of size 1, with at most 64 ranks; one in four has ranks in any order, or other
// ranks. One in fifty has thousands.
DeviceMesh RandomMesh(Random& random) {
  if (random.OneIn(50)) {
    return DeviceMesh::Create({{"a", 2 + random.Below(3)}, {"b", 2048}, {"c", 1 + random.Below(3)}})
        .value();
  }
  std::vector<DeviceMesh::Dim> dims;
  int64_t size = 1;
  for (int64_t i = random.Below(5); i >= 0; --i) {
    const int64_t most = std::min<int64_t>(64 / size, 6);
    const int64_t n = random.OneIn(4) ? 1 : std::min(most, 2 + random.Below(most));
    dims.push_back({fmt::format("d{}", i), n});
    size *= n;
  }
  std::vector<int64_t> ranks;
  if (random.OneIn(4)) {
    ranks.resize(size + random.Below(4));
    std::iota(ranks.begin(), ranks.end(), random.Below(3));
    random.Shuffle(ranks);
    ranks.resize(size);
  }
  return DeviceMesh::Create(std::move(dims), std::move(ranks)).value();
}

// A shape of rank 0 to 3; many are too small for the mesh, or even, or empty.
Shape RandomShape(Random& random) {
  constexpr int64_t kSizes[] = {0, 1, 1, 2, 3, 4, 5, 7, 8, 12};
  Shape shape(random.OneIn(4) ? 0 : 1 + random.Below(3));
  for (int64_t& size : shape) size = kSizes[random.Below(10)];
  return shape;
}

DType RandomDType(Random& random) {
  if (random.OneIn(2)) return random.OneIn(2) ? DType::kF32 : DType::kBF16;
  return static_cast<DType>(random.Below(kNumDTypes));
}

// Any placements with any order of cuts; may mix sum and avg. nullopt: invalid for the tensor.
std::optional<Sharding> RandomSharding(const DeviceMesh& mesh, const TensorType& tensor,
                                       Random& random) {
  const auto rank = static_cast<int64_t>(tensor.shape.size());
  const bool sums = random.Below(4) != 0;
  const auto other = static_cast<ReduceOp>(random.Below(kNumReduceOps));
  std::vector<Placement> placements;
  std::vector<Cuts> cuts(rank);
  for (int d = 0; d < mesh.NumDims(); ++d) {
    const int64_t kind = random.Below(6);
    if (kind < 2) {
      const ReduceOp sum = random.OneIn(3) ? ReduceOp::kAvg : ReduceOp::kSum;
      placements.push_back(Placement::Partial(sums ? sum : other));
    } else if (kind < 4 || rank == 0) {
      placements.push_back(Placement::Replicate());
    } else {
      const auto k = static_cast<int>(random.Below(rank));
      cuts[k].push_back(d);
      placements.push_back(Placement::Shard(k));
    }
  }
  for (int64_t k = 0; k < rank; ++k) {
    random.Shuffle(cuts[k]);
    if (cuts[k].empty() || !random.OneIn(5)) continue;
    Placement::Sizes sizes(mesh.dim(cuts[k][0]).size, 0);
    for (int64_t i = 0; i < tensor.shape[k]; ++i) {
      ++sizes[random.Below(static_cast<int64_t>(sizes.size()))];
    }
    placements[cuts[k][0]] = Placement::RaggedShard(static_cast<int>(k), std::move(sizes));
  }
  auto sharding = Sharding::Create(mesh, tensor, std::move(placements), std::move(cuts));
  if (!sharding.ok()) return std::nullopt;
  return *std::move(sharding);
}

PlannerOptions RandomOptions(Random& random) {
  PlannerOptions options;
  options.reproducibility = static_cast<Reproducibility>(random.Below(4));
  if (random.OneIn(3)) options.reproducibility = Reproducibility::kReplicas;
  if (random.OneIn(3)) options.topology = Topology::Parse("nvlink=4").value();
  if (random.OneIn(4)) options.engine = EngineCapabilities::Nccl();
  if (random.OneIn(5)) options.reduce_dtype = RandomDType(random);
  if (random.OneIn(6)) options.ragged_sizes = RaggedSizes::kSum;
  if (random.OneIn(6)) options.planner = PlannerKind::kPerDim;
  if (random.OneIn(8)) options.ordered_reductions = false;
  if (options.reproducibility == Reproducibility::kOrdered) options.reduce_block = random.Below(4);
  return options;
}

Case RandomCase(uint64_t seed) {
  Random random(seed);
  while (true) {
    const DeviceMesh mesh = RandomMesh(random);
    const DeviceMesh other = random.OneIn(4) ? RandomMesh(random) : mesh;
    const Shape shape = RandomShape(random);
    const DType dtype = RandomDType(random);
    const std::optional<Sharding> from = RandomSharding(mesh, {dtype, shape}, random);
    const std::optional<Sharding> to =
        RandomSharding(other, {random.OneIn(2) ? dtype : RandomDType(random), shape}, random);
    if (from && to) return {*from, *to, RandomOptions(random)};
  }
}

// The reason why the problem may have no plan, by docs/errors.md and docs/plan_format.md; empty: a
// plan must exist.
std::string WhyNot(const Case& c) {
  const bool crosses = !(c.from.mesh() == c.to.mesh());
  const bool per_dim = c.options.planner == PlannerKind::kPerDim;
  if (crosses && per_dim) return "the per-dim planner plans on one mesh";
  bool reduces = false;
  bool stays = false;
  int64_t reduced = 0;
  bool averages = false;
  std::vector<ReduceOp> ops;
  for (int d = 0; d < c.from.mesh().NumDims(); ++d) {
    if (c.from.mesh().dim(d).size == 1) continue;
    const Placement& s = c.from.placement(d);
    if (s.IsPartial()) ops.push_back(s.op());
    const bool keeps = !crosses && s.IsPartial() && c.to.placement(d).IsPartial();
    stays |= keeps;
    if (s.IsPartial() && !keeps) {
      reduces = true;
      ++reduced;
      averages |= s.op() == ReduceOp::kAvg;
    }
    if (crosses) continue;
    const Placement& t = c.to.placement(d);
    if (keeps && s.op() != t.op()) return "P(a) -> P(b)";
    const bool all_are_one = NumElements(c.from.shape()) == 0 && !per_dim;
    if (!all_are_one && s.IsShard() && t.IsPartial() && t.op() == ReduceOp::kAvg) {
      return "S -> P(avg)";
    }
  }
  std::vector<DType> dtypes = {c.from.dtype(), c.to.dtype()};
  if (!CheckCast(dtypes[0], dtypes[1]).ok()) return "no such cast";
  if (reduces) {
    const DType reduce =
        c.options.reduce_dtype.value_or(DefaultReduceDType(c.from.dtype(), c.to.dtype()));
    dtypes = {c.from.dtype(), reduce, c.to.dtype()};
    for (const ReduceOp op : ops) {
      if (!CheckReduce(op, reduce).ok()) return "no such reduction";
    }
    if (per_dim && averages && reduced > 1 && IsInteger(reduce)) return "averages are the last";
  }
  for (size_t i = 0; i + 1 < dtypes.size(); ++i) {
    if (!CheckCast(dtypes[i], dtypes[i + 1]).ok()) return "no such cast";
    if (stays && !IsExactCast(dtypes[i], dtypes[i + 1])) return "contributions would be rounded";
  }
  if (!c.options.ordered_reductions && reduces &&
      c.options.reproducibility > Reproducibility::kReplicas) {
    return "needs an order";
  }
  return "";
}

class AlwaysPlannedTest : public testing::TestWithParam<int> {};

TEST_P(AlwaysPlannedTest, ThereIsAPlanWhereThereMayBeOne) {
  int64_t planned = 0;
  int64_t refused = 0;
  int64_t missing = 0;
  int64_t limited = 0;
  for (int64_t i = GetParam(); i < kCases; i += kNumShards * testkit::TestFraction()) {
    Case c = RandomCase(i);
    const std::string why_not = WhyNot(c);
    const std::string where = fmt::format(
        "case {}: {} -> {}, {} {}, reduced in {}, ordered {}, blocks {}", i, c.from.ToString(),
        c.to.ToString(), Name(c.options.planner), Name(c.options.reproducibility),
        c.options.reduce_dtype ? Name(*c.options.reduce_dtype) : "any",
        c.options.ordered_reductions, c.options.reduce_block);
    absl::StatusOr<Plan> plan = MakePlan(c.from, c.to, c.options);
    if (!plan.ok()) {
      ++refused;
      if (why_not.empty() || absl::IsInternal(plan.status())) {
        ++missing;
        ADD_FAILURE() << where << ": " << plan.status();
      }
      continue;
    }
    ++planned;
    EXPECT_TRUE(why_not.empty() || why_not == "needs an order") << where << ": " << why_not;
    const Verdict verdict = Verify(*plan);
    EXPECT_TRUE(verdict.ok()) << where << ": " << verdict.fault->rule << ": "
                              << verdict.fault->message;
    // With a memory limit there must be a plan if any keeps to it.
    if (i % 3 != 0) continue;
    c.options.max_work = int64_t{1} << 31;  // more than the default: what exists, at any cost
    const absl::StatusOr<int64_t> least = LeastMemory(c.from, c.to, c.options);
    ASSERT_TRUE(least.ok()) << where << ": " << least.status();
    EXPECT_LE(*least, plan->total().peak_bytes) << where;
    c.options.max_memory = *least;
    plan = MakePlan(c.from, c.to, c.options);
    ASSERT_TRUE(plan.ok()) << where << ": " << plan.status();
    ++limited;
  }
  EXPECT_EQ(missing, 0);
  EXPECT_GT(planned, refused / 4);
  fmt::print(
      "plans, shard {} of {}: {} pairs have one, proven, {} of them also within the least memory; "
      "{} may have none; {} should have and have not\n",
      GetParam(), kNumShards, planned, limited, refused - missing, missing);
}

INSTANTIATE_TEST_SUITE_P(Shards, AlwaysPlannedTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
