// What the per-dim planner does to replicas, in the small world: under adversarial reduction they
// differ wherever the rule of single-sourced reductions forbids its plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "planner/planner.h"
#include "planner/verifier.h"
#include "testing/small_world.h"
#include "tests/plan_runner.h"

namespace meshift {
namespace {

// Whether a reduction of `plan` is computed by several groups and ranks that took it from different
// ones end as replicas of each other: a mesh dim is R before the reduction, is not reduced by it,
// and stays R to the end. (Where such a dim is cut later, each element's copies are all from one
// group.)
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
  int64_t harmless = 0;  // forbidden, but the copies that remain are from one group
  int64_t differing = 0;
  int64_t wrong = 0;
  testkit::ForEachSmallWorldCase(
      // A third of the cases: the plans that are compared are the same in all of them.
      {.fraction = 3 * testkit::TestFraction()}, [&](const Sharding& from, const Sharding& to) {
        if (!from.HasPartial()) return;  // nothing is reduced
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

}  // namespace
}  // namespace meshift
