// Launches are NVTX ranges with the names of their groups. This program acts as the tool, through
// NVTX's static injection.
#include "comm/nccl/trace_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "testing/internal/nccl/engine_fixture.h"
#include "testing/internal/nccl/nccl_threads.h"

#if MESHIFT_HAS_NVTX

namespace meshift {
namespace {

struct Ranges {
  Mutex mutex;
  std::map<std::string, int> begun MESHIFT_GUARDED_BY(mutex);
  int open MESHIFT_GUARDED_BY(mutex) = 0;
};

Ranges& TheRanges() {
  static Ranges& ranges = *new Ranges();
  return ranges;
}

int Push(const char* name) {
  const MutexLock lock(TheRanges().mutex);
  ++TheRanges().begun[name];
  return TheRanges().open++;
}

int Pop() {
  const MutexLock lock(TheRanges().mutex);
  return --TheRanges().open;
}

int Attach(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&Push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&Pop);
  return 1;
}

class TraceRangeTest : public NcclEngineTest {
 protected:
  // NVTX reads the pointer when the first range begins.
  static void SetUpTestSuite() { InitializeInjectionNvtx2_fnptr = &Attach; }
};

// The first ranges of the process: ThreadSanitizer finds a race if threads initialize NVTX.
TEST_F(TraceRangeTest, SeveralThreadsMayBeginTheFirstRanges) {
  constexpr int kThreads = 8;
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&start] {
      start.arrive_and_wait();
      const TraceRange range("first");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(TheRanges().mutex);
  EXPECT_EQ(TheRanges().begun["first"], kThreads);
  EXPECT_EQ(TheRanges().open, 0);
}

TEST_F(TraceRangeTest, LaunchesHaveTheNamesOfTheirGroups) {
  Start(4);
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const std::vector<Pair> pairs = {PairOf("f32[8,6]", mesh, "P,S(0)", "R,S(0)"),
                                   PairOf("f32[8,6]", mesh, "S(0),R", "R,R")};
  constexpr int kRounds = 3;
  ranks_->Run([&](NcclEngine& engine, int64_t) {
    Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
    const Calls calls = CallsOf(engine, pairs);
    for (int round = 0; round < kRounds; ++round) {
      for (const auto& call : calls) ASSERT_TRUE((*call)(redistribute).value().Wait().ok());
    }
  });
  const MutexLock lock(TheRanges().mutex);
  EXPECT_EQ(TheRanges().open, 0);
  // Both calls are over mesh dim a: of ranks 0 and 2, or 1 and 3. Connecting takes two launches.
  for (const char* name : {"meshift:a[0,2]", "meshift:a[1,3]"}) {
    EXPECT_EQ(TheRanges().begun[name], 2 * (2 + 2 * kRounds)) << name;
  }
}

}  // namespace
}  // namespace meshift

#endif  // MESHIFT_HAS_NVTX
