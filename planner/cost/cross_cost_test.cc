#include "planner/cost/cross_cost.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "meshift/device_mesh.h"
#include "meshift/topology.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

using testkit::RoundLinks;

Sharding Parse(const std::string& tensor, const std::string& mesh, const std::string& placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

Traffic Measure(const Sharding& before, const Sharding& after, const Topology& topology) {
  return MeasureCrossing(Crossing::Of(before, after, topology), before, after, topology);
}

TEST(CrossCost, OverTheLinksThatMessagesCross) {
  // Each rank of the second domain receives 400 bytes from one of the first.
  const Traffic far =
      Measure(Parse("f32[400]", "a=4", "S(0)"), Parse("f32[400]", "b=4@4-7", "S(0)"), RoundLinks());
  EXPECT_EQ(far.bytes_sent, 400);
  EXPECT_EQ(far.messages, 1);
  // Start, a hop of log2(4) and one of log2(2), a message, 400 bytes at 0.1 bytes per ns.
  EXPECT_EQ(far.est_ns, 1000 + 2 * 10 + 50 + 100 + 4000);
  // Within a domain.
  const Traffic near =
      Measure(Parse("f32[200]", "a=2", "S(0)"), Parse("f32[200]", "b=2@2-3", "S(0)"), RoundLinks());
  EXPECT_EQ(near.est_ns, 1000 + 2 * 10 + 100 + 400);
}

TEST(CrossCost, WhatStaysIsCopied) {
  // Rank 0 keeps 400 bytes and receives 400; rank 1 receives 800 in two messages.
  const Traffic traffic =
      Measure(Parse("f32[400]", "a=4", "S(0)"), Parse("f32[400]", "b=2", "S(0)"), RoundLinks());
  EXPECT_EQ(traffic.bytes_kept, 400);
  EXPECT_EQ(traffic.bytes_received, 800);
  EXPECT_EQ(traffic.messages, 2);
  EXPECT_EQ(traffic.est_ns, 1000 + 2 * 10 + 2 * 100 + 800 + (20 + 200));
}

TEST(CrossCost, PackedWhereMessagesAreNoRuns) {
  const Traffic traffic =
      Measure(Parse("f32[8,8]", "a=2", "S(0)"), Parse("f32[8,8]", "b=2@2-3", "S(1)"), RoundLinks());
  // Half of each row is sent; whole rows are received.
  EXPECT_EQ(traffic.send_pack_bytes, 128);
  EXPECT_EQ(traffic.receive_pack_bytes, 0);
  EXPECT_EQ(traffic.est_ns, 1000 + 2 * 10 + 2 * 100 + 128 + (20 + 64));
}

TEST(CrossCost, ContributionsLieSideBySideAndAreReadOnceMore) {
  // Each of two ranks receives 20 bytes of three contributions: 60, aligned to 64.
  const Traffic traffic =
      Measure(Parse("f32[10]", "a=3", "P"), Parse("f32[10]", "b=2@3-4", "S(0)"), RoundLinks());
  EXPECT_EQ(traffic.bytes_sent, 40);
  EXPECT_EQ(traffic.bytes_received, 60);
  EXPECT_EQ(traffic.messages, 3);
  EXPECT_EQ(traffic.receive_pack_bytes, 64);
  // Start, hops, three messages, and 60 bytes; rank 4 receives all of them from the other domain.
  EXPECT_EQ(traffic.est_ns, 1000 + 2 * 10 + 50 + 3 * 100 + 600 + (20 + 30));
}

TEST(CrossCost, ARelabelIsACopy) {
  const Traffic traffic = Measure(Parse("f32[400]", "a=4", "S(0)"),
                                  Parse("f32[400]", "b=2,c=2", "S(0),S(0)"), RoundLinks());
  EXPECT_EQ(traffic.sizes, std::nullopt);
  EXPECT_EQ(traffic.bytes_sent, 0);
  EXPECT_EQ(traffic.est_ns, 20 + 200);
}

}  // namespace
}  // namespace meshift
