// Every failure of the in-process engine ends with a status that names it, on every member, and
// never in a hang.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;

constexpr Reduction kSum = {ReduceOp::kSum, 1};

// A world, with a stream and eight floats per rank.
class FailureTest : public testing::Test {
 protected:
  void Make(int num_ranks, int num_workers = 0,
            std::chrono::nanoseconds timeout = std::chrono::seconds(30)) {
    LocalWorldOptions options;
    options.num_ranks = num_ranks;
    options.num_workers = num_workers;
    options.timeout = timeout;
    auto world = LocalWorld::Create(options);
    ASSERT_TRUE(world.ok());
    streams_.clear();
    world_ = *std::move(world);
    data_.assign(num_ranks, std::vector<float>(64));
    for (int r = 0; r < num_ranks; ++r) streams_.push_back(NewStream(r));
  }
  std::unique_ptr<Stream> NewStream(int rank) { return *engine(rank).CreateStream(); }
  Engine& engine(int rank) { return *world_->engine(rank); }
  Communicator& world(int rank) { return *engine(rank).world(); }
  Stream& stream(int rank) { return *streams_[rank]; }
  float* data(int rank) { return data_[rank].data(); }
  absl::Status AllReduce(int rank, int64_t count = 8, const Reduction& reduction = kSum,
                         DType dtype = DType::kF32) {
    return world(rank).AllReduce(data(rank), data(rank), count, dtype, reduction, stream(rank));
  }
  absl::Status Wait(int rank) { return engine(rank).Synchronize(stream(rank)); }

  std::unique_ptr<LocalWorld> world_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::vector<float>> data_;
};

// Rank 0 calls all_reduce of 8 floats; rank 1 makes another call.
struct Mismatch {
  std::string name;
  std::function<absl::Status(Communicator&, float*, Stream&)> call;
  std::string made;
};

TEST_F(FailureTest, CallsThatDoNotMatchEndTheGroup) {
  const std::vector<Mismatch> mismatches = {
      {"op",
       [](Communicator& c, float* x, Stream& s) { return c.Broadcast(x, 8, DType::kF32, 1, s); },
       "broadcast(root 1, 8 x f32)"},
      {"count",
       [](Communicator& c, float* x, Stream& s) {
         return c.AllReduce(x, x, 9, DType::kF32, kSum, s);
       },
       "all_reduce(sum, 9 x f32)"},
      {"dtype",
       [](Communicator& c, float* x, Stream& s) {
         return c.AllReduce(x, x, 8, DType::kI32, kSum, s);
       },
       "all_reduce(sum, 8 x i32)"},
      {"reduction",
       [](Communicator& c, float* x, Stream& s) {
         return c.AllReduce(x, x, 8, DType::kF32, {ReduceOp::kAvg, 3}, s);
       },
       "all_reduce(avg, by 3, 8 x f32)"},
      {"barrier", [](Communicator& c, float*, Stream& s) { return c.Barrier(s); }, "barrier"},
      {"send_recv",
       [](Communicator& c, float*, Stream& s) { return c.SendRecv({}, {}, DType::kF32, s); },
       "send_recv(f32)"},
  };
  for (const int workers : {0, 2}) {
    for (const Mismatch& mismatch : mismatches) {
      SCOPED_TRACE(mismatch.name);
      Make(3, workers);
      const std::string text = "call 0 of group 0-2: rank 0 made all_reduce(sum, 8 x f32), and " +
                               ("rank 1 made " + mismatch.made);
      EXPECT_TRUE(AllReduce(0).ok());
      EXPECT_EQ(Message(mismatch.call(world(1), data(1), stream(1))), text);
      EXPECT_EQ(Message(AllReduce(2)), text);
      for (int r = 0; r < 3; ++r) {
        EXPECT_EQ(Wait(r).code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_EQ(Message(Wait(r)), text);
        EXPECT_EQ(Message(world(r).Health()), text);
        EXPECT_EQ(Message(world(r).Barrier(stream(r))), text);
      }
    }
  }
}

TEST_F(FailureTest, RootsThatDoNotMatchEndTheGroup) {
  Make(2);
  EXPECT_TRUE(world(0).Broadcast(data(0), 4, DType::kF32, 0, stream(0)).ok());
  EXPECT_EQ(Message(world(1).Broadcast(data(1), 4, DType::kF32, 1, stream(1))),
            "call 0 of group 0-1: rank 0 made broadcast(root 0, 4 x f32), and rank 1 made "
            "broadcast(root 1, 4 x f32)");
  EXPECT_FALSE(Wait(0).ok());
}

TEST_F(FailureTest, MessagesThatDoNotPairEndTheGroup) {
  struct Case {
    std::vector<PeerMessage> sends;  // of rank 0
    std::vector<PeerMessage> recvs;  // of rank 1
    std::string text;
  };
  float x[8] = {};
  const std::vector<Case> cases = {
      {{{1, x, 4}}, {{0, x, 3}}, "rank 0 sends 4 elements to rank 1, which expects 3 elements"},
      {{{1, x, 4}}, {}, "rank 0 sends 4 elements to rank 1, which expects nothing"},
      {{}, {{0, x, 3}}, "rank 0 sends nothing to rank 1, which expects 3 elements"},
      {{{1, x, 4}}, {{2, x, 4}}, "rank 0 sends 4 elements to rank 1, which expects nothing"},
      {{{1, x, 1}, {1, x, 1}}, {{0, x, 1}}, "rank 0 sends more than one message to rank 1"},
      {{{1, x, 1}}, {{0, x, 1}, {0, x, 1}}, "rank 1 expects more than one message from rank 0"},
  };
  for (const Case& c : cases) {
    Make(3);
    EXPECT_TRUE(world(0).SendRecv(c.sends, {}, DType::kF32, stream(0)).ok());
    EXPECT_TRUE(world(1).SendRecv({}, c.recvs, DType::kF32, stream(1)).ok());
    const absl::Status status = world(2).SendRecv({}, {}, DType::kF32, stream(2));
    EXPECT_EQ(Message(status).rfind("call 0 of group 0-2, send_recv(f32): " + c.text, 0), 0U)
        << status;
    for (int r = 0; r < 3; ++r) EXPECT_EQ(Wait(r), status);
  }
}

TEST_F(FailureTest, BadArgumentsAreRefusedAndEndTheGroup) {
  const auto expect = [&](const std::string& text, auto call) {
    Make(2);
    EXPECT_TRUE(AllReduce(0).ok());
    const absl::Status status = call();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Message(status), text);
    EXPECT_EQ(Wait(0), status);
    EXPECT_EQ(world(0).Health(), status);
  };
  expect("all_reduce: a count of -1 is negative", [&] { return AllReduce(1, -1); });
  expect("all_reduce: a count of 9223372036854775807 is too large; the limit is 144115188075855871",
         [&] { return AllReduce(1, INT64_MAX); });
  expect("max of c64 is refused: complex numbers have no order", [&] {
    return AllReduce(1, 8, {ReduceOp::kMax, 1}, DType::kC64);
  });
  expect("sum of f4e2m1 is refused: f4e2m1 is a storage format and cannot be reduced",
         [&] { return AllReduce(1, 8, kSum, DType::kF4E2M1); });
  expect("all_gather: 3 elements of f4e2m1 end inside a byte",
         [&] { return world(1).AllGather(data(1), data(1), 3, DType::kF4E2M1, stream(1)); });
  expect("all_reduce(sum, 8 x f32): a buffer of 8 elements is null",
         [&] { return world(1).AllReduce(nullptr, data(1), 8, DType::kF32, kSum, stream(1)); });
  expect("broadcast: root 2 is out of range for 2 members",
         [&] { return world(1).Broadcast(data(1), 8, DType::kF32, 2, stream(1)); });
  expect("send_recv(f32): member 1 of 2 has a message for member 1", [&] {
    return world(1).SendRecv({{1, data(1), 1}}, {}, DType::kF32, stream(1));
  });
  expect("the stream belongs to rank 0, not to rank 1",
         [&] { return world(1).Barrier(stream(0)); });
}

TEST_F(FailureTest, AMissingMemberIsNamed) {
  for (const int workers : {0, 2}) {
    Make(6, workers, milliseconds(20));
    for (const int r : {1, 2, 4}) EXPECT_TRUE(AllReduce(r).ok());
    const absl::Status status = Wait(1);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Message(status),
              "call 0 of group 0-5, all_reduce(sum, 8 x f32): not begun within 0.02 s; ranks 0,3,5 "
              "did not call it");
    EXPECT_EQ(Wait(2), status);
    EXPECT_EQ(AllReduce(0), status);
    EXPECT_EQ(world(3).Health(), status);
  }
}

TEST_F(FailureTest, TimeoutsAreSetWhileAThreadWaits) {
  Make(2, 0, std::chrono::minutes(10));
  EXPECT_EQ(engine(0).timeouts(), Timeouts::Of(std::chrono::minutes(10)));
  EXPECT_TRUE(AllReduce(0).ok());
  std::thread setter([this] {
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_TRUE(engine(1).SetTimeouts(Timeouts::Of(milliseconds(50))).ok());
  });
  EXPECT_EQ(Wait(0).code(), absl::StatusCode::kDeadlineExceeded);
  setter.join();
  EXPECT_EQ(engine(0).timeouts(), Timeouts::Of(milliseconds(50)));
}

// Rank 1 has called, but its stream is blocked by a collective that rank 2 has not called.
TEST_F(FailureTest, AMemberThatIsHeldUpIsNamed) {
  Make(3, 0, milliseconds(20));
  const auto first = engine(0).Split(world(0), {0, 1}, 0, {});
  const auto second = engine(1).Split(world(1), {0, 1}, 0, {});
  const auto held_up = engine(1).Split(world(1), {1, 2}, 1, {});
  ASSERT_TRUE(first.ok() && second.ok() && held_up.ok());
  EXPECT_TRUE((*first)->Barrier(stream(0)).ok());
  EXPECT_TRUE((*held_up)->Barrier(stream(1)).ok());
  EXPECT_TRUE((*second)->Barrier(stream(1)).ok());
  EXPECT_EQ(Message(Wait(0)),
            "call 0 of group 0-1, barrier: not begun within 0.02 s; rank 1 has not finished "
            "its earlier work");
  EXPECT_EQ(Message(Wait(1)),
            "call 0 of group 1-2, barrier: not begun within 0.02 s; rank 2 did not call it");
}

TEST_F(FailureTest, MembersThatAreHeldUpAreNamed) {
  Make(4, 0, milliseconds(20));
  const auto first = engine(0).Split(world(0), {0, 1, 2}, 0, {});
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE((*first)->Barrier(stream(0)).ok());
  std::vector<std::shared_ptr<Communicator>> groups;
  for (const int r : {1, 2}) {
    const auto held_up = engine(r).Split(world(r), {1, 2, 3}, 1, {});
    const auto second = engine(r).Split(world(r), {0, 1, 2}, 0, {});
    ASSERT_TRUE(held_up.ok() && second.ok());
    EXPECT_TRUE((*held_up)->Barrier(stream(r)).ok());
    EXPECT_TRUE((*second)->Barrier(stream(r)).ok());
    groups.insert(groups.end(), {*held_up, *second});
  }
  EXPECT_EQ(Message(Wait(0)),
            "call 0 of group 0-2, barrier: not begun within 0.02 s; ranks 1-2 have not finished "
            "their earlier work");
}

TEST_F(FailureTest, AnEventThatIsNeverReachedNamesItsCollective) {
  Make(2, 0, milliseconds(20));
  EXPECT_TRUE(world(0).Barrier(stream(0)).ok());
  const auto event = engine(0).Record(stream(0));
  const std::unique_ptr<Stream> other = NewStream(0);
  EXPECT_TRUE(engine(0).WaitFor(*other, *event).ok());
  EXPECT_EQ((*event)->ReachedNs(), -1);
  EXPECT_EQ(Message(engine(0).Synchronize(*other)),
            "call 0 of group 0-1, barrier: not begun within 0.02 s; rank 1 did not call it");
  EXPECT_GE((*event)->ReachedNs(), 0);
}

// A member may be late by less than the time-out.
TEST_F(FailureTest, ALateMemberIsNoFailure) {
  for (const int workers : {0, 1}) {
    Make(2, workers);
    EXPECT_TRUE(AllReduce(0).ok());
    std::thread late([&] {
      std::this_thread::sleep_for(milliseconds(20));
      EXPECT_TRUE(AllReduce(1).ok());
      EXPECT_TRUE(Wait(1).ok());
    });
    EXPECT_TRUE(Wait(0).ok());
    late.join();
  }
}

TEST_F(FailureTest, AbortFromAnotherThreadEndsAWait) {
  for (const int workers : {0, 2}) {
    Make(3, workers);
    EXPECT_TRUE(AllReduce(0).ok());
    EXPECT_TRUE(AllReduce(1).ok());
    std::thread abort([&] {
      std::this_thread::sleep_for(milliseconds(10));
      world(2).Abort();
    });
    EXPECT_EQ(Wait(0).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(Message(Wait(1)), "group 0-2 was aborted by rank 2");
    abort.join();
    world(1).Abort();
    EXPECT_EQ(Message(world(0).Health()), "group 0-2 was aborted by rank 2");
    EXPECT_EQ(Message(AllReduce(2)), "group 0-2 was aborted by rank 2");
  }
}

// Whenever the abort comes, every member ends, and results that were reported as done are right.
TEST_F(FailureTest, AbortAmidTrafficEndsAllMembers) {
  for (int round = 0; round < 20; ++round) {
    Make(4, round % 3);
    std::vector<std::thread> threads;
    for (int r = 0; r < 4; ++r) {
      threads.emplace_back([&, r] {
        const std::unique_ptr<Stream> side = NewStream(r);
        absl::Status status;
        for (int64_t i = 1; status.ok(); ++i) {
          int64_t value = i;
          status = world(r).AllReduce(&value, &value, 1, DType::kI64, kSum, stream(r));
          const auto event = engine(r).Record(stream(r));
          EXPECT_TRUE(engine(r).WaitFor(*side, *event).ok());
          const absl::Status side_status = engine(r).Synchronize(*side);
          if (side_status.ok()) {
            EXPECT_EQ(value, 4 * i);
          }
          status.Update(Wait(r));
          EXPECT_EQ(side_status.ok(), status.ok());
        }
        EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    world(round % 4).Abort();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(FailureTest, AbortAfterAnErrorKeepsTheFirst) {
  Make(2);
  const absl::Status first = AllReduce(0, -1);
  world(1).Abort();
  EXPECT_EQ(world(0).Health(), first);
  const absl::Status later = AllReduce(1);
  EXPECT_EQ(later.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Message(later),
            "group 0-1 was aborted by rank 1, after: INVALID_ARGUMENT: all_reduce: a count of -1 "
            "is negative");
}

TEST_F(FailureTest, AbortOfOneGroupLeavesOthersAlone) {
  Make(4);
  std::vector<std::shared_ptr<Communicator>> groups;
  for (int r = 0; r < 4; ++r) {
    const int64_t first = r / 2 * 2;
    groups.push_back(*engine(r).Split(world(r), {first, first + 1}, r / 2, {}));
  }
  groups[0]->Abort();
  for (int r : {2, 3}) EXPECT_TRUE(groups[r]->Barrier(stream(r)).ok());
  for (int r : {2, 3}) EXPECT_TRUE(Wait(r).ok());
  EXPECT_FALSE(groups[1]->Health().ok());
  EXPECT_TRUE(world(0).Health().ok());
  for (int r = 0; r < 4; ++r) EXPECT_TRUE(AllReduce(r).ok());
  for (int r = 0; r < 4; ++r) EXPECT_TRUE(Wait(r).ok());
}

// Work after an error on a stream is skipped, and the streams and groups that depend on it get the
// error.
TEST_F(FailureTest, ErrorsTravelWithTheWork) {
  Make(4);
  const auto pair0 = engine(0).Split(world(0), {0, 1}, 0, {});
  const auto pair1 = engine(1).Split(world(1), {0, 1}, 0, {});
  ASSERT_TRUE(pair0.ok() && pair1.ok());
  EXPECT_TRUE((*pair0)->Barrier(stream(0)).ok());
  data(0)[0] = 5;
  EXPECT_TRUE(engine(0).FillZero(data(0), 4, stream(0)).ok());
  const auto event = engine(0).Record(stream(0));
  const std::unique_ptr<Stream> other = NewStream(0);
  EXPECT_TRUE(engine(0).WaitFor(*other, *event).ok());
  for (int r = 0; r < 4; ++r) EXPECT_TRUE(AllReduce(r).ok());
  (*pair1)->Abort();
  const std::string text = "group 0-1 was aborted by rank 1";
  EXPECT_EQ(Message(Wait(0)), text);
  EXPECT_EQ(data(0)[0], 5);
  EXPECT_EQ(Message(engine(0).Synchronize(*other)), text);
  for (int r = 1; r < 4; ++r) {
    EXPECT_EQ(Message(Wait(r)), text);
    EXPECT_EQ(Message(world(r).Health()), text);
  }
  // A stream keeps its error; another stream does not have it.
  EXPECT_EQ(Message(Wait(0)), text);
  const std::unique_ptr<Stream> fresh = NewStream(0);
  EXPECT_TRUE(engine(0).FillZero(data(0), 4, *fresh).ok());
  EXPECT_TRUE(engine(0).Synchronize(*fresh).ok());
  EXPECT_EQ(data(0)[0], 0);
}

TEST_F(FailureTest, EnginesRefuseBadArguments) {
  Make(3);
  const auto split = [&](const std::vector<int64_t>& ranks, int64_t group = 0) {
    return Message(engine(1).Split(world(1), ranks, group, {}).status());
  };
  EXPECT_EQ(split({1}), "group {1} has fewer than two ranks");
  EXPECT_EQ(split({1, 0}), "the ranks of group {1,0} are not strictly ascending");
  EXPECT_EQ(split({1, 1}), "the ranks of group {1,1} are not strictly ascending");
  EXPECT_EQ(split({1, 3}), "group {1,3} is not part of group 0-2");
  EXPECT_EQ(split({0, 2}), "rank 1 is not in its group {0,2}");
  EXPECT_EQ(split({0, 1}, -1), "group number -1 is negative");
  EXPECT_EQ(Message(engine(1).Split(world(0), {0, 1}, 0, {}).status()),
            "rank 1 splits a communicator that is not its own: local group 0-2, member 0");
  EXPECT_EQ(Message(engine(1).WaitFor(stream(1), nullptr)),
            "the event is null or belongs to another engine");
  EXPECT_EQ(Message(engine(1).Synchronize(stream(0))),
            "the stream belongs to rank 0, not to rank 1");
  EXPECT_EQ(Message(engine(1).FillZero(nullptr, 4, stream(1))),
            "the buffer to fill is null, but count is 4");
  EXPECT_EQ(Message(engine(1).FillZero(data(1), -4, stream(1))),
            "a count of -4 to fill is negative");
  EXPECT_EQ(Message(engine(1).Allocate(-1).status()),
            "cannot allocate -1 bytes; expected at least 0");
  EXPECT_EQ(engine(1).Allocate(int64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto other = LocalWorld::Create({.num_ranks = 3, .num_workers = 0});
  EXPECT_EQ(Message((*other)->engine(0)->Synchronize(stream(0))),
            "the stream does not belong to the world of rank 0");
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(Wait(r).ok());
}

}  // namespace
}  // namespace meshift
