// Communicators and streams that a framework lends: the engine uses them, but never destroys,
// aborts or synchronises them. The stand-in reports violations.
#include <cuda.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nccl.h>

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
#include "comm/nccl/nccl_library.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/planner_options.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

constexpr int kRanks = 4;

// A framework's rank: it owns a context, a communicator and a stream.
class Framework {
 public:
  Framework(int rank, const ncclUniqueId& id, bool blocking)
      : driver_(CudaDriver::Load().value()), nccl_(NcclLibrary::Load().value()) {
    EXPECT_EQ(Message(driver_->Init(0)), "");
    EXPECT_EQ(Message(driver_->DeviceGet(&device_, rank)), "");
    EXPECT_EQ(Message(driver_->DevicePrimaryCtxRetain(&context_, device_)), "");
    EXPECT_EQ(Message(driver_->CtxSetCurrent(context_)), "");
    EXPECT_EQ(Message(driver_->StreamCreate(&stream_, CU_STREAM_NON_BLOCKING)), "");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    EXPECT_EQ(Message(nccl_->Check(nccl_->CommInitRankConfig(&comm_, kRanks, id, rank, &config),
                                   "ncclCommInitRankConfig")),
              "");
    Settle();
  }
  ~Framework() {
    if (comm_ != nullptr) {
      TheFake()->take_back(comm_);
      EXPECT_EQ(Message(nccl_->Check(nccl_->CommFinalize(comm_), "ncclCommFinalize")), "");
      Settle();
      EXPECT_EQ(Message(nccl_->Check(nccl_->CommDestroy(comm_), "ncclCommDestroy")), "");
    }
    TheFake()->take_back(stream_);
    EXPECT_EQ(Message(driver_->StreamDestroy(stream_)), "");
    EXPECT_EQ(Message(driver_->CtxSetCurrent(nullptr)), "");
    EXPECT_EQ(Message(driver_->DevicePrimaryCtxRelease(device_)), "");
  }

  NcclLent Lend(bool may_split, bool with_stream) {
    TheFake()->lend_comm(comm_, may_split ? 1 : 0);
    if (with_stream) TheFake()->lend_stream(stream_);
    return {
        .communicator = comm_, .stream = with_stream ? stream_ : nullptr, .may_split = may_split};
  }
  void Abort() {
    TheFake()->take_back(comm_);
    EXPECT_EQ(Message(nccl_->Check(nccl_->CommAbort(comm_), "ncclCommAbort")), "");
    comm_ = nullptr;
  }
  CUcontext Current() const {
    CUcontext current = nullptr;
    EXPECT_EQ(Message(driver_->CtxGetCurrent(&current)), "");
    return current;
  }
  CUcontext context() const { return context_; }

 private:
  void Settle() {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      EXPECT_EQ(nccl_->CommGetAsyncError(comm_, &state), ncclSuccess);
      std::this_thread::yield();
    }
    EXPECT_EQ(state, ncclSuccess);
  }

  const std::shared_ptr<const CudaDriver> driver_;
  const std::shared_ptr<const NcclLibrary> nccl_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
};

// Redistributes an i32 tensor; all elements of rank r's source are r + 1. Returns the first
// element.
absl::StatusOr<int32_t> Sum(NcclEngine& engine, const std::string& from_text,
                            const std::string& to_text) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  auto redistribute = Redistributor::Create(mesh, &engine);
  if (!redistribute.ok()) return redistribute.status();
  const Sharding from = Sharding::Parse("i32[8]", mesh, from_text).value();
  const Sharding to = from.WithPlacements(to_text).value();
  const std::vector<int32_t> values(8, static_cast<int32_t>(engine.rank()) + 1);
  auto source = engine.Allocate(32);
  auto target = engine.Allocate(32);
  auto stream = engine.CreateStream();
  if (!source.ok() || !target.ok() || !stream.ok()) return absl::InternalError("no memory");
  absl::Status status = engine.CopyIn(values.data(), (*source)->data(), 32, **stream);
  if (!status.ok()) return status;
  const auto run =
      (*redistribute)({.from = from,
                       .to = to,
                       .source = TensorView::Contiguous((*source)->data(), DType::kI32, {8}),
                       .target = TensorView::Contiguous((*target)->data(), DType::kI32, {8}),
                       .after = stream->get()});
  if (!run.ok()) return run.status();
  status = run->Wait(**stream);
  std::vector<int32_t> result(8);
  if (status.ok()) status = engine.CopyOut((*target)->data(), result.data(), 32, **stream);
  if (status.ok()) status = engine.Synchronize(**stream);
  if (!status.ok()) return status;
  EXPECT_EQ(result, std::vector<int32_t>(8, result[0]));
  return result[0];
}

class LentTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    TheFake()->reset();
    id_ = NewId();
  }
  void TearDown() override {
    EXPECT_EQ(TheFake()->record_leaks(), 0);
    EXPECT_EQ(Violations(), "");
  }
  static ncclUniqueId NewId() {
    const auto driver = CudaDriver::Load().value();
    EXPECT_EQ(Message(driver->Init(0)), "");
    const auto nccl = NcclLibrary::Load().value();
    ncclUniqueId id;
    EXPECT_EQ(nccl->GetUniqueId(&id), ncclSuccess);
    return id;
  }
  bool blocking() const { return GetParam(); }
  ncclUniqueId id_;
};

TEST_P(LentTest, WithPermissionToSplit) {
  RunThreads(kRanks, [&](int64_t rank) {
    Framework framework(static_cast<int>(rank), id_, blocking());
    {
      auto engine = NcclEngine::FromLent(framework.Lend(/*may_split=*/true, /*with_stream=*/true));
      ASSERT_TRUE(engine.ok()) << engine.status();
      EXPECT_EQ((*engine)->rank(), rank);
      EXPECT_EQ((*engine)->world_size(), kRanks);
      EXPECT_EQ((*engine)->device(), rank);
      EXPECT_EQ(Sum(**engine, "P,P", "R,R").value(), 10);
      EXPECT_EQ(Sum(**engine, "P,R", "R,R").value(), rank % 2 == 0 ? 4 : 6);
    }
    EXPECT_EQ(framework.Current(), framework.context());
  });
}

TEST_P(LentTest, WithoutPermissionOnlyWholeGroups) {
  RunThreads(kRanks, [&](int64_t rank) {
    Framework framework(static_cast<int>(rank), id_, blocking());
    auto engine = NcclEngine::FromLent(framework.Lend(/*may_split=*/false, /*with_stream=*/false));
    ASSERT_TRUE(engine.ok()) << engine.status();
    EXPECT_EQ(Sum(**engine, "P,P", "R,R").value(), 10);
    // A group of all ranks is the communicator itself.
    const auto same = (*engine)->Split(*(*engine)->world(), {0, 1, 2, 3}, 0, {});
    EXPECT_TRUE(same.ok()) << same.status();
    // Nothing is known of its channels, nor of the environments of its ranks.
    EXPECT_EQ((*engine)->Capabilities().native_invariance, NativeInvariance::kNone);
    const auto narrow =
        (*engine)->Split(*(*engine)->world(), {0, 1, 2, 3}, 0, {.one_channel = true});
    EXPECT_EQ(narrow.status().ToString(),
              "FAILED_PRECONDITION: group {0,1,2,3} needs a communicator of one channel; that of "
              "group {0,1,2,3} was lent without permission to split it (NcclLent::may_split)");
    EXPECT_EQ(Sum(**engine, "P,R", "R,R").status().ToString(),
              fmt::format("FAILED_PRECONDITION: group {{{}}} would be split from the communicator "
                          "of group {{0,1,2,3}}, which was lent without permission to split it "
                          "(NcclLent::may_split)",
                          rank % 2 == 0 ? "0,2" : "1,3"));
    // The engine still works.
    EXPECT_EQ(Sum(**engine, "P,P", "R,R").value(), 10);
  });
}

// One rank is later than the time-out: the others give up, and leave the lent communicator to its
// owner. If it may be split, the call hangs on the engine's own communicator, which is aborted.
TEST_P(LentTest, AFailureAbortsNothingThatWasLent) {
  for (const bool may_split : {false, true}) {
    TheFake()->reset();
    id_ = NewId();
    NcclOptions options;
    options.timeout = std::chrono::milliseconds(200);
    options.setup_timeout = std::chrono::seconds(2);
    // Ranks wait for each other before they end their communicators.
    const auto meet = Bootstrap::InProcess(kRanks).value();
    RunThreads(kRanks, [&](int64_t rank) {
      Framework framework(static_cast<int>(rank), id_, blocking());
      {
        const auto engine = NcclEngine::FromLent(framework.Lend(may_split, true), options).value();
        const auto stream = engine->CreateStream().value();
        EXPECT_EQ(Message(engine->world()->Barrier(*stream)), "");
        EXPECT_EQ(Message(engine->Synchronize(*stream)), "");
        if (rank != 2) {
          std::unique_ptr<Buffer> buffer = engine->Allocate(8).value();
          EXPECT_EQ(Message(engine->world()->Barrier(*stream)), "");
          const absl::Status status = engine->Synchronize(*stream);
          EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
          EXPECT_EQ(Message(status),
                    fmt::format("rank {}: call 1 of group {{0,1,2,3}}, barrier of 1 i32 (4 bytes), "
                                "has not ended within 200 ms",
                                rank));
          EXPECT_EQ(engine->world()->Barrier(*stream), status);
          // No memory is freed either: freeing would wait for the barrier.
          buffer = nullptr;
          EXPECT_EQ(engine->Allocate(8).status(), status);
        }
        EXPECT_TRUE(meet[rank]->Exchange("").ok());
        EXPECT_EQ(TheFake()->call_count("ncclCommAbort"), may_split ? 3 : 0);
        EXPECT_TRUE(meet[rank]->Exchange("").ok());
        framework.Abort();
      }
    });
    EXPECT_EQ(Violations(), "");
  }
}

// Only the owner asks a non-blocking communicator for its state, except right after an engine call.
TEST_P(LentTest, IsNotAskedWhileItIsWaitedFor) {
  const auto meet = Bootstrap::InProcess(kRanks).value();
  RunThreads(kRanks, [&](int64_t rank) {
    Framework framework(static_cast<int>(rank), id_, blocking());
    const auto engine = NcclEngine::FromLent(framework.Lend(false, false)).value();
    const auto stream = engine->CreateStream().value();
    EXPECT_EQ(Message(engine->world()->Barrier(*stream)), "");
    EXPECT_EQ(Message(engine->Synchronize(*stream)), "");
    EXPECT_TRUE(meet[rank]->Exchange("").ok());
    if (rank != 2) {
      EXPECT_EQ(Message(engine->world()->Barrier(*stream)), "");
    }
    EXPECT_TRUE(meet[rank]->Exchange("").ok());
    const int64_t asked = TheFake()->call_count("ncclCommGetAsyncError");
    EXPECT_TRUE(meet[rank]->Exchange("").ok());
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      EXPECT_EQ(TheFake()->call_count("ncclCommGetAsyncError"), asked);
      EXPECT_EQ(Message(engine->world()->Barrier(*stream)), "");
    }
    EXPECT_EQ(Message(engine->Synchronize(*stream)), "");
  });
}

// The engine allocates all its memory from the lender.
TEST_P(LentTest, ItsOwnersMemoryIsUsed) {
  std::atomic<int64_t> held{0};
  std::atomic<int64_t> given{0};
  RunThreads(kRanks, [&](int64_t rank) {
    Framework framework(static_cast<int>(rank), id_, blocking());
    const auto driver = CudaDriver::Load().value();
    NcclLent lent = framework.Lend(/*may_split=*/true, /*with_stream=*/false);
    lent.allocate = [&](int64_t bytes) -> void* {
      if (bytes > (1 << 20)) return nullptr;
      CUdeviceptr memory = 0;
      EXPECT_EQ(Message(driver->MemAlloc(&memory, static_cast<size_t>(bytes))), "");
      ++held;
      ++given;
      return reinterpret_cast<void*>(memory);
    };
    EXPECT_EQ(
        NcclEngine::FromLent(lent).status().ToString(),
        "INVALID_ARGUMENT: the lender has only one of allocate and free; give both or neither");
    lent.free = [&](void* memory) {
      EXPECT_EQ(Message(driver->MemFree(reinterpret_cast<CUdeviceptr>(memory))), "");
      --held;
    };
    const auto engine = NcclEngine::FromLent(lent).value();
    EXPECT_EQ(Sum(*engine, "P,P", "R,R").value(), 10);
    EXPECT_EQ(Sum(*engine, "P,R", "R,R").value(), rank % 2 == 0 ? 4 : 6);
    EXPECT_EQ(engine->Allocate(1 << 21).status().code(), absl::StatusCode::kResourceExhausted);
  });
  EXPECT_GT(given, kRanks);
  EXPECT_EQ(held, 0);
  EXPECT_EQ(TheFake()->call_count("cuMemAllocFromPoolAsync"), 0);
  EXPECT_EQ(TheFake()->call_count("cuMemAlloc"), given);
}

// An error that the owner reports ends the engine.
TEST_P(LentTest, ItsOwnersErrorIsTheEngines) {
  std::atomic<bool> failed{false};
  RunThreads(kRanks, [&](int64_t rank) {
    Framework framework(static_cast<int>(rank), id_, blocking());
    NcclLent lent = framework.Lend(false, false);
    lent.error = [&] { return failed ? absl::UnavailableError("cable") : absl::OkStatus(); };
    const auto engine = NcclEngine::FromLent(lent).value();
    const auto stream = engine->CreateStream().value();
    EXPECT_EQ(Message(engine->world()->Barrier(*stream)), "");
    EXPECT_EQ(Message(engine->Synchronize(*stream)), "");
    failed = true;
    while (engine->world()->Health().ok()) std::this_thread::yield();
    EXPECT_EQ(engine->world()->Barrier(*stream).ToString(),
              "UNAVAILABLE: the lent communicator: cable");
  });
}

INSTANTIATE_TEST_SUITE_P(Communicators, LentTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "Blocking" : "NonBlocking";
                         });

}  // namespace
}  // namespace meshift
