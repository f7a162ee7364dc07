// Replicas under the per-dim planner, in the small world: with adversarial reduction they differ
// where the rule of single-sourced reductions forbids its plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "comm/local/reduction_order.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "testing/plan_runner.h"
#include "testing/small_world.h"
#include "tests/plan_runner.h"

namespace meshift {
namespace {

// Whether several groups compute a reduction of `plan`, and ranks with different results end as
// replicas of each other: a mesh dim is R before the reduction, is not reduced by it, and stays R
// to the end. (If such a dim is cut later, each element's copies are all from one group.)
bool CopiesOfOneSumSurvive(const Plan& plan) {
  const DeviceMesh& mesh = plan.from().mesh();
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    if (!IsReduction(plan.steps()[i].op)) continue;
    const Sharding& before = i == 0 ? plan.from() : plan.steps()[i - 1].after;
    for (int d = 0; d < mesh.NumDims(); ++d) {
      bool stays = mesh.dim(d).size > 1 && before.placement(d).IsReplicate();
      for (size_t j = i; j < plan.steps().size(); ++j) {
        stays &= plan.steps()[j].after.placement(d).IsReplicate();
      }
      if (stays && NumElements(plan.to().shape()) > 0) return true;
    }
  }
  return false;
}

TEST(PerDimTest, ReplicasDifferWhereTheRuleForbidsThePlan) {
  std::map<std::string, std::unique_ptr<PlanRunner>> runners;
  int64_t cases = 0;
  int64_t forbidden = 0;
  int64_t harmless = 0;  // forbidden, but the remaining copies are from one group
  int64_t differing = 0;
  int64_t wrong = 0;
  testkit::ForEachSmallWorldCase(
      // A third of the cases: the compared plans are the same in all of them.
      {.fraction = 3 * testkit::TestFraction()}, [&](const Sharding& from, const Sharding& to) {
        if (!from.HasPartial()) return;  // no reduction
        const absl::StatusOr<Plan> plan = MakePlan(from, to, {.planner = PlannerKind::kPerDim});
        ASSERT_TRUE(plan.ok()) << plan.status();
        const Verdict verdict = Verify(*plan);
        ASSERT_TRUE(verdict.ok()) << verdict.fault->rule << ": " << verdict.fault->message;
        ++cases;
        std::unique_ptr<PlanRunner>& runner = runners[from.mesh().ToString()];
        if (runner == nullptr) runner = std::make_unique<PlanRunner>(from.mesh());
        const absl::StatusOr<RunOutcome> outcome = runner->Run(*plan);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        wrong += outcome->wrong > 0 ? 1 : 0;
        EXPECT_EQ(outcome->bytes_differ, 0) << outcome->message;
        if (plan->kept() >= Reproducibility::kReplicas) {
          EXPECT_EQ(outcome->replicas_differ, 0) << outcome->message;
        } else if (CopiesOfOneSumSurvive(*plan)) {
          ++forbidden;
          differing += outcome->replicas_differ > 0 ? 1 : 0;
        } else {
          ++harmless;
        }
      });
  fmt::print(
      "per-dim: {} cases, {} wrong; forbidden by the rule, copies of a sum from several groups "
      "remain as replicas: {}, of these {} differ; forbidden, no such copies remain: {}\n",
      cases, wrong, forbidden, differing, harmless);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(forbidden, 0);
  EXPECT_GE(differing * 100, forbidden * 99);
}

// Plans that keep the promise, on topologies whose domains the groups fill unevenly, and those of
// the per-dim planner for comparison.
TEST(ReplicasTest, AreEqualOnJaggedTopologies) {
  using testkit::Values;
  constexpr int64_t kCases = 2000;
  constexpr std::array kDTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};
  constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct};
  int64_t cases = 0;
  int64_t differing = 0;
  int64_t wrong = 0;
  int64_t forbidden = 0;
  int64_t per_dim_differing = 0;
  for (uint64_t seed = 0; cases < kCases / testkit::TestFraction(); ++seed) {
    const auto [from, to] =
        testkit::RandomCase(seed, kDTypes[seed % kDTypes.size()], kOps[seed / 4 % kOps.size()]);
    bool reduces = false;
    for (int d = 0; d < from.mesh().NumDims(); ++d) {
      reduces |= from.mesh().dim(d).size > 1 && from.placement(d).IsPartial() &&
                 !to.placement(d).IsPartial();
    }
    if (!reduces || NumElements(from.shape()) == 0) continue;
    ++cases;
    const auto domain = static_cast<int64_t>(2 + seed % 6);
    const Topology topology = Topology::Parse(fmt::format("nvlink={}", domain)).value();
    const auto runner = testkit::PlanRunner::Create(from.mesh());
    ASSERT_TRUE(runner.ok()) << runner.status();
    const testkit::Pass on_topology = {.fill = {.values = Values::kRounding, .seed = seed},
                                       .order = ReductionOrder::kTopology,
                                       .domain_size = domain};
    const testkit::Pass adversarial = {.fill = {.values = Values::kRounding, .seed = seed + 1},
                                       .order = ReductionOrder::kAdversarial};
    const absl::StatusOr<Plan> plan = MakePlan(from, to, {.topology = topology});
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const testkit::Pass& pass : {on_topology, adversarial}) {
      const absl::StatusOr<testkit::PlanRun> run = (*runner)->Run(*plan, {pass});
      ASSERT_TRUE(run.ok()) << run.status();
      differing += run->data.replicas_differ > 0 ? 1 : 0;
      wrong += run->data.wrong > 0 ? 1 : 0;
      EXPECT_TRUE(run->data.ok()) << "seed " << seed << ": " << run->data.ToString();
    }
    const absl::StatusOr<Plan> per_dim =
        MakePlan(from, to, {.topology = topology, .planner = PlannerKind::kPerDim});
    ASSERT_TRUE(per_dim.ok()) << per_dim.status();
    if (per_dim->kept() >= Reproducibility::kReplicas || !CopiesOfOneSumSurvive(*per_dim)) continue;
    ++forbidden;
    const absl::StatusOr<testkit::PlanRun> run = (*runner)->Run(*per_dim, {adversarial});
    ASSERT_TRUE(run.ok()) << run.status();
    per_dim_differing += run->data.replicas_differ > 0 ? 1 : 0;
  }
  fmt::print(
      "replicas: {} cases on jagged topologies, {} with differing replicas, {} wrong; per-dim "
      "plans "
      "that the rule forbids: {}, of these {} differ\n",
      cases, differing, wrong, forbidden, per_dim_differing);
  EXPECT_EQ(differing, 0);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(forbidden, 0);
  EXPECT_GE(per_dim_differing * 100, forbidden * 99);
}

}  // namespace
}  // namespace meshift
