#include "cli/model_traffic.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "cli/model_plan.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift::cli {
namespace {

constexpr int64_t kKiB = 1024;

// The traffic of one parameter.
ModelTraffic TrafficOf(const char* mesh, const char* tensor, const char* from, const char* to,
                       const char* topology, PlannerOptions options = {}) {
  const Sharding source = Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), from).value();
  options.topology = Topology::Parse(topology).value();
  Plan plan = MakePlan(source, source.WithPlacements(to).value(), options).value();
  EXPECT_EQ(plan.steps().size(), 1) << plan.steps().size();
  ModelPlan model;
  model.rows.push_back({1, "w", std::move(plan), from, to});
  return TrafficOf(model);
}

// A ring through 8 members of each domain leaves each domain once: each member sends an eighth
// across the network and the rest inside the domain.
TEST(ModelTraffic, ARingLeavesEachDomainOnce) {
  const ModelTraffic traffic =
      TrafficOf("a=16", "f32[16777216]", "S(0)", "R", "h100");  // 4 MiB a block
  const int64_t sent = 15 * 4096 * kKiB;
  EXPECT_EQ(traffic.total, 16 * sent);
  ASSERT_EQ(traffic.levels.size(), 2);
  EXPECT_EQ(traffic.levels[1].total, 2 * sent);
  EXPECT_EQ(traffic.levels[1].busiest.bytes, sent / 8);
  EXPECT_EQ(traffic.levels[0].total, 14 * sent);
  EXPECT_EQ(traffic.levels[0].busiest.bytes, sent - sent / 8);
}

// 8 x 5 ranks: groups over ddp have one or two members in each of five domains.
TEST(ModelTraffic, ARingThroughJaggedGroupsLeavesEachDomainOnce) {
  const ModelTraffic traffic =
      TrafficOf("ddp=8,fsdp=5", "f32[32768,5120]", "S(0),S(1)", "R,S(1)", "h100");
  const int64_t sent = 7 * 16384 * kKiB;
  EXPECT_EQ(traffic.levels[1].total, 5 * 5 * sent);
  EXPECT_EQ(traffic.levels[0].total, 5 * 3 * sent);
  EXPECT_EQ(traffic.levels[1].busiest.bytes, sent);  // alone in its domain
}

TEST(ModelTraffic, OnOneDomainAllIsInside) {
  const ModelTraffic traffic = TrafficOf("a=8", "f32[8388608]", "S(0)", "R", "h100");
  EXPECT_EQ(traffic.levels[0].total, traffic.total);
  EXPECT_EQ(traffic.levels[1].total, 0);
}

// 1 KiB goes along a tree: 7 edges in each domain and one between them, up and down.
TEST(ModelTraffic, ATreePassesEachEdgeTwice) {
  const ModelTraffic traffic = TrafficOf("a=16", "f32[256]", "P", "R", "h100");
  EXPECT_EQ(traffic.levels[0].total, 2 * 7 * 2 * kKiB);
  EXPECT_EQ(traffic.levels[1].total, 1 * 2 * kKiB);
  EXPECT_EQ(traffic.total, 15 * 2 * kKiB);
}

// Each rank sends the tensor to the switch once; the two domains exchange their sums.
TEST(ModelTraffic, SwitchesTakeTheTensorOnceFromEach) {
  const ModelTraffic traffic = TrafficOf("a=16", "f32[268435456]", "P", "R", "h100");
  const int64_t tensor = 1024 * kKiB * kKiB;
  EXPECT_EQ(traffic.levels[0].total, 16 * tensor);
  EXPECT_EQ(traffic.levels[1].total, 2 * tensor);
  EXPECT_EQ(traffic.total, 30 * tensor);  // as plans count bytes
}

// 8 of the 15 other ranks are in the other domain.
TEST(ModelTraffic, MessagesCountForTheLevelThatTheyCross) {
  const ModelTraffic traffic = TrafficOf("a=16", "f32[4096,4096]", "S(0)", "S(1)", "h100");
  const int64_t message = 256 * 256 * 4;
  EXPECT_EQ(traffic.levels[0].total, 16 * 7 * message);
  EXPECT_EQ(traffic.levels[1].total, 16 * 8 * message);
}

// With ordered sums, contributions go to the rank that adds them, and results around a ring.
TEST(ModelTraffic, ReductionsInOrderSendMessages) {
  const ModelTraffic traffic = TrafficOf("a=16", "f32[4194304]", "P", "R", "h100",
                                         {.reproducibility = Reproducibility::kOrdered});
  const int64_t part = 1024 * kKiB;
  EXPECT_EQ(traffic.levels[1].total, 16 * 8 * part + 2 * 15 * part);
  EXPECT_EQ(traffic.levels[0].total + traffic.levels[1].total, traffic.total);
}

}  // namespace
}  // namespace meshift::cli
