#include "testing/fake_gpu/launch_order.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace meshift::fake {
namespace {

using ::testing::HasSubstr;

OrderToken Collective(uint64_t comm, uint64_t number, std::vector<std::string> devices) {
  return {.comm = comm, .src = -1, .dst = -1, .number = number, .devices = std::move(devices)};
}

OrderToken Transfer(int src, int dst, std::vector<std::string> devices) {
  return {.comm = 9, .src = src, .dst = dst, .number = 0, .devices = std::move(devices)};
}

TEST(LaunchOrderTest, OneOrderIsFine) {
  LaunchOrder order;
  const std::vector<std::string> both = {"a", "b"};
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(order.Launch("a", {Collective(1, i, both)}), "");
    EXPECT_EQ(order.Launch("a", {Collective(2, i, both)}), "");
  }
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(order.Launch("b", {Collective(1, i, both)}), "");
    EXPECT_EQ(order.Launch("b", {Collective(2, i, both)}), "");
  }
}

TEST(LaunchOrderTest, TwoOrdersAreNot) {
  LaunchOrder order;
  const std::vector<std::string> both = {"a", "b"};
  EXPECT_EQ(order.Launch("a", {Collective(1, 0, both)}), "");
  EXPECT_THAT(order.Launch("b", {Collective(2, 0, both)}), HasSubstr("different orders"));
}

TEST(LaunchOrderTest, ThreeCommunicatorsInACircle) {
  LaunchOrder order;
  EXPECT_EQ(order.Launch("a", {Collective(1, 0, {"a", "b"})}), "");
  EXPECT_EQ(order.Launch("b", {Collective(2, 0, {"b", "c"})}), "");
  EXPECT_THAT(order.Launch("c", {Collective(3, 0, {"a", "c"})}),
              HasSubstr("collective 0 of communicator 2"));
}

TEST(LaunchOrderTest, GroupedMessagesMeet) {
  LaunchOrder order;
  const std::vector<std::string> both = {"a", "b"};
  EXPECT_EQ(order.Launch("a", {Transfer(0, 1, both), Transfer(1, 0, both)}), "");
  EXPECT_EQ(order.Launch("b", {Transfer(1, 0, both), Transfer(0, 1, both)}), "");
  EXPECT_EQ(order.Launch("a", {Collective(1, 0, both)}), "");
}

TEST(LaunchOrderTest, UngroupedMessagesDoNot) {
  LaunchOrder order;
  const std::vector<std::string> both = {"a", "b"};
  EXPECT_EQ(order.Launch("a", {Transfer(0, 1, both)}), "");
  EXPECT_EQ(order.Launch("a", {Transfer(1, 0, both)}), "");
  EXPECT_NE(order.Launch("b", {Transfer(1, 0, both)}), "");
}

TEST(LaunchOrderTest, AnAbortFreesTheDevice) {
  LaunchOrder order;
  const std::vector<std::string> both = {"a", "b"};
  EXPECT_EQ(order.Launch("a", {Collective(1, 0, both)}), "");
  order.Forget("a", 1);
  EXPECT_EQ(order.Launch("b", {Collective(2, 0, both)}), "");
  EXPECT_EQ(order.Launch("a", {Collective(2, 0, both)}), "");
}

TEST(LaunchOrderTest, WhatIsReportedBeforeAnAbortIsReportedAfterIt) {
  LaunchOrder order;
  const std::vector<std::string> both = {"a", "b"};
  for (uint64_t comm = 1; comm < 7; comm += 2) {
    EXPECT_EQ(order.Launch("a", {Collective(comm, 0, both)}), "");
    EXPECT_NE(order.Launch("b", {Collective(comm + 1, 0, both)}), "");
    EXPECT_EQ(order.Launch("b", {Collective(comm, 0, both)}), "");  // already reported
    for (const char* device : {"a", "b"}) {
      order.Forget(device, comm);
      order.Forget(device, comm + 1);
    }
  }
}

}  // namespace
}  // namespace meshift::fake
