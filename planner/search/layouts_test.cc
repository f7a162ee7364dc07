#include "planner/search/layouts.h"

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

namespace meshift {
namespace {

struct World {
  World(const char* mesh, const char* tensor, const char* from, const char* to)
      : problem(Make(mesh, tensor, from, to)),
        model(problem, Topology::Flat()),
        layouts(problem, model) {}
  static Problem Make(const char* mesh, const char* tensor, const char* from, const char* to) {
    const Sharding source = *Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), from);
    return *Problem::Create(source, *source.WithPlacements(to));
  }
  // States of all layouts, each reached from the source.
  std::vector<State> All(int64_t most_items = INT64_MAX) {
    const DecodedState view = layouts.Decode(problem.source());
    layouts.bounds().Start(view.lists);
    std::vector<State> states;
    layouts.ForEachExtension({}, view.cut | view.replicated, most_items,
                             [&](const Lists&, DimMask, const Layouts::Product& product) {
                               states.push_back(State::FromCode(product.code, 0));
                             });
    return states;
  }

  const Problem problem;
  const CostModel model;
  Layouts layouts;
};

TEST(LayoutsTest, LookTakesAStateApartAndStateOfPutsItTogether) {
  World world("a=2,b=2,c=2,d=2", "f32[8,8]", "S(1)[1],P,R,S(1)[0]", "R,R,R,R");
  const State& source = world.problem.source();
  const DecodedState view = world.layouts.Decode(source);
  EXPECT_EQ(view.cut, 0b1001u);
  EXPECT_EQ(view.partial, 0b0010u);
  EXPECT_EQ(view.reducible, 0b0010u);
  EXPECT_EQ(view.replicated, 0b0100u);
  EXPECT_EQ(world.layouts.StateOf(view.partial_code, view.lists, 0), source);
}

// k of n mesh dims have n!/(n-k)! orders, which divide among l tensor dims in C(k+l-1, l-1) ways.
TEST(LayoutsTest, ExtensionsAreAllLayoutsOnce) {
  World world("a=2,b=2,c=2", "f32[8,8]", "S(0),S(1),R", "R,R,R");
  const std::vector<State> states = world.All();
  EXPECT_EQ(states.size(), 1u + 3 * 2 + 6 * 3 + 6 * 4);
  EXPECT_EQ(std::set<State>(states.begin(), states.end()).size(), states.size());
}

TEST(LayoutsTest, AScalarHasOneLayout) {
  World world("a=2,b=2", "f32[]", "P,R", "R,R");
  const DecodedState view = world.layouts.Decode(world.problem.source());
  world.layouts.bounds().Start(view.lists);
  int layouts = 0;
  world.layouts.ForEachExtension(
      {}, 0b11, INT64_MAX, [&](const Lists&, DimMask, const Layouts::Product&) { ++layouts; });
  EXPECT_EQ(layouts, 1);
}

// A layout is left out only if some rank would receive and still need more items than the limit.
TEST(LayoutsTest, OnlyWhatMovesTooMuchIsLeftOut) {
  for (const char* tensor : {"f32[8,12]", "f32[7,5]", "f32[3,64]"}) {
    World world("a=2,b=3,c=2", tensor, "S(0),S(1),R", "S(1),R,S(0)");
    for (const int64_t most : {0, 1, 3, 10, 40, 1000}) {
      const std::vector<State> kept = world.All(most);
      const std::set<State> states(kept.begin(), kept.end());
      for (const State& state : world.All()) {
        const StepBounds::Product& product =
            world.layouts.bounds().Compare(world.layouts.Decode(state).lists);
        if (world.layouts.bounds().MovedAndMissing(product) <= most) {
          EXPECT_TRUE(states.contains(state)) << tensor << " " << most;
        }
      }
    }
  }
}

TEST(LayoutsTest, WhatTheBaseCutsIsNotCountedAsWhole) {
  World world("a=2,b=2,c=2", "f32[64,64]", "S(1),S(1),R", "S(1),S(1),S(0)");
  Layouts& layouts = world.layouts;
  const DecodedState view = layouts.Decode(world.problem.source());
  layouts.bounds().Start(view.lists);
  bool found = false;
  layouts.ForEachExtension(view.lists, view.replicated, /*most_items=*/0,
                           [&](const Lists& lists, DimMask, const Layouts::Product&) {
                             found |= lists == layouts.target().lists;
                           });
  EXPECT_TRUE(found);  // a slice: no item is moved, and none is missing
}

// Compared with the boxes of all ranks, for each two layouts.
TEST(LayoutsTest, ContainsIfEachRanksBoxIs) {
  const struct {
    const char *mesh, *tensor, *from, *to;
    bool relabels;  // some slice does more than add cuts
  } worlds[] = {
      {"a=2,b=2", "f32[1,1]", "S(0),R", "R,S(1)", false},
      {"a=2,b=3,c=2", "f32[2,3]", "S(0),S(1),R", "S(1),R,S(0)", true},
      {"a=2,b=2,c=2", "f32[1,8]", "S(0),S(1),R", "R,R,R", true},
      {"a=3,b=2", "f32[5,4]", "S(0),S(1)", "R,R", false},
      {"a=3,b=2", "f32[0,4]", "S(0),S(1)", "S(1),R", true},
      {"a=2,b=2,c=2", "f32[8,4]", "S(0){8,0},S(0),R", "S(1){4,0},S(0),R", false},
      {"a=2,b=2,c=2", "f32[8,4]", "S(0){8,0},S(0),R", "S(1){0,4},S(0),R", false},
      {"a=3,b=2,c=2", "f32[6,4]", "S(0){0,6,0},S(0),R", "S(0){0,0,6},S(1){3,1},R", false},
      {"a=2,b=2,c=2", "f32[5]", "R,S(0),R", "S(0){1,4},S(0),R", true},
      {"a=3,b=2,c=2", "f32[6]", "R,S(0){4,2},R", "S(0){1,1,4},S(0),R", true},
      {"a=3,b=3", "f32[7,2]", "S(0){0,3,4},R", "R,S(0){1,6,0}", false},
  };
  for (const auto& [mesh, tensor, from, to, any_relabels] : worlds) {
    World world(mesh, tensor, from, to);
    Layouts& layouts = world.layouts;
    struct Known {
      Lists lists;
      std::vector<Box> boxes;
    };
    std::vector<Known> all;
    for (const State& state : world.All()) {
      const Sharding sharding = world.problem.ToSharding(state);
      Known& known = all.emplace_back(Known{layouts.Decode(state).lists, {}});
      for (int64_t p = 0; p < sharding.mesh().NumRanks(); ++p) {
        known.boxes.push_back(sharding.BoxAt(sharding.mesh().CoordinateAt(p)));
      }
    }
    int64_t relabels = 0;
    for (const Known& inner : all) {
      std::set<Lists> right;
      for (const Known& outer : all) {
        const bool contains =
            std::equal(outer.boxes.begin(), outer.boxes.end(), inner.boxes.begin(),
                       [](const Box& a, const Box& b) { return Contains(a, b); });
        EXPECT_EQ(layouts.Contains(outer.lists, inner.lists), contains) << tensor << " " << from;
        if (!contains) continue;
        right.insert(outer.lists);
        if (layouts.Between(outer.lists, inner.lists).from == 0) continue;
        ++relabels;
        EXPECT_TRUE(layouts.MayRelabel(outer.lists) && layouts.MayRelabel(inner.lists));
      }
      if (NumElements(world.problem.to().shape()) == 0) continue;
      std::set<Lists> found;
      layouts.ForEachContaining(
          inner.lists, (DimMask{1} << world.problem.num_dims()) - 1,
          [&](const Lists& lists) { EXPECT_TRUE(found.insert(lists).second); });
      EXPECT_EQ(found, right) << tensor << " " << from;
    }
    EXPECT_EQ(relabels > 0, any_relabels) << tensor << " " << from;
  }
}

TEST(LayoutsTest, ChangesAreBehindWhatListsBeginWithTogether) {
  World world("a=2,b=2,c=2", "f32[8,8]", "S(0),S(0),S(1)", "S(0),S(1),R");
  const DecodedState source = world.layouts.Decode(world.problem.source());
  const Layouts::Changes changes =
      world.layouts.Between(source.lists, world.layouts.target().lists);
  EXPECT_EQ(changes.from, 0b110u);
  EXPECT_EQ(changes.to, 0b010u);
}

TEST(LayoutsTest, PermutationsTradePlacesOfEqualSizes) {
  World world("a=2,b=2,c=3", "f32[12,12]", "S(0),S(1),R", "S(1),S(0),R");
  Layouts& layouts = world.layouts;
  const DecodedState source = layouts.Decode(world.problem.source());
  EXPECT_TRUE(layouts.IsPermutation(source.lists, layouts.target().lists));
  State other = world.problem.source();
  other.SetReplicate(1);
  other.SetShard(2, 1, 0);
  EXPECT_FALSE(layouts.IsPermutation(source.lists, layouts.Decode(other).lists));
}

TEST(LayoutsTest, CutsGoWhereTheTargetHasThemAsFarAsThatGoes) {
  World world("a=2,b=2,c=2", "f32[8,8]", "R,R,R", "S(1),R,S(1)");
  Layouts& layouts = world.layouts;
  const Lists lists = layouts.CutTowardsTarget({}, 0b111, layouts.outermost());
  State expected;
  expected.SetShard(0, 1, 0);
  expected.SetShard(2, 1, 1);
  expected.SetShard(1, 0, 0);
  EXPECT_EQ(layouts.StateOf(0, lists, 0), expected);
}

TEST(LayoutsTest, PrefixesAreWhatGathersLeave) {
  World world("a=2,b=2,c=2", "f32[8,8]", "S(0),S(0),S(1)", "R,R,R");
  const DecodedState source = world.layouts.Decode(world.problem.source());
  std::vector<DimMask> dims;
  world.layouts.ForEachPrefix(
      source.lists, [&](const Lists& kept) { dims.push_back(world.layouts.DimsOf(kept)); });
  std::sort(dims.begin(), dims.end());
  EXPECT_EQ(dims, (std::vector<DimMask>{0b000, 0b001, 0b011, 0b100, 0b101, 0b111}));
}

}  // namespace
}  // namespace meshift
