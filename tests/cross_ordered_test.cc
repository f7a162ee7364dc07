// The promise `ordered` between meshes: the bits are those of a plain loop, for every factoring of
// the source's and target's mesh, all links, and any order of the engine's own sums.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/local/reduction_order.h"
#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "placement/op_table.h"
#include "testing/random.h"
#include "testing/shardings.h"
#include "testing/small_world.h"
#include "tests/ordered_case.h"
#include "tests/ordered_run.h"

namespace meshift {
namespace {

// A target of the tensor on up to 8 of the first 20 ranks, in any order.
Sharding SomeTarget(const TensorType& tensor, testkit::Random& random) {
  const std::vector<int64_t> sizes = testkit::RandomSizes(8, random);
  std::vector<DeviceMesh::Dim> dims;
  int64_t count = 1;
  for (const int64_t size : sizes) {
    dims.push_back({fmt::format("t{}", dims.size()), size});
    count *= size;
  }
  std::vector<int64_t> ranks(20);
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int64_t>(i);
  random.Shuffle(ranks);
  ranks.resize(count);
  const DeviceMesh mesh = DeviceMesh::Create(std::move(dims), std::move(ranks)).value();
  return testkit::RandomSharding(mesh, tensor, std::vector<bool>(sizes.size()), ReduceOp::kSum,
                                 random);
}

TEST(CrossOrderedTest, BitsAreThoseOfAPlainLoop) {
  constexpr uint64_t kCases = 240;
  int64_t runs = 0;
  int64_t rounding = 0;
  int64_t blocked = 0;
  int64_t on_the_way = 0;  // intermediate reductions
  int64_t before = 0;
  for (uint64_t seed = 0; seed < kCases; seed += testkit::TestFraction()) {
    const OrderedCase c(seed, {.max_ranks = 16, .blocks = seed % 3 == 2, .shuffle = true});
    testkit::Random random(seed);
    for (const OrderedProblem& problem : c.Problems()) {
      const Sharding to = SomeTarget(problem.from.tensor(), random);
      // If few bytes go from the source's ranks to others, contributions are added before the
      // crossing.
      const Topology topology = seed % 4 == 0   ? Topology::Flat()
                                : seed % 4 == 1 ? *Topology::Parse("nvlink=3")
                                                : DearCrossings(16);
      const absl::StatusOr<Plan> plan = MakePlan(problem.from, to,
                                                 {.reproducibility = Reproducibility::kOrdered,
                                                  .topology = topology,
                                                  .reduce_block = c.reduce_block()});
      ASSERT_TRUE(plan.ok()) << c.ToString() << " -> " << to.ToString() << ": " << plan.status();
      EXPECT_EQ(plan->kept(), Reproducibility::kOrdered) << c.ToString();
      const Verdict verdict = Verify(*plan);
      ASSERT_TRUE(verdict.ok()) << c.ToString() << ": " << problem.from.ToString() << " -> "
                                << to.ToString() << ": " << verdict.fault->rule << ": "
                                << verdict.fault->message;
      for (const Step& step : plan->steps()) {
        if (step.reduce_op) ++(IsCrossing(step) ? on_the_way : before);
      }
      for (const ReductionOrder order : {ReductionOrder::kTopology, ReductionOrder::kAdversarial}) {
        ASSERT_EQ(FindOtherBits(c, *plan, order), "")
            << c.ToString() << ": " << problem.from.ToString() << " -> " << to.ToString();
        ++runs;
      }
      rounding += IsExact(c.op(), c.dtype()) ? 0 : 1;
      blocked += c.reduce_block() > 0 && !IsExact(c.op(), c.dtype()) ? 1 : 0;
    }
  }
  fmt::print(
      "ordered, two meshes: {} runs, 0 wrong; {} plans depend on the order, {} in blocks; {} "
      "reductions on the way, {} before\n",
      runs, rounding, blocked, on_the_way, before);
  EXPECT_GT(on_the_way, 0);
  EXPECT_GT(before, 0);
  EXPECT_GT(rounding, blocked);
  EXPECT_TRUE(testkit::TestFraction() > 1 || blocked > 20) << blocked;
}

}  // namespace
}  // namespace meshift
