#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/explain.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

using Kind = Alternative::Verdict;

std::vector<Alternative> List(const char* mesh, const char* tensor, const char* from,
                              const char* to, const PlannerOptions& options, int most = 8) {
  const Sharding source = Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), from).value();
  return ListAlternatives(source, source.WithPlacements(to).value(), options, most).value();
}

std::string Labels(const Plan& plan) {
  std::string text;
  for (const Step& step : plan.steps()) text += (text.empty() ? "" : "; ") + step.Label();
  return text;
}

const Alternative* Find(const std::vector<Alternative>& all, Kind verdict,
                        const std::string& labels) {
  for (const Alternative& one : all) {
    if (one.verdict == verdict && Labels(one.plan) == labels) return &one;
  }
  return nullptr;
}

// 40 ranks on domains of 8: the flattened all-reduce, and plans without a flattened group.
TEST(AlternativesTest, SetsTheFlattenedAllReduceBesideThreeCollectives) {
  const PlannerOptions options{.topology = *Topology::Parse("nvlink=8")};
  for (const char* tensor : {"f32[16,16]", "f32[512,512]", "f32[16384,16384]"}) {
    const std::vector<Alternative> all =
        List("ddp=8,fsdp=5,tp=1", tensor, "P,P,R", "R,R,R", options);
    const Kind flattened_is =
        Labels(all[0].plan) == "all_reduce{ddp,fsdp}" ? Kind::kBest : Kind::kCostsMore;
    EXPECT_NE(Find(all, flattened_is, "all_reduce{ddp,fsdp}"), nullptr) << tensor;
    const Alternative* three = nullptr;  // a reduction in parts, over one mesh dim each
    for (const Alternative& one : all) {
      const std::string labels = Labels(one.plan);
      if (labels == "reduce_scatter{fsdp}; all_reduce{ddp}; all_gather{fsdp}" ||
          labels == "reduce_scatter{ddp}; all_reduce{fsdp}; all_gather{ddp}") {
        three = &one;
      }
    }
    ASSERT_NE(three, nullptr) << tensor;
    EXPECT_GT(three->plan.total().est_ns, all[0].plan.total().est_ns);
    EXPECT_NE(three->reason.find("more"), std::string::npos) << three->reason;
  }
}

// A reduce_scatter and an all_gather, which libraries offer, are listed beside the all_reduce at
// any size, also if messages would bring the blocks back sooner than a gather.
TEST(AlternativesTest, ScatterAndGatherStandBesideTheAllReduce) {
  const PlannerOptions options{.topology = *Topology::Parse("b200-ndr")};
  for (const char* tensor : {"f32[256]", "f32[262144]", "f32[16777216]", "f32[268435456]"}) {
    const std::vector<Alternative> all = List("a=16", tensor, "P", "R", options);
    EXPECT_EQ(Labels(all[0].plan), "all_reduce{a}") << tensor;
    const Alternative* two = Find(all, Kind::kCostsMore, "reduce_scatter{a}; all_gather{a}");
    ASSERT_NE(two, nullptr) << tensor;
    EXPECT_TRUE(Verify(two->plan).ok());
  }
  const std::vector<Alternative> small = List("a=16", "f32[256]", "P", "R", options);
  EXPECT_NE(Find(small, Kind::kCostsMore, "reduce_scatter{a}; exchange{a}"), nullptr);
}

TEST(AlternativesTest, SaysWhichRuleThePerDimPlanBreaks) {
  const std::vector<Alternative> all = List("ddp=8,fsdp=5", "f32[512,512]", "P,P", "R,R", {});
  const Alternative& per_dim = all.back();
  EXPECT_EQ(per_dim.verdict, Kind::kPerDim);
  EXPECT_EQ(Labels(per_dim.plan), "all_reduce{ddp}; all_reduce{fsdp}");
  EXPECT_NE(per_dim.reason.find("keeps no promise"), std::string::npos) << per_dim.reason;
}

// The best plan keeps to max_value; the per-dim plan has a larger value between two steps.
TEST(AlternativesTest, SaysWhichValueOnTheWayThePerDimPlanMayNotHold) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2,c=4").value();
  const Sharding from = Sharding::Parse("f32[9,24]", mesh, "R,R,S(0)").value();
  const Sharding to = Sharding::Parse("bf16[9,24]", mesh, "R,S(0),S(0)").value();
  const PlannerOptions options{.topology = *Topology::Parse("nvlink=2,rail=6"), .max_value = 288};
  const std::vector<Alternative> all = ListAlternatives(from, to, options).value();
  const Alternative& per_dim = all.back();
  ASSERT_EQ(per_dim.verdict, Kind::kPerDim);
  ASSERT_LT(per_dim.plan.total().est_ns, all[0].plan.total().est_ns);
  EXPECT_NE(per_dim.reason.find("; but the intermediate value R,R,R in bf16 takes 432 B, more than "
                                "max_value (288 B)"),
            std::string::npos)
      << per_dim.reason;
}

TEST(AlternativesTest, SaysWhatTheRuleOnValuesKeepsOut) {
  const std::vector<Alternative> all = List("a=4", "f32[8,8]", "S(0)", "S(1)", {.max_value = 0});
  EXPECT_EQ(Labels(all[0].plan), "all_to_all{a}");
  const auto beyond = std::find_if(all.begin(), all.end(), [](const Alternative& one) {
    return one.verdict == Kind::kHoldsTooMuch;
  });
  ASSERT_NE(beyond, all.end());
  EXPECT_EQ(Labels(beyond->plan), "all_gather{a}; slice{a}");
  EXPECT_NE(beyond->reason.find(
                "; but the intermediate value R in f32 takes 256 B, more than max_value (0 B)"),
            std::string::npos)
      << beyond->reason;
  // Without max_value no plan is kept out.
  for (const Alternative& one : List("a=4", "f32[8,8]", "S(0)", "S(1)", {})) {
    EXPECT_NE(one.verdict, Kind::kHoldsTooMuch);
  }
}

// If the per-dim plan is cheaper, its reason names a rule that it breaks. The test takes one pair
// of 17.
TEST(AlternativesTest, ACheaperPerDimPlanIsNeverWithoutARule) {
  const std::vector<const char*> one = {"R", "S(0)", "S(1)", "P"};
  std::vector<std::string> placements;
  for (const char* a : one) {
    for (const char* b : one) {
      for (const char* c : one) placements.push_back(std::string(a) + "," + b + "," + c);
    }
  }
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2,c=4").value();
  const PlannerOptions options{.topology = *Topology::Parse("nvlink=2,rail=6"), .max_value = 288};
  int pair = 0;
  int cheaper = 0;
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    for (const std::string& source : placements) {
      for (const std::string& target : placements) {
        if (++pair % 17 != 0) continue;
        const Sharding from = Sharding::Parse("f32[9,24]", mesh, source).value();
        const absl::StatusOr<Sharding> to =
            Sharding::Parse(std::string(dtype) + "[9,24]", mesh, target);
        if (!to.ok()) continue;
        const absl::StatusOr<std::vector<Alternative>> all =
            ListAlternatives(from, *to, options, /*most=*/0);
        if (!all.ok() || all->back().verdict != Kind::kPerDim) continue;
        const Alternative& per_dim = all->back();
        if (per_dim.plan.total().est_ns >= all->front().plan.total().est_ns) continue;
        ++cheaper;
        EXPECT_NE(per_dim.reason.find("; "), std::string::npos)
            << from.ToString() << " -> " << to->ToString() << ": " << per_dim.reason;
      }
    }
  }
  EXPECT_GT(cheaper, 10);
}

TEST(AlternativesTest, ShowsWhatThePromiseCosts) {
  const std::vector<Alternative> all = List("dp=4,tp=8", "f32[4]", "P,R", "R,R", {});
  const Alternative* free = Find(all, Kind::kBreaksPromise, "all_reduce{dp}");
  ASSERT_NE(free, nullptr);
  EXPECT_LT(free->plan.total().est_ns, all[0].plan.total().est_ns);
}

TEST(AlternativesTest, NothingToDoHasNothingBesideIt) {
  const std::vector<Alternative> all = List("a=2", "f32[4]", "R", "R", {});
  EXPECT_EQ(all[0].verdict, Kind::kBest);
  EXPECT_TRUE(all[0].plan.steps().empty());
}

// From one mesh to another: other steps at the source, or at the target.
TEST(AlternativesTest, OfTwoMeshesOtherWaysAroundTheCrossing) {
  const DeviceMesh trainer = DeviceMesh::Parse("dp=2,tp=2").value();
  const DeviceMesh server = DeviceMesh::Parse("dp=2,tp=2@2-5").value();
  const Sharding from = Sharding::Parse("f32[512,512]", trainer, "P,S(0)").value();
  const Sharding to = Sharding::Parse("f32[512,512]", server, "R,S(1)").value();
  PlannerOptions options;
  const std::vector<Alternative> all = ListAlternatives(from, to, options, 4).value();
  ASSERT_EQ(all.size(), 5);
  EXPECT_EQ(all[0].plan, MakePlan(from, to, options).value());
  EXPECT_EQ(all[0].verdict, Kind::kBest);
  std::set<std::string> steps;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(Verify(all[i].plan).ok());
    std::string text;
    for (const Step& step : all[i].plan.steps()) {
      text += std::string(Name(step.op)) + std::to_string(step.mesh);
      for (const int dim : step.mesh_dims) text += "," + std::to_string(dim);
    }
    EXPECT_TRUE(steps.insert(text).second) << text;
    ASSERT_EQ(all[i].parts.size(), all[i].plan.steps().size());
    for (size_t step = 0; step < all[i].parts.size(); ++step) {
      EXPECT_EQ(all[i].parts[step].Sum(), all[i].plan.steps()[step].est_ns) << text << step;
    }
    if (i == 0) continue;
    EXPECT_NE(all[i].reason.find("; time difference by part: "), std::string::npos)
        << all[i].reason;
    EXPECT_EQ(all[i].verdict, Kind::kCostsMore);
    EXPECT_GE(all[i].plan.total().est_ns, all[i - 1].plan.total().est_ns);
    EXPECT_NE(all[i].reason.find(" more (+"), std::string::npos) << all[i].reason;
  }
  EXPECT_EQ(ListAlternatives(from, to, options, 0).value().size(), 1);

  // A limit on memory that the cheapest plan exceeds.
  options.max_memory = LeastMemory(from, to, options).value();
  ASSERT_LT(*options.max_memory, all[0].plan.total().peak_bytes);
  const std::vector<Alternative> limited = ListAlternatives(from, to, options, 4).value();
  EXPECT_LE(limited[0].plan.total().peak_bytes, *options.max_memory);
  EXPECT_EQ(limited[1].verdict, Kind::kTakesTooMuch);
  EXPECT_EQ(limited[1].plan.total().est_ns, all[0].plan.total().est_ns);
  EXPECT_NE(limited[1].reason.find(" less ("), std::string::npos) << limited[1].reason;

  // A budget without the group of the cheapest plan.
  options = {.groups = {.allow_new_groups = false}};
  options.groups.existing_groups.emplace();
  const std::vector<Alternative> grouped = ListAlternatives(from, to, options, 4).value();
  EXPECT_TRUE(std::any_of(grouped.begin(), grouped.end(), [](const Alternative& one) {
    return one.verdict == Kind::kNeedsGroups;
  }));
}

TEST(AlternativesTest, FailsAsPlanningDoes) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const Sharding from = Sharding::Parse("f32[4]", mesh, "S(0)").value();
  const Sharding to = Sharding::Parse("f32[5]", mesh, "S(0)").value();
  EXPECT_EQ(ListAlternatives(from, to, {}).status(), MakePlan(from, to).status());
}

// A sample of the small world. The first is the best plan; the others ascend in cost and differ in
// their steps; the verifier accepts all, also their promise.
TEST(AlternativesTest, AllAreProvenAndInOrder) {
  testkit::ForEachSmallWorldCase(
      {.fraction = 997 * testkit::TestFraction()}, [](const Sharding& from, const Sharding& to) {
        const std::vector<Alternative> all = ListAlternatives(from, to, {}).value();
        ASSERT_EQ(all[0].plan, MakePlan(from, to).value());
        for (size_t i = 0; i < all.size(); ++i) {
          const Plan& plan = all[i].plan;
          const Verdict proof = Verify(plan);
          EXPECT_TRUE(proof.ok()) << from.ToString() << " -> " << to.PlacementsText() << ": "
                                  << proof.fault->message;
          if (all[i].verdict != Kind::kCostsMore) continue;
          EXPECT_EQ(plan.kept(), plan.asked());
          EXPECT_GE(plan.total().est_ns, all[i - 1].plan.total().est_ns);
          for (size_t j = 0; j < i; ++j) EXPECT_NE(Labels(plan), Labels(all[j].plan));
        }
      });
}

// Under a limit on memory, cheaper plans exceed it, and plans that "cost more" keep to it.
TEST(Alternatives, WhatTakesTooMuchMemoryIsSetApart) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=8,b=2").value();
  const Sharding from = Sharding::Parse("f32[64,48,40]", mesh, "S(2),S(0)").value();
  const Sharding to = from.WithPlacements("R,S(0)").value();
  const Plan free = MakePlan(from, to).value();
  PlannerOptions options;
  options.max_memory = LeastMemory(from, to).value();
  ASSERT_LT(*options.max_memory, free.total().peak_bytes);
  const std::vector<Alternative> all = ListAlternatives(from, to, options).value();
  EXPECT_EQ(all[0].plan, MakePlan(from, to, options).value());
  int too_much = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_TRUE(Verify(all[i].plan).ok());
    const int64_t peak = all[i].plan.total().peak_bytes;
    if (all[i].verdict == Kind::kCostsMore) {
      EXPECT_LE(peak, *options.max_memory);
      EXPECT_GE(all[i].plan.total().est_ns, all[0].plan.total().est_ns);
    } else if (all[i].verdict == Kind::kTakesTooMuch) {
      ++too_much;
      EXPECT_GT(peak, *options.max_memory);
      EXPECT_NE(all[i].reason.find("; but takes "), std::string::npos) << all[i].reason;
    }
  }
  EXPECT_GT(too_much, 0);
}

// Under a budget of groups, cheaper plans need other groups, and plans that "cost more" do not.
TEST(Alternatives, WhatNeedsOtherGroupsIsSetApart) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=4,b=2,c=2").value();
  const Sharding from = Sharding::Parse("f32[64,48]", mesh, "P,P,S(1)").value();
  const Sharding to = from.WithPlacements("R,R,S(1)").value();
  PlannerOptions options;
  options.groups = {.allow_new_groups = false,
                    .existing_groups = std::vector<MeshGroups>{{mesh, {0}}, {mesh, {1}}}};
  const std::vector<Alternative> all = ListAlternatives(from, to, options).value();
  EXPECT_EQ(all[0].plan, MakePlan(from, to, options).value());
  int needs_groups = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_TRUE(Verify(all[i].plan).ok());
    if (all[i].verdict == Kind::kNeedsGroups) {
      ++needs_groups;
      EXPECT_NE(all[i].reason.find("; but needs the new group "), std::string::npos)
          << all[i].reason;
    } else if (all[i].verdict == Kind::kCostsMore) {
      EXPECT_GE(all[i].plan.total().est_ns, all[0].plan.total().est_ns);
      for (const Step& step : all[i].plan.steps()) {
        EXPECT_TRUE(!IsCollective(step.op) || step.mesh_dims.size() != 2) << step.ToString();
      }
    }
  }
  EXPECT_GT(needs_groups, 0);
  EXPECT_EQ(Name(Kind::kNeedsGroups), "needs groups");
}

}  // namespace
}  // namespace meshift
