// Calls of MPI that hang: with bounded waits every call of the engine still returns in time;
// without them it does not. For two ranks or more; all ranks hang unless a test says otherwise.
#include "testing/internal/mpi/hang.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/executor/executable.h"
#include "comm/program/program.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/mpi_engine.h"
#include "testing/internal/mpi/world.h"
#include "testing/internal/stopwatch.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Long enough that a wait of two time-outs is distinguishable.
constexpr milliseconds kTimeout(1000);
// The time allowed beyond the time-out, and for a call that does not wait.
constexpr milliseconds kBeyond(1000);
constexpr milliseconds kAtOnce = kTimeout / 2;

class HangTest : public testing::Test {
 protected:
  // Never freed: MPI still writes to the memory of cancelled calls after the hang.
  static constexpr int64_t kCount = 8;
  struct Data {
    std::vector<float> send = std::vector<float>(kCount, 1.0F);
    std::vector<float> recv = std::vector<float>(kCount, -1.0F);
  };

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Make(/*bounded=*/true));
    ASSERT_TRUE(Reduce(engine_->world()).ok());
    ASSERT_TRUE(engine_->Synchronize(*stream_).ok());
    Meet();
  }
  void TearDown() override {
    Meet();
    EndHang();
    if (stream_ != nullptr) Drop();
    Meet();
  }
  void Make(bool bounded, milliseconds timeout = kTimeout) {
    if (engine_ != nullptr) Drop();
    auto engine = CreateMpiEngine({.timeout = timeout, .bounded_waits = bounded});
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    stream_ = engine_->CreateStream().value();
  }
  void Drop() {
    stream_ = nullptr;
    engine_ = nullptr;
  }
  static void Meet() { MPI_Barrier(MPI_COMM_WORLD); }

  absl::Status Reduce(Communicator* group, int64_t count = kCount) {
    auto* const data = new Data;  // leaks, see Data
    data_ = data;
    return group->AllReduce(data->send.data(), data->recv.data(), count, DType::kF32, {}, *stream_);
  }
  // Waits until a thread hangs.
  static void AwaitHang() {
    while (!SomeHangs()) std::this_thread::sleep_for(milliseconds(1));
  }
  static std::string World() { return fmt::format("the world of {} ranks", WorldSize()); }

  // Expects that the call returns this error in time; not before the time-out unless `early`.
  template <typename Call>
  static absl::Status ExpectsError(const std::string& text, Call call, bool early = false) {
    const auto begin = Clock::now();
    const Stopwatch stopwatch;
    absl::Status status = call();
    EXPECT_LT(stopwatch.Took(), kTimeout + kBeyond);
    EXPECT_TRUE(early || Clock::now() - begin >= kTimeout);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_NE(Message(status).find(text), std::string::npos) << status << " has no " << text;
    return status;
  }
  template <typename Call>
  static void ReturnsWithin(milliseconds limit, Call call) {
    const Stopwatch stopwatch;
    call();
    EXPECT_LT(stopwatch.Took(), limit);
  }
  // All later calls return `error` at once, and the destructors return at once.
  void AllHasEnded(const absl::Status& error) {
    ReturnsWithin(kAtOnce, [&] {
      EXPECT_EQ(Reduce(engine_->world()), error);
      EXPECT_EQ(engine_->Synchronize(*stream_), error);
      EXPECT_EQ(engine_->Record(*stream_).status(), error);
      EXPECT_EQ(engine_->world()->Health(), error);
      EXPECT_EQ(engine_->CreateStream().status(), error);
      EXPECT_EQ(engine_->SplitNoColor(*engine_->world()), error);
      EXPECT_EQ(engine_->AllocateSymmetric(*engine_->world(), {.bytes = 64}).status(), error);
      float value = 1;
      EXPECT_EQ(engine_->FillZero(&value, sizeof value, *stream_), error);
      EXPECT_EQ(value, 1);
      Drop();
    });
  }
  std::string NotBack(const std::string& what) const {
    return fmt::format("{}: the engine's thread has not come back from MPI for {} ms", what,
                       (kTimeout + milliseconds(250)).count());
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Stream> stream_;
  Data* data_ = nullptr;  // of the last call
};

// Without bounded waits a wait hangs as long as MPI does.
TEST_F(HangTest, WithoutBoundedWaitsItLasts) {
  ASSERT_NO_FATAL_FAILURE(Make(/*bounded=*/false));
  ASSERT_TRUE(Reduce(engine_->world()).ok());
  ASSERT_TRUE(engine_->Synchronize(*stream_).ok());
  Meet();
  HangIn("MPI_Testall");
  ASSERT_TRUE(Reduce(engine_->world()).ok());
  std::atomic<bool> returned = false;
  std::thread waiter([&] {
    EXPECT_TRUE(engine_->Synchronize(*stream_).ok());
    returned = true;
  });
  std::this_thread::sleep_for(kTimeout + kBeyond);
  EXPECT_FALSE(returned);
  Meet();
  EndHang();
  waiter.join();
  EXPECT_EQ(data_->recv[0], WorldSize());
}

// Hangs in the call that posts a message, in the calls that test it and, on a rank whose peers are
// missing, in the calls of the time-out.
TEST_F(HangTest, AWaitEnds) {
  for (const char* const function : {"MPI_Isend", "MPI_Irecv", "MPI_Testall"}) {
    SCOPED_TRACE(function);
    HangIn(function);
    // Submitting waits for nothing.
    ReturnsWithin(kAtOnce, [&] { EXPECT_TRUE(Reduce(engine_->world()).ok()); });
    const absl::Status error = ExpectsError(NotBack(World() + ": all_reduce of 8 f32 (call 1)"),
                                            [&] { return engine_->Synchronize(*stream_); });
    AllHasEnded(error);
    Meet();
    EndHang();
    SetUp();
  }
}

// The calling thread runs small copies, but not the collective after them.
TEST_F(HangTest, SubmittingACallBehindACopyWaitsForNothing) {
  Program program;
  program.copies = {
      {{Location::Space::kSource, 0}, {Location::Space::kWorkspace, 0}, {kCount}, {1}, {1}}};
  program.groups.emplace_back();
  Instruction copy;
  copy.copies = {0, 1};
  Instruction sum;
  sum.kind = Instruction::Kind::kAllReduce;
  sum.group = 0;
  sum.src = {Location::Space::kWorkspace, 0};
  sum.dst = {Location::Space::kTarget, 0};
  sum.count = kCount;
  program.instructions = {copy, sum};
  const std::vector<Communicator*> groups = {engine_->world()};
  const auto executable = engine_->Prepare(program, groups).value();
  auto* const data = new Data;  // leaks: MPI may still write to it
  auto* const workspace = new std::vector<float>(kCount);
  HangIn("*");
  ReturnsWithin(kAtOnce, [&] {
    const TensorBuffers tensor = {.source = data->send.data(), .target = data->recv.data()};
    EXPECT_TRUE(executable
                    ->Enqueue(program.All(),
                              {.workspace = workspace->data(), .tensors = {&tensor, 1}}, *stream_,
                              /*done=*/nullptr)
                    .ok());
  });
  EXPECT_EQ(*workspace, data->send);
  ExpectsError(NotBack(World() + ": all_reduce of 8 f32 (call 1)"), [&] {
    return engine_->Synchronize(*stream_);
  }).IgnoreError();
}

TEST_F(HangTest, TheEndOfATimeOutEnds) {
  for (const char* const function : {"MPI_Request_get_status", "MPI_Cancel", "MPI_Request_free"}) {
    SCOPED_TRACE(function);
    HangIn(function);
    if (WorldRank() > 0) {
      EXPECT_TRUE(Reduce(engine_->world()).ok());
      const absl::Status error = ExpectsError(NotBack(World() + ": all_reduce of 8 f32 (call 1)"),
                                              [&] { return engine_->Synchronize(*stream_); });
      AllHasEnded(error);
    }
    Meet();
    EndHang();
    SetUp();
  }
}

// A thread that returns too late runs nothing: neither the rest of its call nor later work.
TEST_F(HangTest, AThreadThatWasGivenUpTouchesNothing) {
  HangIn("MPI_Irecv");
  ASSERT_TRUE(Reduce(engine_->world()).ok());
  const Data* const first = data_;
  auto* const value = new float(3);
  ASSERT_TRUE(engine_->FillZero(value, sizeof *value, *stream_).ok());
  const absl::Status error = ExpectsError(NotBack(World() + ": all_reduce of 8 f32 (call 1)"),
                                          [&] { return engine_->Synchronize(*stream_); });
  Meet();
  EndHang();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(first->recv[0], -1);
  EXPECT_EQ(*value, 3);
  EXPECT_EQ(engine_->world()->Health(), error);
}

TEST_F(HangTest, AThreadThatComesBackInTimeGoesOn) {
  HangIn("MPI_Testall");
  ASSERT_TRUE(Reduce(engine_->world()).ok());
  AwaitHang();
  std::this_thread::sleep_for(kTimeout / 4);
  EndHang();
  const absl::Status status = engine_->Synchronize(*stream_);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(data_->recv[0], WorldSize());
}

// One call hangs; waits for other groups and streams return too.
TEST_F(HangTest, AllWaitersReturn) {
  std::vector<int64_t> all;
  for (int rank = 0; rank < WorldSize(); ++rank) all.push_back(rank);
  const auto group = engine_->Split(*engine_->world(), all, 0, {}).value();
  const auto other = engine_->CreateStream().value();
  HangIn("MPI_Testall");
  ASSERT_TRUE(Reduce(engine_->world()).ok());
  AwaitHang();
  auto* const data = new Data;
  ASSERT_TRUE(group->Broadcast(data->recv.data(), kCount, DType::kF32, 0, *other).ok());
  const auto event = engine_->Record(*other).value();
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&, i] {
      ExpectsError(
          NotBack(World() + ": all_reduce of 8 f32 (call 1)"),
          [&] { return i < 2 ? engine_->Synchronize(*other) : engine_->Wait(event); },
          /*early=*/true)
          .IgnoreError();
    });
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_FALSE(group->Health().ok());
}

// The stream, the buffer and the engine are destroyed without an earlier wait.
TEST_F(HangTest, DestroyingEnds) {
  for (const char* const function : {"MPI_Testall", "MPI_Comm_free"}) {
    SCOPED_TRACE(function);
    HangIn(function);
    EXPECT_TRUE(function != std::string("MPI_Testall") || Reduce(engine_->world()).ok());
    auto buffer = engine_->Allocate(64).value();
    ReturnsWithin(kTimeout + kBeyond, [&] {
      Drop();
      buffer = nullptr;
    });
    Meet();
    EndHang();
    SetUp();
  }
}

TEST_F(HangTest, MakingAnEngineEnds) {
  HangIn("MPI_Comm_dup");
  ExpectsError(NotBack("MPI_Comm_dup"), [] {
    return CreateMpiEngine({.timeout = kTimeout, .bounded_waits = true}).status();
  }).IgnoreError();
}

TEST_F(HangTest, MakingSymmetricMemoryEnds) {
  for (const char* const function : {"MPI_Comm_create_group", "MPI_Win_allocate_shared"}) {
    SCOPED_TRACE(function);
    HangIn(function);
    const absl::Status error = ExpectsError(NotBack(World() + ": symmetric memory"), [&] {
      return engine_->AllocateSymmetric(*engine_->world(), {.bytes = 4096}).status();
    });
    AllHasEnded(error);
    Meet();
    EndHang();
    SetUp();
  }
}

TEST_F(HangTest, FreeingSymmetricMemoryEnds) {
  auto buffers = engine_->AllocateSymmetric(*engine_->world(), {.bytes = 4096}).value();
  HangIn("MPI_Win_free");
  ReturnsWithin(kTimeout + kBeyond, [&] { buffers.clear(); });
  const absl::Status error = engine_->world()->Health();
  EXPECT_EQ(Message(error), NotBack(World() + ": symmetric memory"));
  AllHasEnded(error);
}

// The wait for a member that keeps its window ends with the time-out, and the progress thread does
// not block.
TEST_F(HangTest, FreeingSymmetricMemoryWaitsNoLonger) {
  auto buffers = engine_->AllocateSymmetric(*engine_->world(), {.bytes = 4096}).value();
  if (WorldRank() != 1) {
    ReturnsWithin(kTimeout + kBeyond, [&] { buffers.clear(); });
    EXPECT_EQ(Message(engine_->world()->Health()),
              fmt::format("{}: rank 1 has not freed its symmetric memory within {} ms", World(),
                          kTimeout.count()));
  }
  Meet();
  for (auto& buffer : buffers) static_cast<void>(buffer.release());
}

TEST_F(HangTest, FreeingSymmetricMemoryKeepsOtherWorkGoing) {
  // Nothing hangs: enough for a busy machine.
  ASSERT_NO_FATAL_FAILURE(Make(/*bounded=*/true, std::chrono::seconds(30)));
  auto buffers = engine_->AllocateSymmetric(*engine_->world(), {.bytes = 4096}).value();
  std::thread freer;
  // Rank 1 frees only after a call for which the other ranks' progress threads must be free.
  if (WorldRank() != 1) freer = std::thread([&] { buffers.clear(); });
  std::this_thread::sleep_for(kTimeout / 8);
  ASSERT_TRUE(Reduce(engine_->world()).ok());
  const absl::Status status = engine_->Synchronize(*stream_);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(data_->recv[0], WorldSize());
  if (freer.joinable()) {
    freer.join();
  } else {
    buffers.clear();
  }
  EXPECT_TRUE(engine_->world()->Health().ok());
}

}  // namespace
}  // namespace meshift
