#include "planner/search/successors.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "testing/conformance_cases.h"
#include "testing/owner_world.h"
#include "testing/ragged_cases.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

// "all_gather R,S(0)", sorted.
std::vector<std::string> Steps(const char* mesh, const char* tensor, const char* from,
                               const char* to, const TransitionRules& rules = {},
                               const CostOptions& options = {}) {
  const Sharding source = *Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), from);
  const Problem problem = *Problem::Create(source, *source.WithPlacements(to));
  const CostModel model(problem, Topology::Flat(), options);
  Successors successors(problem, model, rules);
  std::vector<std::string> steps;
  successors.ForEach(problem.source(), [&](const Successor& next) {
    steps.push_back(std::string(Name(next.op)) + " " +
                    problem.ToSharding(next.state).PlacementsText());
    EXPECT_EQ(next.dims, StepDims(problem, next.op, problem.source(), next.state)) << steps.back();
    EXPECT_EQ(next.product.longest, problem.MaxItems(next.state)) << steps.back();
    EXPECT_EQ(next.reducible, successors.layouts().Decode(next.state).reducible) << steps.back();
  });
  std::sort(steps.begin(), steps.end());
  EXPECT_EQ(std::set<std::string>(steps.begin(), steps.end()).size(), steps.size());
  return steps;
}

using List = std::vector<std::string>;

TEST(SuccessorsTest, WhatIsCutIsGatheredOrRegrouped) {
  EXPECT_EQ(Steps("a=2", "f32[8,8]", "S(0)", "R"),
            (List{"all_gather R", "all_to_all S(1)", "exchange R"}));
}

TEST(SuccessorsTest, WhatIsReplicatedIsSliced) {
  EXPECT_EQ(Steps("a=2", "f32[8,8]", "R", "S(0)"), (List{"slice S(0)", "slice S(1)"}));
}

// A step that changes only cuts is a slice exactly if each rank has its box already. Compared with
// the boxes of all ranks.
TEST(SuccessorsTest, WhereNoRankReceivesTheStepIsASlice) {
  std::vector<testkit::RandomPair> pairs;
  for (uint64_t seed = 0; seed < 1000; ++seed) pairs.push_back(testkit::RandomCase(seed));
  for (const testkit::ConformanceCase& c : testkit::RaggedCases(8, 500)) {
    pairs.push_back({c.from, c.to});
  }
  for (uint64_t seed = 0; seed < 1000; ++seed) pairs.push_back(testkit::RandomOwnerCase(seed));
  int64_t slices = 0;
  int64_t relabels = 0;
  int64_t moves = 0;
  for (const testkit::RandomPair& pair : pairs) {
    const auto problem = Problem::Create(pair.from, pair.to);
    if (!problem.ok()) continue;
    const CostModel model(*problem, Topology::Flat());
    Successors successors(*problem, model, {});
    const DeviceMesh& mesh = problem->mesh();
    successors.ForEach(problem->source(), [&](const Successor& next) {
      if (IsReduction(next.op) || next.op == StepOp::kMask || next.op == StepOp::kCast) return;
      const Sharding after = problem->ToSharding(next.state);
      bool receives = false;
      for (int64_t p = 0; p < mesh.NumRanks() && !receives; ++p) {
        const Coordinate at = mesh.CoordinateAt(p);
        const Box has = pair.from.BoxAt(at);
        const Box wants = after.BoxAt(at);
        receives = !wants.IsEmpty() && (has.IsEmpty() || !Contains(has, wants));
      }
      EXPECT_EQ(next.op == StepOp::kSlice, !receives)
          << pair.from.ToString() << " -> " << pair.to.PlacementsText() << ": " << Name(next.op)
          << " " << after.PlacementsText();
      if (receives) {
        ++moves;
      } else {
        ++(next.product.from == 0 ? slices : relabels);
      }
    });
  }
  EXPECT_GT(moves, 1000);
  EXPECT_GT(slices, 1000);
  EXPECT_GT(relabels, 1000);
}

TEST(SuccessorsTest, WhatIsPartialIsReduced) {
  EXPECT_EQ(Steps("a=2", "f32[8,8]", "P", "R"), (List{"all_reduce R", "reduce_scatter S(0)"}));
  EXPECT_EQ(Steps("a=2", "f32[8,8]", "P", "R", {.scatters = false}), (List{"all_reduce R"}));
}

TEST(SuccessorsTest, NoTwoGroupsReduceTheSame) {
  for (const std::string& step : Steps("a=2,b=2", "f32[8]", "P,R", "R,R")) {
    EXPECT_TRUE(step.starts_with("slice") || step.starts_with("mask")) << step;
  }
  const List exact = Steps("a=2,b=2", "f32[8]", "P,R", "R,R", {.exact = true});
  EXPECT_NE(std::find(exact.begin(), exact.end(), "all_reduce R,R"), exact.end());
}

TEST(SuccessorsTest, CutsOfEqualSizesArePermuted) {
  const List steps = Steps("a=2,b=2", "f32[8,8]", "S(0),R", "R,S(0)");
  EXPECT_NE(std::find(steps.begin(), steps.end(), "permute R,S(0)"), steps.end());
  EXPECT_NE(std::find(steps.begin(), steps.end(), "exchange R,S(0)"), steps.end());
  const List unlike = Steps("a=2,b=3", "f32[12,12]", "S(0),R", "R,S(0)");
  EXPECT_EQ(std::find(unlike.begin(), unlike.end(), "permute R,S(0)"), unlike.end());
}

TEST(SuccessorsTest, MasksLeadTowardsAPartialTarget) {
  const List steps = Steps("a=2", "f32[8,8]", "R", "P");
  EXPECT_NE(std::find(steps.begin(), steps.end(), "mask P"), steps.end());
  const List cut = Steps("a=2", "f32[8,8]", "S(0)", "P");
  EXPECT_NE(std::find(cut.begin(), cut.end(), "mask P"), cut.end());
}

TEST(SuccessorsTest, OnlyGroupsThatAreAllowed) {
  DimSets single;
  single.set(0b01);
  single.set(0b10);
  for (const std::string& step :
       Steps("a=2,b=2", "f32[8,8]", "S(0),S(0)", "R,R", {}, {.groups = single})) {
    EXPECT_NE(step, "all_gather R,R");
  }
}

TEST(SuccessorsTest, NoValueThatMayNotBeHeld) {
  for (const std::string& step : Steps("a=2,b=2", "f32[4096,4096]", "S(0),S(1)", "S(1),S(0)")) {
    EXPECT_EQ(step.find("R"), std::string::npos) << step;
  }
}

// A step that moves less than the limit is never left out.
TEST(SuccessorsTest, ALimitLeavesOutOnlyWhatMovesMore) {
  const Sharding source =
      *Sharding::Parse("f32[7,12]", *DeviceMesh::Parse("a=2,b=3,c=2"), "S(0),S(1),R");
  const Problem problem = *Problem::Create(source, *source.WithPlacements("S(1),R,S(0)"));
  const CostModel model(problem, Topology::Flat());
  Successors successors(problem, model, {});
  const DecodedState view = successors.layouts().Decode(problem.source());
  for (const int64_t most : {0, 5, 20}) {
    std::set<std::pair<StepOp, State>> kept;
    successors.ForEach(view, {.most_items = most}, [&](const Successor& next) {
      kept.insert({next.op, next.state});
    });
    successors.ForEach(view, {}, [&](const Successor& next) {
      if (successors.layouts().bounds().MovedAndMissing(next.product) > most) return;
      EXPECT_TRUE(kept.contains({next.op, next.state}));
    });
  }
}

TEST(SuccessorsTest, FinishedStatesNeedNoCollective) {
  const Sharding source = *Sharding::Parse("bf16[8,8]", *DeviceMesh::Parse("a=2,b=2"), "R,R");
  const Sharding target = *(*source.WithPlacements("S(0),R")).WithDType(DType::kF32);
  const Problem problem = *Problem::Create(source, target);
  const CostModel model(problem, Topology::Flat());
  Successors successors(problem, model, {});
  EXPECT_TRUE(successors.IsFinished(problem.target()));
  EXPECT_TRUE(successors.IsFinished(problem.source()));
  State cut = problem.source();
  cut.SetShard(1, 0, 0);
  EXPECT_FALSE(successors.IsFinished(cut));
}

// All is on a=0, whatever cut says so.
TEST(SuccessorsTest, EqualBoxesAreFinished) {
  const Sharding source =
      *Sharding::Parse("f32[8,4]", *DeviceMesh::Parse("a=2,b=2"), "S(0){8,0},S(0)");
  const Problem problem = *Problem::Create(source, *source.WithPlacements("S(1){4,0},S(0)"));
  const CostModel model(problem, Topology::Flat());
  Successors successors(problem, model, {});
  EXPECT_TRUE(successors.IsFinished(problem.source()));
  State uncut = problem.source();
  uncut.SetReplicate(1);
  EXPECT_TRUE(successors.IsFinished(uncut));
  State cut = problem.source();
  cut.SetShard(1, 2, 0);  // tensor dim 1: the owner's dim of size 1 is in front
  EXPECT_FALSE(successors.IsFinished(cut));
}

}  // namespace
}  // namespace meshift
