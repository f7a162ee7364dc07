#include "planner/search/link_bound.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/layouts.h"

namespace meshift {
namespace {

Problem MakeProblem(const char* mesh, const char* tensor, const char* from, const char* to) {
  const Sharding source = *Sharding::Parse(tensor, *DeviceMesh::Parse(mesh), from);
  return *Problem::Create(source, *source.WithPlacements(to));
}

Topology TwoLevels() {
  return *Topology::Create({{"near", 4, 1000, 0}, {"far", 0, 10, 0}}, TopologyConstants{});
}

int64_t LeastNs(const Problem& problem, const Topology& topology) {
  const CostModel model(problem, topology);
  Layouts layouts(problem, model);
  EXPECT_TRUE(LinkBound::Applies(problem, model, layouts));
  return LinkBound(problem, model, layouts).LeastNs(problem.source());
}

// A domain of four ranks holds half of 4,000 bytes, and needs all of them. 2,000 bytes over four
// links of 10 bytes a microsecond take 50 us. Three of the seven messages to a rank may come from
// its own domain, so that only four sevenths of the time are certain.
TEST(LinkBoundTest, WhatADomainLacksComesOverItsLinks) {
  const Problem problem = MakeProblem("a=2,b=4", "f32[1000]", "S(0),R", "R,R");
  EXPECT_EQ(LeastNs(problem, TwoLevels()), 28'571);
}

TEST(LinkBoundTest, WhatADomainHasNeedNotCome) {
  const Problem problem = MakeProblem("a=2,b=4", "f32[1000]", "R,S(0)", "R,R");
  EXPECT_EQ(LeastNs(problem, TwoLevels()), 0);
}

TEST(LinkBoundTest, KnowsNothingWhereAllIsOneDomain) {
  const Problem problem = MakeProblem("a=2,b=2", "f32[1000]", "S(0),R", "R,R");
  const CostModel flat(problem, Topology::Flat());
  const CostModel one(problem, TwoLevels());
  Layouts layouts(problem, flat);
  EXPECT_FALSE(LinkBound::Applies(problem, flat, layouts));
  EXPECT_FALSE(LinkBound::Applies(problem, one, layouts));
}

}  // namespace
}  // namespace meshift
