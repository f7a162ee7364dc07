// The MPI engine below MPI_THREAD_MULTIPLE, without a progress thread.
// testing/internal/mpi/level.cc makes MPI provide the level in MESHIFT_MPI_LEVEL. Work advances in
// waits and in IsDone, on the threads that may call MPI; calls on other threads fail without
// effect. For two ranks or more.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/mpi_engine.h"
#include "meshift/ragged.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/symmetric.h"
#include "testing/internal/mpi/world.h"
#include "testing/internal/stopwatch.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Too large to run at once on the calling thread, and several segments long.
constexpr int64_t kLarge = 4 << 20;

int Level() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  return level;
}
bool IsOfOneThread() { return Level() < MPI_THREAD_SERIALIZED; }

#define EXPECT_OK(expr) EXPECT_EQ(Message(expr), "")

void OnAnotherThread(const std::function<void()>& call) { std::thread(call).join(); }

class LevelTest : public testing::Test {
 protected:
  void TearDown() override { Meet(); }  // the hub ends with rank 0's bootstrap
  void Make(milliseconds timeout = std::chrono::seconds(20),
            Agreement agreement = Agreement::kOff) {
    redistribute_.reset();
    engine_ = nullptr;
    bootstrap_ = MpiBootstrap().value();
    engine_ = CreateMpiEngine({.timeout = timeout, .control = bootstrap_->control()}).value();
    redistribute_.emplace(
        Redistributor::Create(mesh_, engine_.get(), {.agreement = agreement}).value());
  }
  // An all-reduce of ones.
  struct Sum {
    explicit Sum(int64_t count) : in(count, 1.0F), out(count, -1.0F) {}
    std::vector<float> in;
    std::vector<float> out;
  };
  absl::StatusOr<RunHandle> Begin(Sum* sum) { return Begin(sum, &*redistribute_); }
  absl::StatusOr<RunHandle> Begin(Sum* sum, Redistributor* redistribute) {
    const auto count = static_cast<int64_t>(sum->in.size());
    const Sharding from = Sharding::Parse("f32[" + std::to_string(count) + "]", mesh_, "P").value();
    return (*redistribute)({.from = from,
                            .to = from.WithPlacements("R").value(),
                            .source = redistribute->View(from, sum->in.data()),
                            .target = redistribute->View(from, sum->out.data())});
  }
  bool IsRight(const Sum& sum) const {
    return sum.out.front() == static_cast<float>(size_) && sum.out.front() == sum.out.back();
  }
  static void Meet() { MPI_Barrier(MPI_COMM_WORLD); }
  std::vector<int64_t> All() const {
    std::vector<int64_t> all(size_);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // Read here, since other threads may not call MPI.
  const int rank_ = WorldRank();
  const int size_ = WorldSize();
  const DeviceMesh mesh_ = DeviceMesh::Create({{"a", size_}}).value();
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<Engine> engine_;
  std::optional<Redistributor> redistribute_;
};

TEST_F(LevelTest, IsTheOneThatIsTested) {
  const std::string name = std::getenv("MESHIFT_MPI_LEVEL");
  EXPECT_EQ(Level(), name == "SINGLE"     ? MPI_THREAD_SINGLE
                     : name == "FUNNELED" ? MPI_THREAD_FUNNELED
                                          : MPI_THREAD_SERIALIZED);
  EXPECT_FALSE(MpiSession::HasThreads());
  Make();
  EXPECT_NE(engine_->caller_progress(), nullptr);
}

TEST_F(LevelTest, RefusesBoundedWaits) {
  const absl::Status status = CreateMpiEngine({.bounded_waits = true}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(status).find("bounded_waits needs MPI_THREAD_MULTIPLE"), std::string::npos)
      << status;
}

TEST_F(LevelTest, RefusesOtherThreadsAndNothingHasHappened) {
  if (!IsOfOneThread()) GTEST_SKIP() << "any thread may call";
  Make();
  Sum sum(kLarge);
  const RunHandle run = Begin(&sum).value();
  const auto stream = engine_->CreateStream().value();
  std::shared_ptr<Event> event = engine_->Record(*stream).value();
  const auto sizes = SizeExchange::Create(mesh_, engine_.get()).value();
  int64_t refused = 0;
  const auto expect_refused = [&](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(Message(status).find("only the thread that initialized it may call the engine"),
              std::string::npos)
        << status;
    ++refused;
  };
  OnAnotherThread([&] {
    expect_refused(CreateMpiEngine().status());
    expect_refused(MpiBootstrap().status());
    expect_refused(Redistributor::Create(mesh_, engine_.get()).status());
    expect_refused(SizeExchange::Create(mesh_, engine_.get()).status());
    expect_refused(sizes->Gather(0, 1).status());
    Sum other(8);
    expect_refused(Begin(&other).status());
    expect_refused((*redistribute_)(std::vector<Redistribution>()).status());
    const Sharding from = Sharding::Parse("f32[8]", mesh_, "P").value();
    expect_refused(redistribute_->Prepare(from, from).status());
    expect_refused(redistribute_->Prepare(std::vector<Plan>()));
    expect_refused(redistribute_->MakeSymmetricPool({0}, {.buffer_bytes = 4096}).status());
    expect_refused(run.Wait());
    expect_refused(run.Wait(*stream));
    expect_refused(engine_->Wait(event));
    expect_refused(engine_->Synchronize(*stream));
    expect_refused(engine_->WaitFor(*stream, event));
    expect_refused(engine_->Record(*stream).status());
    expect_refused(engine_->CreateStream().status());
    expect_refused(engine_->FillZero(other.out.data(), 8, *stream));
    expect_refused(engine_->Split(*engine_->world(), All(), 0, {}).status());
    expect_refused(engine_->SplitNoColor(*engine_->world()));
    expect_refused(engine_->AllocateSymmetric(*engine_->world(), {.bytes = 64}).status());
    expect_refused(engine_->world()->Barrier(*stream));
    // Any thread may make calls that do not use MPI.
    EXPECT_FALSE(run.IsDone());
    EXPECT_TRUE(engine_->world()->Health().ok());
    EXPECT_TRUE(engine_->Allocate(64).ok());
    EXPECT_TRUE(engine_->SetTimeouts(engine_->timeouts()).ok());
    EXPECT_EQ(redistribute_->stats().calls, 1);
    RunHandle dropped = run;
    dropped = RunHandle();
    engine_->caller_progress()->Advance();
  });
  EXPECT_EQ(refused, 22);
  EXPECT_OK(run.Wait());
  EXPECT_TRUE(IsRight(sum));
  const auto gathered = sizes->Gather(0, rank_);
  ASSERT_TRUE(gathered.ok()) << gathered.status();
  // The refused calls took no split and no call number, so the ranks still agree.
  const auto group = engine_->Split(*engine_->world(), All(), 0, {});
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_TRUE((*group)->Barrier(*stream).ok());
  EXPECT_OK(engine_->Synchronize(*stream));
  Sum again(8);
  EXPECT_OK(Begin(&again).value().Wait());
  EXPECT_TRUE(IsRight(again));
}

// Each rank first waits for another run than its neighbours do.
TEST_F(LevelTest, AWaitGoesOnWithAllWork) {
  Make();
  Redistributor other = Redistributor::Create(mesh_, engine_.get()).value();
  Sum sums[2] = {Sum(kLarge), Sum(kLarge)};
  const RunHandle runs[2] = {Begin(&sums[0]).value(), Begin(&sums[1], &other).value()};
  const int mine = rank_ % 2;
  EXPECT_OK(runs[mine].Wait());
  EXPECT_OK(runs[1 - mine].Wait());
  EXPECT_TRUE(IsRight(sums[0]) && IsRight(sums[1]));
}

TEST_F(LevelTest, ALookGoesOn) {
  Make();
  for (const int64_t count : {int64_t{1}, kLarge}) {
    Sum sum(count);
    const RunHandle run = Begin(&sum).value();
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (!run.IsDone() && Clock::now() < end) std::this_thread::yield();
    ASSERT_TRUE(run.IsDone());
    EXPECT_TRUE(IsRight(sum));
    Meet();
  }
}

// Rank 0 makes two calls; the others make the second only once the first has ended.
TEST_F(LevelTest, AgreementGoesOnWithEarlierCalls) {
  Make(std::chrono::seconds(20), Agreement::kAlways);
  Sum sums[2] = {Sum(kLarge), Sum(kLarge)};
  RunHandle runs[2];
  for (int i = 0; i < 2; ++i) {
    auto run = Begin(&sums[i]);
    ASSERT_TRUE(run.ok()) << run.status();
    runs[i] = *std::move(run);
    if (rank_ > 0) {
      EXPECT_OK(runs[i].Wait());
    }
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(runs[i].Wait());
    EXPECT_TRUE(IsRight(sums[i]));
  }
}

TEST_F(LevelTest, AMissingPeerEndsAWait) {
  Make(milliseconds(300));
  if (rank_ > 0) {
    auto* const sum = new Sum(kLarge);  // leaks: MPI may still write to it
    const RunHandle run = Begin(sum).value();
    const Stopwatch stopwatch;
    const absl::Status status = run.Wait();
    EXPECT_LT(stopwatch.Took(), std::chrono::seconds(10));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_NE(Message(status).find("rank 0"), std::string::npos) << status;
  }
  Meet();
}

TEST_F(LevelTest, AMissingPeerEndsLooks) {
  Make(milliseconds(300));
  if (rank_ > 0) {
    auto* const sum = new Sum(kLarge);  // leaks: MPI may still write to it
    const RunHandle run = Begin(sum).value();
    const Stopwatch stopwatch;
    while (!run.IsDone() && stopwatch.Took() < std::chrono::seconds(10)) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(run.IsDone());
    EXPECT_EQ(run.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  }
  Meet();
}

// Neither the engine nor the watchdog counts the time in which the program does something else.
// Rank 1 calls 4 s late; the others wait from 2.5 s on, so for less than the time-out of 2 s.
TEST_F(LevelTest, TimeWithoutALookDoesNotCount) {
  Make(milliseconds(2000));
  Sum sum(1);  // begins on the calling thread
  if (rank_ == 1) std::this_thread::sleep_for(milliseconds(4000));
  const RunHandle run = Begin(&sum).value();
  if (rank_ != 1) std::this_thread::sleep_for(milliseconds(2500));
  EXPECT_OK(run.Wait());
  EXPECT_TRUE(IsRight(sum));
}

TEST_F(LevelTest, SymmetricMemoryIsFreedWhileOthersWait) {
  Make();
  auto buffers = engine_->AllocateSymmetric(*engine_->world(), {.bytes = 4096}).value();
  Sum sum(kLarge);
  const RunHandle run = Begin(&sum).value();
  // Rank 0 frees first. If it blocked there, the others would wait for its part of the run.
  if (rank_ == 0) buffers.clear();
  EXPECT_OK(run.Wait());
  buffers.clear();
  EXPECT_TRUE(IsRight(sum));
  EXPECT_TRUE(engine_->world()->Health().ok());
}

TEST_F(LevelTest, WhatEndsOnAnotherThreadWaitsForTheRightOne) {
  Make();
  auto buffers = engine_->AllocateSymmetric(*engine_->world(), {.bytes = 4096}).value();
  auto stream = engine_->CreateStream().value();
  Sum sums[2] = {Sum(kLarge), Sum(kLarge)};
  ASSERT_TRUE(
      engine_->world()
          ->AllReduce(sums[0].in.data(), sums[0].out.data(), kLarge, DType::kF32, {}, *stream)
          .ok());
  const RunHandle run = Begin(&sums[1]).value();
  std::atomic<bool> ended = false;
  std::thread other([&] {
    stream = nullptr;
    EXPECT_TRUE(IsRight(sums[0]));
    buffers.clear();
    ended = true;
  });
  EXPECT_OK(run.Wait());
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (!ended && Clock::now() < end) engine_->caller_progress()->Advance();
  other.join();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(engine_->world()->Health().ok());
  // The engine may be destroyed on another thread too; its communicator leaks.
  redistribute_.reset();
  OnAnotherThread([&] { engine_ = nullptr; });
  Meet();
}

// With MPI_THREAD_SERIALIZED, several threads at once, each with its own redistributor.
TEST_F(LevelTest, ThreadsTakeTurns) {
  if (IsOfOneThread()) GTEST_SKIP() << "one thread may call";
  Make();
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::vector<Redistributor> redistributors;
  for (int t = 0; t < kThreads; ++t) {
    redistributors.push_back(
        Redistributor::Create(mesh_, engine_.get(), {.agreement = Agreement::kOff}).value());
  }
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        const int64_t count = round % 20 == 0 ? 1 << 18 : 1 + round;
        std::vector<float> in(count, static_cast<float>(t + round));
        std::vector<float> out(count);
        const Sharding from =
            Sharding::Parse("f32[" + std::to_string(count) + "]", mesh_, "P").value();
        const auto run = redistributors[t]({.from = from,
                                            .to = from.WithPlacements("R").value(),
                                            .source = redistributors[t].View(from, in.data()),
                                            .target = redistributors[t].View(from, out.data())});
        ASSERT_TRUE(run.ok()) << run.status();
        const absl::Status status = run->Wait();
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(out.back(), static_cast<float>((t + round) * size_));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The last test: no work of this rank advances after it.
TEST_F(LevelTest, WhatEndsOnAnotherThreadWaitsForTheTimeOutAtMost) {
  if (!IsOfOneThread()) GTEST_SKIP() << "any thread may call";
  Make(milliseconds(300));
  auto stream = engine_->CreateStream().value();
  auto* const sum = new Sum(kLarge);  // leaks: MPI may still write to it
  ASSERT_TRUE(engine_->world()
                  ->AllReduce(sum->in.data(), sum->out.data(), kLarge, DType::kF32, {}, *stream)
                  .ok());
  const Stopwatch stopwatch;
  OnAnotherThread([&] { stream = nullptr; });
  EXPECT_LT(stopwatch.Took(), std::chrono::seconds(10));
  const absl::Status error = engine_->world()->Health();
  EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded) << error;
  EXPECT_NE(Message(error).find("that thread has not done so for 300 ms"), std::string::npos)
      << error;
  EXPECT_EQ(engine_->CreateStream().status(), error);
  Meet();
}

}  // namespace
}  // namespace meshift
