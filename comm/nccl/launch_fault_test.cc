// Calls that fail while NCCL still works on their launch, and may put it on the stream at any time:
// bounded calls may do that. No other work uses the stream before the abort has ended; if it never
// ends, never. Over the stand-in libraries, where the first call of a communicator is such a call.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
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
#include "meshift/nccl_engine.h"
#include "meshift/placement.h"
#include "testing/internal/nccl/nccl_threads.h"

// Memory that NCCL may still use is leaked on purpose.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }  // NOLINT: its name

namespace meshift {
namespace {

constexpr int64_t kRanks = 2;
constexpr std::chrono::milliseconds kTimeout(50);
constexpr int kInternalError = 3;  // ncclInternalError

struct Case {
  std::string name;
  absl::Status (*call)(Communicator& world, char* data, Stream& stream);
};
std::string PrintToString(const Case& one) { return one.name; }

std::vector<Case> Cases() {
  return {
      {"all_gather",
       [](Communicator& world, char* data, Stream& stream) {
         return world.AllGather(data, data + 64, 4, DType::kU8, stream);
       }},
      {"all_reduce",
       [](Communicator& world, char* data, Stream& stream) {
         return world.AllReduce(data, data, 4, DType::kF32, {.op = ReduceOp::kSum}, stream);
       }},
      // A group of calls, followed by a kernel.
      {"all_reduce_by_our_kernel",
       [](Communicator& world, char* data, Stream& stream) {
         return world.AllReduce(data, data, 4, DType::kI16, {.op = ReduceOp::kSum}, stream);
       }},
      {"reduce_scatter_and_scale",
       [](Communicator& world, char* data, Stream& stream) {
         return world.ReduceScatter(data, data + 64, 4, DType::kF32,
                                    {.op = ReduceOp::kAvg, .divisor = 2}, stream);
       }},
      {"send_recv",
       [](Communicator& world, char* data, Stream& stream) {
         const int peer = 1 - world.rank();
         return world.SendRecv({{peer, data, 4}}, {{peer, data + 64, 4}}, DType::kU8, stream);
       }},
      {"broadcast", [](Communicator& world, char* data,
                       Stream& stream) { return world.Broadcast(data, 4, DType::kU8, 0, stream); }},
      {"barrier", [](Communicator& world, char*, Stream& stream) { return world.Barrier(stream); }},
  };
}

class NcclLaunchFaultTest : public testing::TestWithParam<Case> {
 protected:
  // Ranks on devices from `first_device` on.
  static std::unique_ptr<NcclThreads> Start(std::chrono::milliseconds timeout, int first_device) {
    auto ranks = NcclThreads::CreateEach(kRanks, [&](int64_t rank) {
      NcclOptions options;
      options.bounded_calls = true;
      options.device = first_device + static_cast<int>(rank);
      return options;
    });
    EXPECT_TRUE(ranks.ok()) << ranks.status();
    if (!ranks.ok()) return nullptr;
    (*ranks)->Run([&](NcclEngine& engine, int64_t) {
      EXPECT_EQ(Message(engine.SetTimeouts(Timeouts::Of(timeout))), "");
    });
    return *std::move(ranks);
  }
  // The results of all operations of an engine on a stream.
  static std::vector<absl::Status> UseAll(NcclEngine& engine, char* data, Stream& stream) {
    char host[4] = {};
    std::vector<absl::Status> ends = {
        engine.Record(stream).status(),
        engine.FillZero(data, 4, stream),
        engine.FillIdentity(data, 1, DType::kF32, ReduceOp::kSum, stream),
        engine.Cast(data, DType::kF32, data + 64, DType::kF64, 1, stream),
        engine.CopyIn(host, data, 4, stream),
        engine.CopyOut(data, host, 4, stream),
        engine.world()->AllGather(data, data + 64, 4, DType::kU8, stream),
        engine.world()->Reserve(Communicator::ReduceCall::kAllReduce, 1 << 20, DType::kI16,
                                {.op = ReduceOp::kSum}),
        engine.Allocate(64).status(),
        engine.Synchronize(stream),
    };
    return ends;
  }
};

// Communicators whose abort is refused leave work on their devices, so their tests use other
// devices.
constexpr int kAborted = 0;
constexpr int kNotAborted = kAborted + kRanks;

// The abort is refused, so that NCCL may be through with it ever so late.
TEST_P(NcclLaunchFaultTest, NothingIsPutOnStreamsUnlessItIsAborted) {
  auto ranks = Start(kTimeout, kNotAborted);
  ASSERT_NE(ranks, nullptr);
  for (int rank = 0; rank < kRanks; ++rank) {
    TheFake()->hold_device(kNotAborted + rank);
    TheFake()->fail("ncclCommAbort", rank + 1, kInternalError);
  }
  ranks->Run([&](NcclEngine& engine, int64_t) {
    const auto memory = engine.Allocate(1024).value();
    auto* const data = static_cast<char*>(memory->data());
    const auto stream = engine.CreateStream().value();
    const auto again = engine.WrapStream(engine.HandleOf(*stream).value());
    const absl::Status status = GetParam().call(*engine.world(), data, *stream);
    EXPECT_FALSE(status.ok());
    for (const absl::Status& end : UseAll(engine, data, *stream)) EXPECT_EQ(end, status);
    for (const absl::Status& end : UseAll(engine, data, *again)) EXPECT_EQ(end, status);
  });
  ranks = nullptr;
  EXPECT_EQ(Violations(), "");
  for (int rank = 0; rank < kRanks; ++rank) TheFake()->revive_device(kNotAborted + rank);
}

TEST_P(NcclLaunchFaultTest, StreamsAreGivenBackOnceItIsAborted) {
  auto ranks = Start(kTimeout, kAborted);
  ASSERT_NE(ranks, nullptr);
  for (int rank = 0; rank < kRanks; ++rank) TheFake()->hold_device(kAborted + rank);
  ranks->Run([&](NcclEngine& engine, int64_t) {
    const auto memory = engine.Allocate(1024).value();
    auto* const data = static_cast<char*>(memory->data());
    const auto stream = engine.CreateStream().value();
    EXPECT_FALSE(GetParam().call(*engine.world(), data, *stream).ok());
    UseAll(engine, data, *stream);
  });
  ranks = nullptr;
  EXPECT_EQ(TheFake()->call_count("cuStreamCreate"), TheFake()->call_count("cuStreamDestroy"));
  EXPECT_EQ(Violations(), "");
  for (int rank = 0; rank < kRanks; ++rank) TheFake()->revive_device(kAborted + rank);
}

// An abort waits for NCCL's threads, which look up every half second.
TEST_P(NcclLaunchFaultTest, AnAbortThatTakesASecondIsWaitedFor) {
  auto ranks = Start(kTimeout, kAborted);
  ASSERT_NE(ranks, nullptr);
  for (int rank = 0; rank < kRanks; ++rank) TheFake()->hold_device(kAborted + rank);
  ranks->Run([&](NcclEngine& engine, int64_t rank) {
    const auto memory = engine.Allocate(1024).value();
    auto* const data = static_cast<char*>(memory->data());
    const auto busy = engine.CreateStream().value();
    const auto stream = engine.CreateStream().value();
    TheFake()->delay_device(kAborted + static_cast<int>(rank), 1000);
    EXPECT_EQ(Message(engine.FillZero(data + 512, 4, *busy)), "");
    EXPECT_FALSE(GetParam().call(*engine.world(), data, *stream).ok());
    // Streams may be used again.
    EXPECT_EQ(Message(engine.FillZero(data, 4, *stream)), "");
  });
  ranks = nullptr;
  EXPECT_EQ(TheFake()->call_count("cuStreamCreate"), TheFake()->call_count("cuStreamDestroy"));
  EXPECT_EQ(Violations(), "");
  for (int rank = 0; rank < kRanks; ++rank) TheFake()->revive_device(kAborted + rank);
}

// One rank gives up; the other hears of it while NCCL works on its launch.
TEST_P(NcclLaunchFaultTest, APeerFailsMeanwhile) {
  auto ranks = Start(std::chrono::seconds(60), kNotAborted);
  ASSERT_NE(ranks, nullptr);
  TheFake()->hold_device(kNotAborted + 1);
  TheFake()->fail("ncclCommAbort", 1, kInternalError);
  TheFake()->fail("ncclCommAbort", 2, kInternalError);
  ranks->Run([&](NcclEngine& engine, int64_t rank) {
    const auto memory = engine.Allocate(1024).value();
    auto* const data = static_cast<char*>(memory->data());
    const auto stream = engine.CreateStream().value();
    if (rank == 0) {
      const auto asked = [] { return TheFake()->call_count("ncclCommGetAsyncError"); };
      for (const int64_t before = asked(); asked() < before + 10;) std::this_thread::yield();
      engine.world()->Abort();
      return;
    }
    EXPECT_FALSE(GetParam().call(*engine.world(), data, *stream).ok());
    UseAll(engine, data, *stream);
  });
  ranks = nullptr;
  EXPECT_EQ(Violations(), "");
  TheFake()->revive_device(kNotAborted + 1);
}

// The end of an engine waits for an abort that still runs, for longer than aborts take.
TEST(NcclEndFaultTest, AnAbortOfThreeSecondsIsWaitedForAtTheEnd) {
  auto ranks = NcclThreads::Create(kRanks).value();
  ranks->Run([&](NcclEngine& engine, int64_t rank) {
    const auto stream = engine.CreateStream().value();
    ASSERT_EQ(Message(engine.world()->Barrier(*stream)), "");
    ASSERT_EQ(Message(engine.Synchronize(*stream)), "");
    TheFake()->delay_device(static_cast<int>(rank), 3000);
    ASSERT_EQ(Message(engine.world()->Barrier(*stream)), "");
    ASSERT_TRUE(ranks->bootstrap(rank).Exchange("").ok());
    engine.world()->Abort();
  });
  ranks = nullptr;
  EXPECT_EQ(TheFake()->call_count("cuStreamCreate"), TheFake()->call_count("cuStreamDestroy"));
  EXPECT_EQ(Violations(), "");
}

INSTANTIATE_TEST_SUITE_P(Calls, NcclLaunchFaultTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshift
