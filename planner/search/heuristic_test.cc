// tests/optimal_test.cc shows that the heuristic is admissible and consistent, on every case of the
// small world and together with the brute-force search.
#include "planner/search/heuristic.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/layouts.h"
#include "planner/search/successors.h"
#include "testing/conformance_cases.h"
#include "testing/owner_world.h"
#include "testing/ragged_cases.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

struct World {
  World(const char* mesh, const char* tensor, const char* from, const char* to,
        const CostOptions& options = {})
      : problem(Make(mesh, tensor, from, to)),
        model(problem, Wire(), options),
        successors(problem, model, {}),
        heuristic(problem, model, successors) {}
  static Problem Make(const char* mesh, const char* tensor, const char* from, const char* to) {
    const Sharding source = *Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), from);
    return *Problem::Create(source, *source.WithPlacements(to));
  }
  // alpha = 1000 ns, lambda = 100 ns, a byte takes 100 ns.
  static Topology Wire() {
    return *Topology::Create(
        {{"wire", 0, 10, 100}},
        {.collective_latency_ns = 1000, .copy_latency_ns = 10, .copy_bandwidth_bytes_per_us = 100});
  }
  int64_t LeastNs(const State& state) {
    return heuristic.LeastNs(successors.layouts().Decode(state));
  }

  const Problem problem;
  const CostModel model;
  Successors successors;
  Heuristic heuristic;
};

TEST(HeuristicTest, IsZeroAtTheTarget) {
  World world("a=2,b=2", "f32[8]", "S(0),R", "R,R");
  EXPECT_EQ(world.LeastNs(world.problem.target()), 0);
}

TEST(HeuristicTest, WhatARankLacksIsBroughtByACollective) {
  World world("a=4", "f32[8]", "S(0)", "R");
  EXPECT_EQ(world.LeastNs(world.problem.source()), 1000 + 2 * 100 + 6 * 4 * 100);
}

TEST(HeuristicTest, ContributionsAreMergedAndResultsSpread) {
  // Each rank receives 3/4 of the contributions to its share (2 of 8 elements), then 3 shares.
  World world("a=4", "f32[8]", "P", "R");
  EXPECT_EQ(world.LeastNs(world.problem.source()), 1000 + 2 * 100 + (3 + 3) * 8 / 4 * 4 * 100);
  World scattered("a=4", "f32[8]", "P", "S(0)");
  EXPECT_EQ(scattered.LeastNs(scattered.problem.source()), 1000 + 2 * 100 + 3 * 8 / 4 * 4 * 100);
}

TEST(HeuristicTest, LocalStepsMayFinish) {
  World world("a=4", "f32[8]", "R", "S(0)");
  EXPECT_EQ(world.LeastNs(world.problem.source()), world.model.CopyNs(2 * 4));
}

TEST(HeuristicTest, GroupsThatDoNotCoverNeedMoreCollectives) {
  DimSets single;
  single.set(0b01);
  single.set(0b10);
  World world("a=2,b=2", "f32[8]", "S(0),S(0)", "R,R", {.groups = single});
  EXPECT_EQ(world.LeastNs(world.problem.source()), 2 * 1000 + 2 * 100 + 6 * 4 * 100);
}

TEST(HeuristicTest, AcrossAreDimsThatAreReducedOrUncut) {
  World world("a=2,b=2,c=2", "f32[8,8]", "S(0),P,S(1)", "R,R,S(1)");
  EXPECT_EQ(world.heuristic.Across(world.successors.layouts().Decode(world.problem.source())),
            0b011u);
}

// Along every step out of the source of random problems.
TEST(HeuristicTest, FallsByNoMoreThanTheStepCosts) {
  int64_t steps = 0;
  std::vector<testkit::RandomPair> pairs;
  for (uint64_t seed = 0; seed < 4000; ++seed) pairs.push_back(testkit::RandomCase(seed));
  for (const testkit::ConformanceCase& c : testkit::RaggedCases(8, 2000)) {
    pairs.push_back({c.from, c.to});
  }
  for (uint64_t seed = 0; seed < 1000; ++seed) pairs.push_back(testkit::RandomOwnerCase(seed));
  for (const testkit::RandomPair& pair : pairs) {
    const auto problem = Problem::Create(pair.from, pair.to);
    if (!problem.ok()) continue;
    for (const Topology& topology : {testkit::SlowLinks(), Topology::Flat(),
                                     *Topology::Parse("nvlink=4"), *Topology::Parse("h100")}) {
      const CostModel model(*problem, topology);
      Successors successors(*problem, model, {.masks_cuts = problem->MasksTarget()});
      Heuristic heuristic(*problem, model, successors);
      const int64_t source_ns = heuristic.LeastNs(successors.layouts().Decode(problem->source()));
      successors.ForEach(problem->source(), [&](const Successor& next) {
        ++steps;
        const int64_t price = model.Measure(next.op, problem->source(), next.state).est_ns;
        EXPECT_LE(source_ns, price + heuristic.LeastNs(next))
            << pair.from.ToString() << " -> " << pair.to.PlacementsText() << " on "
            << topology.ToString() << ": " << Name(next.op) << " "
            << problem->ToSharding(next.state).PlacementsText();
      });
    }
  }
  EXPECT_GT(steps, 100'000);
}

}  // namespace
}  // namespace meshift
