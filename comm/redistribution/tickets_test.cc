// Calls of several threads are issued in the order of their tickets, the same on all ranks,
// whatever the order in which the threads arrive.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/internal/conformance/ticket_check.h"
#include "testing/internal/fake_engine.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

using Lines = std::vector<std::string>;

// One rank of two, on an engine that logs the calls.
class TicketsTest : public testing::Test {
 protected:
  absl::StatusOr<RunHandle> Call(Redistributor& redistribute, int64_t elements,
                                 std::optional<int64_t> ticket) {
    const Sharding from =
        Sharding::Parse("f32[" + std::to_string(elements) + "]", mesh_, "P").value();
    const Sharding to = from.WithPlacements("R").value();
    return redistribute({.from = from,
                         .to = to,
                         .source = TensorView::Contiguous(in_, DType::kF32, {elements}),
                         .target = TensorView::Contiguous(out_, DType::kF32, {elements}),
                         .ticket = ticket});
  }
  Redistributor Make(std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    return Redistributor::Create(mesh_, &engine_, {.timeout = timeout}).value();
  }

  const DeviceMesh mesh_ = DeviceMesh::Parse("a=2").value();
  FakeEngine engine_{0, 2};
  float in_[64] = {};
  float out_[64] = {};
};

TEST_F(TicketsTest, EarlyCallsAreHeld) {
  Redistributor redistribute = Make();
  std::vector<std::thread> threads;
  for (const int64_t ticket : {3, 1, 2}) {
    threads.emplace_back([&, ticket] { EXPECT_TRUE(Call(redistribute, ticket + 1, ticket).ok()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(Call(redistribute, 1, 0).ok());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine_.log(), (Lines{"all_reduce 1 f32 sum", "all_reduce 2 f32 sum",
                                  "all_reduce 3 f32 sum", "all_reduce 4 f32 sum"}));
}

TEST_F(TicketsTest, MissingTicketIsNamed) {
  Redistributor redistribute = Make(std::chrono::milliseconds(30));
  ASSERT_TRUE(Call(redistribute, 1, 0).ok());
  const std::string error =
      "DEADLINE_EXCEEDED: ticket 1 did not come within 0.03 s; ticket 3 waits for it";
  EXPECT_EQ(Call(redistribute, 1, 3).status().ToString(), error);
  EXPECT_EQ(engine_.aborts(), 1);
  EXPECT_EQ(Call(redistribute, 1, 1).status().ToString(), error);
}

TEST_F(TicketsTest, TheTimeOutCountsFromTheLastCall) {
  Redistributor redistribute = Make(std::chrono::milliseconds(400));
  std::thread waits([&] { EXPECT_TRUE(Call(redistribute, 1, 4).ok()); });
  for (int64_t ticket = 0; ticket < 4; ++ticket) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    EXPECT_TRUE(Call(redistribute, 1, ticket).ok());
  }
  waits.join();
}

TEST_F(TicketsTest, AbortEndsTheWaiting) {
  Redistributor redistribute = Make();
  std::thread waits([&] {
    EXPECT_EQ(Call(redistribute, 1, 1).status().ToString(),
              "ABORTED: the redistributor was aborted");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  redistribute.Abort();
  waits.join();
}

TEST_F(TicketsTest, AllCallsHaveThemOrNone) {
  Redistributor with = Make();
  ASSERT_TRUE(Call(with, 1, 0).ok());
  EXPECT_EQ(Call(with, 1, std::nullopt).status().ToString(),
            "INVALID_ARGUMENT: a call without a ticket comes after calls with tickets: either all "
            "calls of a redistributor have tickets, or none has");
  EXPECT_TRUE(Call(with, 1, 1).ok());
  Redistributor without = Make();
  ASSERT_TRUE(Call(without, 1, std::nullopt).ok());
  EXPECT_EQ(Call(without, 1, 0).status().ToString(),
            "INVALID_ARGUMENT: ticket 0 comes after calls without tickets: either all calls of a "
            "redistributor have tickets, or none has");
}

TEST_F(TicketsTest, WhatIsRefusedOrEmptySaysNothingOfTickets) {
  const Sharding from = Sharding::Parse("f32[4]", mesh_, "P").value();
  Redistributor redistribute = Make();
  EXPECT_FALSE(redistribute({.from = from, .to = from, .source = {}, .target = {}}).ok());
  EXPECT_TRUE(redistribute(std::vector<Redistribution>()).ok());
  EXPECT_EQ(Call(redistribute, 1, -1).status().ToString(),
            "INVALID_ARGUMENT: ticket -1 is negative");
  Redistributor without = Make();
  EXPECT_FALSE(Call(without, 1, -1).ok());
  EXPECT_TRUE(Call(without, 1, std::nullopt).ok());
  EXPECT_TRUE(Call(redistribute, 1, 0).ok());
  EXPECT_FALSE(Call(redistribute, 1, std::nullopt).ok());
}

TEST_F(TicketsTest, ATicketIsUsedOnce) {
  Redistributor redistribute = Make();
  ASSERT_TRUE(Call(redistribute, 1, 0).ok());
  EXPECT_EQ(Call(redistribute, 1, 0).status().ToString(),
            "INVALID_ARGUMENT: ticket 0 was used before; the next one is 1");
  // A refused call uses its ticket too.
  const Sharding from = Sharding::Parse("f32[4]", mesh_, "P").value();
  EXPECT_FALSE(
      redistribute({.from = from, .to = from, .source = {}, .target = {}, .ticket = 1}).ok());
  EXPECT_TRUE(Call(redistribute, 1, 2).ok());
}

// Runs `check` on every rank of a world of eight, all with control channels.
void OnEveryRank(const std::function<absl::Status(Engine*)>& check) {
  constexpr int kRanks = 8;
  const auto bootstraps = Bootstrap::InProcess(kRanks).value();
  LocalWorldOptions options{.num_ranks = kRanks};
  for (const auto& bootstrap : bootstraps) options.control.push_back(bootstrap->control());
  const auto world = LocalWorld::Create(options).value();
  std::vector<std::thread> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] {
      const absl::Status status = check(world->engine(r));
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(TicketsWorldTest, ThreadsComeInAnyOrder) {
  OnEveryRank([](Engine* engine) {
    return CheckTickets(engine, {.rounds = 10000 / testkit::TestFraction(), .seed = 1});
  });
}

// Calls of different redistributors are not ordered; each call is compared with its own peers'.
TEST(TicketsWorldTest, RedistributorsOnOneEngineAreApart) {
  OnEveryRank([](Engine* engine) { return CheckTwoRedistributors(engine, 500); });
}

TEST(TicketsWorldTest, AllRanksLearnWhichTicketIsMissing) { OnEveryRank(CheckMissingTicket); }

}  // namespace
}  // namespace meshift
