// The watchdog detects calls that hang, whether or not the caller waits through the engine, on the
// device or still inside NCCL. Time counts from when a call could run. Over the stand-in libraries.
#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/cuda/driver.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "testing/internal/nccl/engine_fixture.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

CUstream HandleOf(NcclEngine& engine, Stream& stream) {
  return static_cast<CUstream>(engine.HandleOf(stream).value());
}

// Puts work of the user on a stream that takes `time`.
void Occupy(NcclEngine& engine, Stream& stream, const milliseconds& time) {
  const CUhostFn sleep = [](void* how_long) {
    std::this_thread::sleep_for(*static_cast<const milliseconds*>(how_long));
  };
  EXPECT_EQ(
      Message(CudaDriver::Load().value()->LaunchHostFunc(
          HandleOf(engine, stream), sleep, const_cast<void*>(static_cast<const void*>(&time)))),
      "");
}

absl::Status SendToEachOther(NcclEngine& engine, char* data, Stream& stream) {
  const auto peer = static_cast<int>(1 - engine.rank());
  return engine.world()->SendRecv({{peer, data, 4}}, {{peer, data + 64, 4}}, DType::kU8, stream);
}

class NcclHangTest : public NcclEngineTest {
 protected:
  void StartWith(int64_t n, std::chrono::nanoseconds running,
                 std::chrono::nanoseconds setup = seconds(20)) {
    NcclOptions options;
    options.timeout = running;
    options.setup_timeout = setup;
    Start(n, options);
  }
  void Meet(int64_t rank) { EXPECT_TRUE(ranks_->bootstrap(rank).Exchange("").ok()); }
};

// A framework may wait through CUDA alone.
TEST_F(NcclHangTest, IsNoticedWhereNobodyWaitsThroughTheEngine) {
  StartWith(2, milliseconds(300));
  const auto driver = CudaDriver::Load().value();
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    EXPECT_EQ(Message(engine.world()->Barrier(*stream)), "");
    EXPECT_EQ(Message(engine.Synchronize(*stream)), "");
    if (rank == 0) {
      const Clock::time_point start = Clock::now();
      EXPECT_EQ(Message(engine.world()->Barrier(*stream)), "");
      EXPECT_EQ(Message(driver->StreamSynchronize(HandleOf(engine, *stream))), "");
      EXPECT_LT(Clock::now() - start, seconds(2));
      EXPECT_EQ(engine.world()->Health().ToString(),
                "DEADLINE_EXCEEDED: rank 0: call 1 of group {0,1}, barrier of 1 i32 (4 bytes), has "
                "not ended within 300 ms");
    }
    Meet(rank);
    // The peer hears of it.
    while (engine.world()->Health().ok()) std::this_thread::yield();
  });
}

// The first message between two ranks waits inside NCCL for both.
TEST_F(NcclHangTest, IsNoticedInsideNccl) {
  StartWith(2, seconds(20), milliseconds(400));
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const auto memory = engine.Allocate(128).value();
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    Meet(rank);
    if (rank == 0) {
      const Clock::time_point start = Clock::now();
      const absl::Status status =
          SendToEachOther(engine, static_cast<char*>(memory->data()), *stream);
      EXPECT_LT(Clock::now() - start, seconds(2));
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_EQ(Message(status).rfind("rank 0: call 0 of group {0,1}, send_recv of 4 u8 (4 bytes), "
                                      "has not been launched within 400 ms: inside NCCL",
                                      0),
                0U)
          << status;
    }
    Meet(rank);
  });
}

// When the device's queue is full, the next call waits for room.
TEST_F(NcclHangTest, IsNoticedWhileTheQueueIsFull) {
  StartWith(2, milliseconds(400));
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    Meet(rank);
    if (rank == 0) {
      const Clock::time_point start = Clock::now();
      absl::Status status;
      int64_t made = 0;
      while (status.ok() && made < 100000) {
        status = engine.world()->Barrier(*stream);
        ++made;
      }
      EXPECT_LT(Clock::now() - start, seconds(4));
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_NE(Message(status).find("call 0 of group {0,1}, barrier"), std::string::npos)
          << status;
      EXPECT_GT(made, 1000);
    }
    Meet(rank);
  });
}

TEST_F(NcclHangTest, AnyThreadEndsACallThatIsInsideNccl) {
  StartWith(2, seconds(20));
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const auto memory = engine.Allocate(128).value();
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    Meet(rank);
    if (rank == 0) {
      std::thread other([&] {
        std::this_thread::sleep_for(milliseconds(100));
        engine.world()->Abort();
      });
      const Clock::time_point start = Clock::now();
      EXPECT_EQ(SendToEachOther(engine, static_cast<char*>(memory->data()), *stream).code(),
                absl::StatusCode::kAborted);
      EXPECT_LT(Clock::now() - start, seconds(2));
      other.join();
    }
    Meet(rank);
  });
}

// A peer's failure ends a call that is inside NCCL.
TEST_F(NcclHangTest, APeerEndsACallThatIsInsideNccl) {
  StartWith(2, seconds(20));
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const auto memory = engine.Allocate(128).value();
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    Meet(rank);
    const Clock::time_point start = Clock::now();
    if (rank == 0) {
      EXPECT_EQ(SendToEachOther(engine, static_cast<char*>(memory->data()), *stream).code(),
                absl::StatusCode::kAborted);
    } else {
      std::this_thread::sleep_for(milliseconds(100));
      engine.world()->Abort();
    }
    EXPECT_LT(Clock::now() - start, seconds(2));
    Meet(rank);
  });
}

// A call that waits for the user's earlier work does not hang, however long that work takes.
TEST_F(NcclHangTest, TimeCountsFromWhenACallCouldRun) {
  StartWith(2, milliseconds(400));
  const milliseconds time(1000);
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    const std::unique_ptr<Stream> other = engine.CreateStream().value();
    Occupy(engine, *stream, time);
    const Clock::time_point start = Clock::now();
    EXPECT_EQ(Message(engine.world()->Barrier(*stream)), "");
    // After that one, on another stream.
    EXPECT_EQ(Message(engine.world()->Barrier(*other)), "");
    EXPECT_EQ(Message(engine.Synchronize(*other)), "");
    EXPECT_GT(Clock::now() - start, time * 9 / 10);
    Meet(rank);
  });
}

// The set-up time-out applies to the first call of a kind only.
TEST_F(NcclHangTest, FirstCallsHaveTimeToConnect) {
  StartWith(2, milliseconds(200), seconds(20));
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const auto memory = engine.Allocate(128).value();
    auto* const data = static_cast<char*>(memory->data());
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    Meet(rank);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(800));
    EXPECT_EQ(Message(SendToEachOther(engine, data, *stream)), "");
    EXPECT_EQ(Message(engine.Synchronize(*stream)), "");
    // Large messages have a first call of their own.
    constexpr int64_t kCount = 1 << 18;
    const auto large = engine.Allocate(4 * kCount).value();
    Meet(rank);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(800));
    EXPECT_EQ(Message(engine.world()->AllReduce(large->data(), large->data(), kCount, DType::kF32,
                                                {}, *stream)),
              "");
    EXPECT_EQ(Message(engine.Synchronize(*stream)), "");
    Meet(rank);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(800));
    const absl::Status launched = SendToEachOther(engine, data, *stream);
    const absl::Status status = launched.ok() ? engine.Synchronize(*stream) : launched;
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    Meet(rank);
  });
}

// The root does not block: a device that never answers ends its making in time.
TEST_F(NcclHangTest, AWorldThatIsNeverMadeIsGivenUpInTime) {
  TheFake()->hold_device(1);
  NcclOptions options;
  options.setup_timeout = milliseconds(300);
  const Clock::time_point start = Clock::now();
  const auto ranks = NcclThreads::Create(2, options);
  EXPECT_LT(Clock::now() - start, seconds(5));
  EXPECT_EQ(ranks.status().code(), absl::StatusCode::kDeadlineExceeded) << ranks.status();
  EXPECT_NE(Message(ranks.status()).find("has not ended within 300 ms"), std::string::npos)
      << ranks.status();
  TheFake()->revive_device(1);
  Start(1);
}

TEST_F(NcclHangTest, TimeOutsAreSetWhileCallsRun) {
  Start(2);
  EXPECT_EQ(ranks_->engine(0).timeouts(), Timeouts{});
  ranks_->Run([&](NcclEngine& engine, int64_t rank) {
    const std::unique_ptr<Stream> stream = engine.CreateStream().value();
    if (rank == 0) {
      EXPECT_EQ(Message(engine.world()->Barrier(*stream)), "");
      EXPECT_EQ(engine.SetTimeouts({.setup = {}}).code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(Message(engine.SetTimeouts(Timeouts::Of(milliseconds(200)))), "");
      const Clock::time_point start = Clock::now();
      EXPECT_EQ(engine.Synchronize(*stream).code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_LT(Clock::now() - start, seconds(2));
    }
    Meet(rank);
  });
}

// A child that NCCL is making when all communicators are aborted is aborted too, so none remains.
// Splits of the world, which does not block, and of a child, whose splits block.
TEST_F(NcclHangTest, ASplitThatOthersDoNotJoin) {
  for (const bool of_a_child : {false, true}) {
    StartWith(4, seconds(20), milliseconds(1000));
    ranks_->Run([&](NcclEngine& engine, int64_t rank) {
      std::shared_ptr<Communicator> child;
      if (of_a_child) {
        child =
            engine.Split(*engine.world(), {rank / 2 * 2, rank / 2 * 2 + 1}, rank / 2, {}).value();
      }
      Communicator& parent = of_a_child ? *child : *engine.world();
      EXPECT_EQ(Message(engine.SetTimeouts({.setup = milliseconds(200)})), "");
      if (rank == 0) {
        const Clock::time_point start = Clock::now();
        const absl::Status status = engine.Split(parent, {0, 1}, 0, {.one_channel = true}).status();
        EXPECT_LT(Clock::now() - start, seconds(3));
        EXPECT_EQ(status.ToString(),
                  std::string("DEADLINE_EXCEEDED: rank 0: ncclCommSplit of group ") +
                      (of_a_child ? "{0,1}" : "{0,1,2,3}") + " has not ended within 200 ms");
      }
      Meet(rank);
      while (engine.world()->Health().ok()) std::this_thread::yield();
    });
    ranks_ = nullptr;
    EXPECT_EQ(TheFake()->record_leaks(), 0) << Violations();
    TheFake()->reset();  // the others did not take part, which is a violation
  }
  Start(1);
}

}  // namespace
}  // namespace meshift
