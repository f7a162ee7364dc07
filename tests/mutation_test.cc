// Thousands of damaged plans, judged by the verifier and by running them: nothing that runs wrong,
// or leaves replicas different against its promise, is accepted.
#include "tests/mutation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "planner/planner.h"
#include "planner/verifier.h"
#include "testing/small_world.h"
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
};

class MutationTest : public testing::TestWithParam<int> {};

constexpr int kNumShards = 4;

TEST_P(MutationTest, NothingThatRunsWrongIsAccepted) {
  constexpr uint64_t kPlans = 1000;
  struct Kind {
    DType dtype;
    ReduceOp op;
    DType to;
    std::optional<DType> reduce_dtype;
  };
  constexpr std::array<Kind, 9> kKinds = {
      {{DType::kF32, ReduceOp::kSum, DType::kF32, {}},
       {DType::kF32, ReduceOp::kSum, DType::kBF16, {}},
       {DType::kF32, ReduceOp::kAvg, DType::kF32, {}},
       {DType::kI32, ReduceOp::kMax, DType::kI32, {}},
       {DType::kBF16, ReduceOp::kProduct, DType::kBF16, {}},
       {DType::kBF16, ReduceOp::kSum, DType::kBF16, DType::kF32},
       {DType::kBF16, ReduceOp::kSum, DType::kF32, {}},
       {DType::kF16, ReduceOp::kAvg, DType::kF8E4M3, {}},
       {DType::kI8, ReduceOp::kMin, DType::kI32, {}}}};
  Tally tally;
  for (uint64_t seed = GetParam(); seed < kPlans; seed += kNumShards * testkit::TestFraction()) {
    const Kind& sort = kKinds[seed / kNumShards % kKinds.size()];
    testkit::RandomPair pair = testkit::RandomCase(seed, sort.dtype, sort.op);
    pair.to = *pair.to.WithDType(sort.to);
    const absl::StatusOr<Plan> plan =
        MakePlan(pair.from, pair.to,
                 {.planner = seed % 7 == 0 ? PlannerKind::kPerDim : PlannerKind::kBest,
                  .reduce_dtype = sort.reduce_dtype});
    // The per-dim planner does not average integers; what stays partial is not rounded.
    if (!plan.ok()) continue;
    std::mt19937_64 rng(seed);
    for (int kind = 0; kind < kNumMutations; ++kind) {
      PlanFields fields = plan->fields();
      std::string what = Mutate(kind, rng, &fields);
      // One in three is damaged twice.
      if (rng() % 3 == 0) {
        what += "; " + Mutate(static_cast<int>(rng() % kNumMutations), rng, &fields);
      }
      const Plan damaged = Plan::Seal(std::move(fields));
      if (damaged.fields() == plan->fields()) continue;
      ++tally.damaged;
      const Verdict verdict = Verify(damaged);
      PlanRunner runner(pair.from.mesh());
      const absl::StatusOr<RunOutcome> outcome = runner.Run(damaged);
      const bool runs_well =
          outcome.ok() && outcome->wrong == 0 &&
          (outcome->replicas_differ == 0 || damaged.kept() == Reproducibility::kNone);
      if (verdict.ok()) {
        ++tally.accepted;
        if (!runs_well || outcome->bytes_differ > 0) {
          ++tally.accepted_and_bad;
          ADD_FAILURE() << "accepted: " << what << "; seed " << seed << "; " << pair.from.ToString()
                        << " -> " << pair.to.PlacementsText() << ": "
                        << (outcome.ok() ? outcome->message : outcome.status().ToString());
        }
      } else {
        ++tally.rules[verdict.fault->rule];
        EXPECT_FALSE(verdict.fault->message.empty());
        if (!outcome.ok()) {
          ++tally.rejected_and_not_run;
        } else {
          ++(runs_well ? tally.rejected_and_ran_right : tally.rejected_and_ran_wrong);
        }
      }
    }
  }
  fmt::print(
      "shard {}: {} damaged plans: {} accepted, of these {} bad; rejected: {} ran wrong, {} "
      "ran right (bytes, totals, words), {} could not be run; by rule:",
      GetParam(), tally.damaged, tally.accepted, tally.accepted_and_bad,
      tally.rejected_and_ran_wrong, tally.rejected_and_ran_right, tally.rejected_and_not_run);
  for (const auto& [rule, count] : tally.rules) fmt::print(" {} {}", rule, count);
  fmt::print("\n");
  EXPECT_GT(tally.rejected_and_ran_wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Shards, MutationTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
