#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/planner_cache.h"
#include "meshift/planner_options.h"
#include "meshift/verifier.h"
#include "planner/groups/plan_groups.h"
#include "planner/plan/plan_text.h"

namespace meshift {
namespace {

constexpr int64_t kSetup = 1000;

DeviceMesh Mesh(const std::string& text) { return DeviceMesh::Parse(text).value(); }

std::string Existing(const std::vector<DeviceMesh>& meshes, GroupBudget budget) {
  budget.allow_new_groups = false;
  const PlanGroups groups = PlanGroups::Create(meshes, budget, kSetup).value();
  return groups.Text(groups.existing());
}

std::optional<std::vector<MeshGroups>> Parse(const std::string& text,
                                             const std::vector<DeviceMesh>& meshes) {
  return ParseMeshGroups(text, meshes).value();
}

TEST(GroupBudgetTest, ByDefaultTheRootAndTheGroupsOfEachDimExist) {
  const DeviceMesh mesh = Mesh("ddp=8,one=1,fsdp=5,tp=2");
  EXPECT_EQ(Existing({mesh}, {}), "ddp;fsdp;tp;ddp,fsdp,tp");
  EXPECT_EQ(Existing({mesh}, {.existing_groups = Parse("-", {mesh})}), "ddp,fsdp,tp");
  EXPECT_EQ(Existing({mesh}, {.existing_groups = Parse("fsdp,one,ddp;tp", {mesh})}),
            "tp;ddp,fsdp;ddp,fsdp,tp");
  EXPECT_EQ(Parse("ddp,fsdp;fsdp,ddp;0:ddp,fsdp", {mesh})->size(), 1);
  // The root may have more ranks than the plan has.
  EXPECT_EQ(Existing({mesh}, {.root = Mesh("all=100")}), "ddp;fsdp;tp");
  EXPECT_EQ(Existing({mesh}, {.root = Mesh("all=80")}), "ddp;fsdp;tp;ddp,fsdp,tp");
  EXPECT_EQ(Existing({Mesh("a=1")}, {}), "-");
}

TEST(GroupBudgetTest, GroupsOfAnotherMeshCountWhereTheyAreTheSameRanks) {
  const DeviceMesh mesh = Mesh("a=2,b=2,c=2");
  EXPECT_EQ(Existing({mesh}, {.existing_groups = Parse("y", {Mesh("x=2,y=4")})}), "b,c;a,b,c");
  EXPECT_EQ(Existing({mesh}, {.existing_groups = Parse("x", {Mesh("x=2,y=4")})}), "a;a,b,c");
  EXPECT_EQ(Existing({mesh}, {.existing_groups = Parse("y", {Mesh("x=4,y=4")})}), "a,b,c");
}

TEST(GroupBudgetTest, OnTwoMeshesEqualGroupsAreOne) {
  const DeviceMesh from = Mesh("a=8");
  const DeviceMesh to = Mesh("b=2,c=4");
  EXPECT_EQ(Existing({from, to}, {}), "a;1:b;1:c;1:b,c;*");
  EXPECT_EQ(Existing({from, to}, {.existing_groups = Parse("1:c", {from, to})}), "a;1:c;1:b,c;*");
  // Disjoint meshes: the root has the ranks of both.
  const DeviceMesh apart = Mesh("c=4@8-11");
  EXPECT_EQ(Existing({from, apart}, {.existing_groups = Parse("-", {from})}), "*");
  EXPECT_EQ(Existing({from, apart},
                     {.existing_groups = Parse("*", {from, apart}), .root = Mesh("all=100")}),
            "*");
  EXPECT_EQ(Existing({from, apart},
                     {.existing_groups = Parse("1:c", {from, apart}), .root = Mesh("all=100")}),
            "1:c");
}

TEST(GroupBudgetTest, ARankNeedsTheGroupsThatItIsIn) {
  const GroupBudget budget{.max_communicators = 1};
  for (const auto& [to, most] : {std::pair("c=4@8-11", 2), std::pair("c=4@6-9", 3)}) {
    const PlanGroups groups = PlanGroups::Create({Mesh("a=8"), Mesh(to)}, budget, kSetup).value();
    GroupSet set(groups.size(), false);
    for (const int number : {groups.NumberOf(0, 1), groups.NumberOf(1, 1), groups.crossing()}) {
      set[number] = true;
    }
    EXPECT_EQ(groups.Communicators(set), most);
  }
}

TEST(GroupBudgetTest, BadTextNamesTheValue) {
  const std::vector<DeviceMesh> meshes = {Mesh("a=2,b=2"), Mesh("c=4@4-7")};
  const std::pair<const char*, const char*> cases[] = {
      {"", "'' has an empty group; expected groups such as fsdp;ddp,fsdp"},
      {"a;;b", "'a;;b' has an empty group; expected groups such as fsdp;ddp,fsdp"},
      {"c", "group 'c': mesh a=2,b=2 has no dim 'c'"},
      {"a,", "group 'a,': mesh a=2,b=2 has no dim ''"},
      {"1:a", "group '1:a': mesh c=4@4-7 has no dim 'a'"},
      {"2:a", "group '2:a' is of mesh 2; the plan has 2 mesh(es)"},
      {"-1:a", "group '-1:a' is of mesh -1; the plan has 2 mesh(es)"},
      {"a,b,a", "group 'a,b,a' has mesh dim a twice"},
      {"a;-", "group '-': mesh a=2,b=2 has no dim '-'"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(ParseMeshGroups(text, meshes).status(), absl::InvalidArgumentError(message));
  }
  EXPECT_EQ(ParseMeshGroups("*", {}).status(),
            absl::InvalidArgumentError("groups '*' cannot be read: no mesh is given"));
}

TEST(GroupBudgetTest, BadBudgetsAreRefused) {
  const DeviceMesh mesh = Mesh("a=2,b=2");
  const Sharding from = Sharding::Parse("f32[4]", mesh, "P,R").value();
  const Sharding to = from.WithPlacements("R,R").value();
  const std::pair<GroupBudget, const char*> cases[] = {
      {{.max_communicators = -1}, "a max_communicators of -1 is below 0"},
      {{.expected_uses = 0}, "expected_uses of 0 is below 1"},
      {{.allow_new_groups = false, .existing_groups = {{{mesh, {}}}}},
       "existing group 0 is over no dims of mesh a=2,b=2"},
      {{.allow_new_groups = false, .existing_groups = {{{mesh, {0}}, {mesh, {2}}}}},
       "existing group 1 names mesh dim 2; mesh a=2,b=2 has dims 0 to 1"},
  };
  for (const auto& [budget, message] : cases) {
    EXPECT_EQ(MakePlan(from, to, {.groups = budget}).status(), absl::InvalidArgumentError(message));
  }
}

// With the flattened group: one all_reduce. Without it: a reduce_scatter, an all_reduce and an
// all_gather.
TEST(GroupBudgetTest, WithoutTheFlattenedGroupThePromiseIsKept) {
  const DeviceMesh mesh = Mesh("ddp=8,fsdp=5,tp=2");
  const Sharding from = Sharding::Parse("f32[1280,4096]", mesh, "P,P,S(1)").value();
  const Sharding to = from.WithPlacements("R,R,S(1)").value();
  const Plan free = MakePlan(from, to).value();
  EXPECT_EQ(free.steps()[0].ToString(), "all_reduce{ddp,fsdp} -> R,R,S(1)");
  const PlannerOptions options{
      .groups = {.allow_new_groups = false, .existing_groups = Parse("ddp;fsdp", {mesh})}};
  const Plan plan = MakePlan(from, to, options).value();
  ASSERT_EQ(plan.steps().size(), 3);
  EXPECT_EQ(plan.steps()[0].op, StepOp::kReduceScatter);
  EXPECT_EQ(plan.steps()[1].op, StepOp::kAllReduce);
  EXPECT_EQ(plan.steps()[2].op, StepOp::kAllGather);
  EXPECT_EQ(plan.kept(), Reproducibility::kReplicas);
  EXPECT_TRUE(Verify(plan).ok());
  EXPECT_EQ(PlannerCache(options).Find(from, to).value(), plan);
}

// A tensor that cannot be sliced: a mesh dim that is partial in the target only joins the reduction
// over the root, and is masked again. An average joins as a sum.
TEST(GroupBudgetTest, AMaskTowardsTheTargetJoinsAReduction) {
  const DeviceMesh mesh = Mesh("a=2,b=3,c=2");
  const PlannerOptions options{.groups = {.allow_new_groups = false}};
  const struct {
    const char* from;
    const char* to;
    const char* first;
  } cases[] = {{"P,R,P", "R,P,R", "mask{b} -> P,P,P"},
               {"P(avg),R,P(avg)", "R,P(avg),R", "mask{b} -> P(avg),P,P(avg)"}};
  for (const auto& [placements, target, first] : cases) {
    const Sharding from = Sharding::Parse("f64[]", mesh, placements).value();
    const Sharding to = from.WithPlacements(target).value();
    const absl::StatusOr<Plan> plan = MakePlan(from, to, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->steps().size(), 3);
    EXPECT_EQ(plan->steps()[0].ToString(), first);
    EXPECT_EQ(plan->steps()[1].ToString(), "all_reduce{a,b,c} -> R,R,R");
    EXPECT_EQ(plan->steps()[2].op, StepOp::kMask);
    EXPECT_EQ(plan->kept(), Reproducibility::kReplicas);
    EXPECT_TRUE(Verify(*plan).ok());
  }
}

// A new group that two steps use is set up once; an existing group costs nothing.
TEST(GroupBudgetTest, SetUpIsSharedByTheUsesAndOncePerGroup) {
  const DeviceMesh mesh = Mesh("a=4,b=2,c=2");
  const Sharding from = Sharding::Parse("f32[64,64]", mesh, "P,P,S(0)").value();
  const Sharding to = from.WithPlacements("R,R,S(0)").value();
  PlannerOptions options{.groups = {.existing_groups = Parse("-", {mesh}), .expected_uses = 3}};
  const Plan few = MakePlan(from, to, options).value();
  EXPECT_EQ(few.total().setup_ns % 33'333'334, 0);
  options.groups.expected_uses = 1'000'000'000;
  const Plan many = MakePlan(from, to, options).value();
  EXPECT_EQ(many.total().setup_ns, 1);
  EXPECT_EQ(many.steps()[0].ToString(), "all_reduce{a,b} -> R,R,S(0)");
  options.groups.existing_groups = Parse("a,b", {mesh});
  EXPECT_EQ(MakePlan(from, to, options)->total().setup_ns, 0);
  for (const Plan& plan : {few, many}) {
    EXPECT_TRUE(Verify(plan).ok());
    EXPECT_EQ(PlanFromJson(PlanToJson(plan)).value(), plan);
    EXPECT_EQ(PlanFromText(PlanToText(plan)).value(), plan);
  }
  // The fingerprint contains neither costs nor budgets.
  EXPECT_EQ(many.fingerprint(), MakePlan(from, to)->fingerprint());
}

TEST(GroupBudgetTest, ThePerDimPlannerKeepsToItOrRefuses) {
  const DeviceMesh mesh = Mesh("a=2,b=2,c=2");
  const Sharding from = Sharding::Parse("f32[8]", mesh, "P,P,R").value();
  const Sharding to = from.WithPlacements("R,R,R").value();
  PlannerOptions options{.planner = PlannerKind::kPerDim, .groups = {.allow_new_groups = false}};
  EXPECT_TRUE(MakePlan(from, to, options).ok());
  options.groups.existing_groups = Parse("a", {mesh});
  EXPECT_EQ(
      MakePlan(from, to, options).status(),
      absl::FailedPreconditionError("the plan needs the new group b, and allow_new_groups is off"));
  options.groups = {.max_communicators = 1};
  EXPECT_EQ(
      MakePlan(from, to, options).status(),
      absl::ResourceExhaustedError("max_communicators is 1; the smallest sufficient value is 2"));
}

// A plan of two steps would need less memory, but each step needs a group of its own.
TEST(GroupBudgetTest, ALimitOnMemoryDoesNotLoosenIt) {
  const Sharding from =
      Sharding::Parse("f32[3,3,3]", Mesh("a=2,b=2,c=2"), "S(2)[1],S(2)[2],S(2)[0]").value();
  const Sharding to = from.WithPlacements("S(2),S(1),S(1)").value();
  PlannerOptions options{.max_memory = 123, .groups = {.max_communicators = 1}};
  EXPECT_EQ(
      MakePlan(from, to, options).status(),
      absl::ResourceExhaustedError("max_memory is 123 bytes per rank; the smallest "
                                   "sufficient value is 124: source 36, target 24, workspace 64"));
  options.groups.max_communicators = 2;
  EXPECT_TRUE(MakePlan(from, to, options).ok());
}

TEST(GroupBudgetTest, ACrossingIsOverTheRanksOfBothMeshes) {
  const Sharding from = Sharding::Parse("f32[8,8]", Mesh("a=4"), "S(0)").value();
  const Sharding to = Sharding::Parse("f32[8,8]", Mesh("b=2@4-5"), "S(1)").value();
  PlannerOptions options{.groups = {.allow_new_groups = false}};
  const Plan plan = MakePlan(from, to, options).value();
  EXPECT_TRUE(Verify(plan).ok());
  EXPECT_EQ(PlanFromText(PlanToText(plan)).value(), plan);
  options.groups.root = Mesh("all=8");
  EXPECT_EQ(MakePlan(from, to, options).status(),
            absl::FailedPreconditionError(
                "no plan over the existing groups (a;1:b) keeps 'replicas'; the cheapest one needs "
                "the new group *, and allow_new_groups is off"));
  options.groups = {.max_communicators = 0};
  EXPECT_EQ(
      MakePlan(from, to, options).status(),
      absl::ResourceExhaustedError("max_communicators is 0; the smallest sufficient value is 1"));
}

}  // namespace
}  // namespace meshift
