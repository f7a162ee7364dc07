// Thousands of damaged plans, checked by the verifier and by running them: the verifier accepts no
// plan that gives wrong values, or whose replicas differ against its promise.
#include "tests/mutation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/reduction_order.h"
#include "meshift/planner.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "meshift/verifier.h"
#include "testing/cross_world.h"
#include "testing/small_world.h"
#include "tests/ordered_case.h"
#include "tests/ordered_run.h"
#include "tests/plan_runner.h"

namespace meshift {
namespace {

struct Tally {
  int64_t damaged = 0;
  int64_t accepted = 0;
  int64_t accepted_and_bad = 0;
  int64_t rejected_and_ran_wrong = 0;
  int64_t rejected_and_ran_right = 0;
  int64_t rejected_and_not_run = 0;
  std::map<std::string, int64_t> rules;

  std::string ToString() const {
    std::string text = fmt::format(
        "{} damaged plans: {} accepted, of these {} bad; rejected: {} ran wrong, {} ran right "
        "(bytes, totals, words), {} could not be run; by rule:",
        damaged, accepted, accepted_and_bad, rejected_and_ran_wrong, rejected_and_ran_right,
        rejected_and_not_run);
    for (const auto& [rule, count] : rules) text += fmt::format(" {} {}", rule, count);
    return text;
  }
};

struct Kind {
  DType dtype;
  ReduceOp op;
  DType to;
  std::optional<DType> reduce_dtype;
};
constexpr std::array<Kind, 9> kKinds = {{{DType::kF32, ReduceOp::kSum, DType::kF32, {}},
                                         {DType::kF32, ReduceOp::kSum, DType::kBF16, {}},
                                         {DType::kF32, ReduceOp::kAvg, DType::kF32, {}},
                                         {DType::kI32, ReduceOp::kMax, DType::kI32, {}},
                                         {DType::kBF16, ReduceOp::kProduct, DType::kBF16, {}},
                                         {DType::kBF16, ReduceOp::kSum, DType::kBF16, DType::kF32},
                                         {DType::kBF16, ReduceOp::kSum, DType::kF32, {}},
                                         {DType::kF16, ReduceOp::kAvg, DType::kF8E4M3, {}},
                                         {DType::kI8, ReduceOp::kMin, DType::kI32, {}}}};
constexpr int kNumShards = 4;

// Damages the plan in every way, and in one of three cases twice.
template <typename Judge>
void ForEachDamaged(const Plan& plan, uint64_t seed, Judge judge) {
  std::mt19937_64 rng(seed);
  for (int kind = 0; kind < kNumMutations; ++kind) {
    PlanFields fields = plan.fields();
    std::string what = Mutate(kind, rng, &fields);
    if (rng() % 3 == 0) {
      what += "; " + Mutate(static_cast<int>(rng() % kNumMutations), rng, &fields);
    }
    const Plan damaged = Plan::Seal(std::move(fields));
    if (!(damaged.fields() == plan.fields())) judge(damaged, what);
  }
}

// Compares the verifier's verdict on damaged plans with the results of running them.
void JudgeDamaged(const Plan& plan, uint64_t seed, Tally* tally) {
  ForEachDamaged(plan, seed, [&](const Plan& damaged, const std::string& what) {
    ++tally->damaged;
    const Verdict verdict = Verify(damaged);
    PlanRunner runner(UnionMesh(damaged.from().mesh(), damaged.to().mesh()).value());
    const absl::StatusOr<RunOutcome> outcome = runner.Run(damaged);
    const bool runs_well =
        outcome.ok() && outcome->wrong == 0 &&
        (outcome->replicas_differ == 0 || damaged.kept() == Reproducibility::kNone);
    if (verdict.ok()) {
      ++tally->accepted;
      if (runs_well && outcome->bytes_differ == 0) return;
      ++tally->accepted_and_bad;
      ADD_FAILURE() << "accepted: " << what << "; seed " << seed << "; " << plan.from().ToString()
                    << " -> " << plan.to().ToString() << ": "
                    << (outcome.ok() ? outcome->message : outcome.status().ToString());
      return;
    }
    ++tally->rules[verdict.fault->rule];
    EXPECT_FALSE(verdict.fault->message.empty());
    if (!outcome.ok()) {
      ++tally->rejected_and_not_run;
    } else {
      ++(runs_well ? tally->rejected_and_ran_right : tally->rejected_and_ran_wrong);
    }
  });
}

class MutationTest : public testing::TestWithParam<int> {};

TEST_P(MutationTest, NothingThatRunsWrongIsAccepted) {
  constexpr uint64_t kPlans = 1000;
  Tally tally;
  for (uint64_t seed = GetParam(); seed < kPlans; seed += kNumShards * testkit::TestFraction()) {
    const Kind& sort = kKinds[seed / kNumShards % kKinds.size()];
    testkit::RandomPair pair = testkit::RandomCase(seed, sort.dtype, sort.op);
    pair.to = *pair.to.WithDType(sort.to);
    const absl::StatusOr<Plan> plan =
        MakePlan(pair.from, pair.to,
                 {.planner = seed % 7 == 0 ? PlannerKind::kPerDim : PlannerKind::kBest,
                  .reduce_dtype = sort.reduce_dtype});
    // The per-dim planner does not average integers; contributions that stay partial are not
    // rounded.
    if (plan.ok()) JudgeDamaged(*plan, seed, &tally);
  }
  fmt::print("shard {}: {}\n", GetParam(), tally.ToString());
  EXPECT_GT(tally.rejected_and_ran_wrong, 0);
}

// Plans from one mesh to another.
TEST_P(MutationTest, NothingThatRunsWrongIsAcceptedAcrossMeshes) {
  constexpr uint64_t kPlans = 1000;
  constexpr std::array kTopologies = {"flat", "nvlink=2", "nvlink=4", "nvlink=2,rail=8"};
  Tally tally;
  for (uint64_t seed = GetParam(); seed < kPlans; seed += kNumShards * testkit::TestFraction()) {
    const Kind& sort = kKinds[seed / kNumShards % kKinds.size()];
    testkit::RandomPair pair = testkit::RandomCrossCase(seed, sort.dtype, sort.op);
    const absl::StatusOr<Sharding> to = pair.to.WithDType(sort.to);
    if (!to.ok()) continue;  // partial by an op that the dtype does not have
    const absl::StatusOr<Plan> plan =
        MakePlan(pair.from, *to,
                 {.topology = *Topology::Parse(kTopologies[seed / 9 % kTopologies.size()]),
                  .reduce_dtype = sort.reduce_dtype});
    ASSERT_TRUE(plan.ok()) << pair.from.ToString() << " -> " << to->ToString() << ": "
                           << plan.status();
    JudgeDamaged(*plan, seed, &tally);
  }
  fmt::print("two meshes, shard {}: {}\n", GetParam(), tally.ToString());
  EXPECT_GT(tally.rejected_and_ran_wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Shards, MutationTest, testing::Range(0, kNumShards));

// A plan that is accepted as `ordered` gives the bits that its inputs require.
TEST_P(MutationTest, NothingWithOtherBitsIsAcceptedAsOrdered) {
  constexpr uint64_t kCases = 240;
  int64_t damaged_plans = 0;
  int64_t accepted = 0;
  std::map<std::string, int64_t> rules;
  int64_t staged = 0;
  int64_t crossing = 0;
  for (uint64_t seed = GetParam(); seed < kCases; seed += kNumShards * testkit::TestFraction()) {
    const OrderedCase c(seed, {.blocks = seed / kNumShards % 2 == 1});
    // Blocks go in stages on this topology.
    const int64_t block = c.reduce_block();
    const Topology topology = block == 0 ? Topology::Flat()
                              : seed / kNumShards % 4 == 1
                                  ? DearMessages(3)
                                  : DearCrossings(block * c.ranks() / c.contributions());
    std::vector<OrderedProblem> problems = c.Problems();
    // Also with a crossing to another mesh.
    const DeviceMesh other = DeviceMesh::Parse("t=3@1-3").value();
    const Sharding& from = problems.front().from;
    problems.push_back({from, Sharding::Parse(from.tensor(), other, "R").value()});
    for (const OrderedProblem& problem : problems) {
      const Plan plan = MakePlan(problem.from, problem.to,
                                 {.reproducibility = Reproducibility::kOrdered,
                                  .topology = topology,
                                  .reduce_block = block})
                            .value();
      for (const Step& step : plan.steps()) {
        staged += step.reduce_stages ? 1 : 0;
        crossing += IsCrossing(step) && step.reduce_op ? 1 : 0;
      }
      ForEachDamaged(plan, seed, [&](const Plan& damaged, const std::string& what) {
        // Skips plans whose problem itself was changed.
        const PlanFields& fields = damaged.fields();
        if (!(fields.from == plan.from() && fields.to == plan.to()) ||
            fields.inputs.options.reduce_block != plan.options().reduce_block ||
            fields.kept != Reproducibility::kOrdered) {
          return;
        }
        ++damaged_plans;
        const Verdict verdict = Verify(damaged);
        if (!verdict.ok()) {
          ++rules[verdict.fault->rule];
          return;
        }
        ++accepted;
        EXPECT_EQ(FindOtherBits(c, damaged, ReductionOrder::kTopology), "")
            << c.ToString() << ": accepted: " << what;
      });
    }
  }
  fmt::print(
      "ordered, shard {}: {} damaged plans, of {} in stages, {} across meshes: {} accepted; by "
      "rule:",
      GetParam(), damaged_plans, staged, crossing, accepted);
  for (const auto& [rule, count] : rules) fmt::print(" {} {}", rule, count);
  fmt::print("\n");
  EXPECT_GT(crossing, 0);
  EXPECT_GT(rules["reduce_block"], 0);
  EXPECT_GT(rules["reduce_stages"], 0);
  EXPECT_TRUE(testkit::TestFraction() > 1 || staged > 3) << staged;
}

}  // namespace
}  // namespace meshift
