// PlannerOptions::max_work ends planning at the same place every time, and changes no plan.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "base/work_budget.h"
#include "meshift/device_mesh.h"
#include "meshift/explain.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/planner_cache.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"

namespace meshift {
namespace {

struct Case {
  std::string mesh;
  std::string tensor;
  std::string from;
  std::string to;
  std::string to_mesh = "";  // empty: the source's
  PlannerOptions options = {};

  Sharding From() const { return *Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), from); }
  Sharding To() const {
    return *Sharding::Parse(tensor, *DeviceMesh::Parse(to_mesh.empty() ? mesh : to_mesh), to);
  }
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"ddp=8,fsdp=5,tp=2", "bf16[4096,512]", "P,P,S(1)", "R,R,S(1)"},
      {"a=3,b=5", "f32[101,203]", "S(0),S(1)", "S(1),S(0)"},
      {"a=2,b=2@4,5,0-1", "f32[7,5]", "P,S(0)", "S(1),R"},
      {"a=2,b=3", "f32[24,25]", "P,S(0)", "S(1),R", "c=4,d=2"},
      {"a=2,b=3", "f32[24,25]", "P,S(0)", "R,R"},
  };
  cases[2].options.topology = *Topology::Parse("nvlink=2");
  cases[4].options.groups.expected_uses = 10;
  cases[4].options.max_memory = 10000;
  return cases;
}

PlannerOptions With(PlannerOptions options, int64_t max_work) {
  options.max_work = max_work;
  return options;
}

TEST(MaxWork, RefusesBelowWhatAPlanTakesAndChangesNoPlan) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.mesh + " " + c.from);
    WorkBudget unbounded(INT64_MAX);
    const absl::StatusOr<Plan> plan = MakePlan(c.From(), c.To(), c.options, unbounded);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int64_t work = unbounded.done();
    ASSERT_GT(work, 0);
    EXPECT_LT(work, kDefaultMaxWork);
    EXPECT_EQ(MakePlan(c.From(), c.To(), With(c.options, work))->fingerprint(),
              plan->fingerprint());
    for (const int64_t less : {work - 1, work / 2, int64_t{1}}) {
      WorkBudget budget(less);
      const absl::Status refused = MakePlan(c.From(), c.To(), c.options, budget).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << less;
      EXPECT_EQ(Message(refused),
                "planning takes more work than max_work = " + std::to_string(less) +
                    " allows; raise max_work (--max-work)");
      // After the limit planning ends soon, and always at the same place.
      WorkBudget again(less);
      EXPECT_FALSE(MakePlan(c.From(), c.To(), c.options, again).ok());
      EXPECT_EQ(budget.done(), again.done());
    }
  }
}

TEST(MaxWork, IsNamedInAPlansInputsWhereItIsNotTheDefault) {
  const Case c = Cases()[0];
  EXPECT_EQ(PlanToText(*MakePlan(c.From(), c.To())).find("max_work"), std::string::npos);
  EXPECT_NE(PlanToText(*MakePlan(c.From(), c.To(), {.max_work = 1000000000}))
                .find(", max_work 1000000000\n"),
            std::string::npos);
}

// Ranks may have different plans in their caches; all must refuse the same problems.
TEST(MaxWork, ACacheRefusesWhatItWouldRefuseWithoutWhatItHas) {
  const Case c = Cases()[1];
  WorkBudget unbounded(INT64_MAX);
  ASSERT_TRUE(MakePlan(c.From(), c.To(), {}, unbounded).ok());
  const int64_t work = unbounded.done();
  // The same problem on a mesh with other names shares the path.
  const Case other = {"x=3,y=5", c.tensor, c.from, c.to};
  PlannerCache enough({.max_work = work});
  ASSERT_TRUE(enough.Find(c.From(), c.To()).ok());
  EXPECT_TRUE(enough.Find(other.From(), other.To()).ok());
  EXPECT_EQ(enough.stats().shared_paths, 1);
  PlannerCache less({.max_work = work - 1});
  EXPECT_FALSE(less.Find(c.From(), c.To()).ok());
  EXPECT_FALSE(less.Find(other.From(), other.To()).ok());
  // Several plans may share a budget; known paths do not charge it.
  WorkBudget shared(work);
  EXPECT_TRUE(enough
                  .Find(Case{"u=3,v=5", c.tensor, c.from, c.to}.From(),
                        Case{"u=3,v=5", c.tensor, c.from, c.to}.To(), std::nullopt, shared)
                  .ok());
  EXPECT_LT(shared.done(), work);
}

TEST(MaxWork, LeastMemoryAndAlternativesKeepToIt) {
  const Case c = Cases()[1];
  EXPECT_EQ(LeastMemory(c.From(), c.To(), {.max_work = 100}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ListAlternatives(c.From(), c.To(), {.max_work = 100}).status().code(),
            absl::StatusCode::kResourceExhausted);
  // Work that is enough for the best plan may allow fewer alternatives.
  WorkBudget unbounded(INT64_MAX);
  ASSERT_TRUE(MakePlan(c.From(), c.To(), {}, unbounded).ok());
  const auto best = ListAlternatives(c.From(), c.To(), {.max_work = unbounded.done()});
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->size(), 1);
  EXPECT_GT(ListAlternatives(c.From(), c.To(), {})->size(), 1);
}

// Several proofs may share a budget; a proof beyond it breaks the rule "scale".
TEST(MaxWork, IsSharedByProofs) {
  const Case c = Cases()[1];
  const Plan plan = MakePlan(c.From(), c.To()).value();
  WorkBudget unbounded(INT64_MAX);
  EXPECT_TRUE(Verify(plan, {}, unbounded).ok());
  ASSERT_GT(unbounded.done(), 0);
  WorkBudget two(2 * unbounded.done());
  EXPECT_TRUE(Verify(plan, {}, two).ok());
  EXPECT_TRUE(Verify(plan, {}, two).ok());
  const Verdict third = Verify(plan, {}, two);
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.fault->rule, "scale");
}

// Problems that took minutes, or more memory than the machine has. cli/hostile_test.cc checks their
// seconds; this test checks that they end.
TEST(MaxWork, EndsWhatHasNoEnd) {
  for (const Case& c :
       std::vector<Case>{{"a=2147483647", "f32[1024]", "S(0)", "S(0)", "b=2147483646"},
                         {"a=2,b=3,c=5,d=7,e=2,f=3,g=5,h=7", "i8[101,203,97,89,53,67,71,11]",
                          "P,P,P,P,P,P,P,P", "S(7),S(6),S(5),S(4),S(3),S(2),S(1),S(0)"},
                         {"a=3,b=5,c=7,d=2,e=3,f=5,g=2,h=3", "bf16[1009,2003,777,55]",
                          "R,R,S(0),S(1),R,R,S(2),R", "P,P,P,P,P,P,P,P"}}) {
    SCOPED_TRACE(c.mesh);
    const absl::Status status =
        MakePlan(c.From(), c.To(), With(c.options, int64_t{1} << 26)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  }
}

}  // namespace
}  // namespace meshift
