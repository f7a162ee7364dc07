#include "tests/gpu/host_time.h"

#include <cuda.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/cuda/driver.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 20;
constexpr int kCallsPerRound = 10;  // few enough not to fill a queue
// A communicator of all ranks that is unknown to the engine.
class RawCommunicator {
 public:
  static absl::StatusOr<std::unique_ptr<RawCommunicator>> Create(NcclEngine& engine,
                                                                 Bootstrap& bootstrap,
                                                                 bool blocking) {
    std::unique_ptr<RawCommunicator> raw(new RawCommunicator());
    MESHIFT_RETURN_IF_ERROR(raw->UseContextOf(engine.device()));
    MESHIFT_ASSIGN_OR_RETURN(raw->nccl_, NcclLibrary::Load());
    ncclUniqueId id = {};
    if (engine.rank() == 0) {
      MESHIFT_RETURN_IF_ERROR(raw->nccl_->Check(raw->nccl_->GetUniqueId(&id), "ncclGetUniqueId"));
    }
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                             bootstrap.Exchange(std::string(id.internal, sizeof(id.internal))));
    std::memcpy(id.internal, ids[0].data(), sizeof(id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    config.maxCTAs = 1;
    MESHIFT_RETURN_IF_ERROR(
        raw->End(raw->nccl_->CommInitRankConfig(&raw->comm_, static_cast<int>(engine.world_size()),
                                                id, static_cast<int>(engine.rank()), &config),
                 "ncclCommInitRankConfig"));
    return raw;
  }
  ~RawCommunicator() {
    if (comm_ != nullptr) {
      End(nccl_->CommFinalize(comm_), "ncclCommFinalize").IgnoreError();
      nccl_->CommDestroy(comm_);
    }
    if (driver_ == nullptr) return;
    driver_->CtxSetCurrent(nullptr).IgnoreError();
    driver_->DevicePrimaryCtxRelease(device_).IgnoreError();
  }

  absl::Status AllReduce(void* data, size_t count, void* stream) const {
    return End(nccl_->AllReduce(data, data, count, ncclFloat32, ncclSum, comm_,
                                static_cast<cudaStream_t>(stream)),
               "ncclAllReduce");
  }

 private:
  RawCommunicator() = default;

  // Waits until NCCL is done with a call that returned `result`.
  absl::Status End(ncclResult_t result, const char* function) const {
    while (result == ncclInProgress) {
      const ncclResult_t query = nccl_->CommGetAsyncError(comm_, &result);
      if (query != ncclSuccess) result = query;
      std::this_thread::yield();  // NCCL's thread may want the core
    }
    return nccl_->Check(result, function, comm_);
  }

  // Makes the device's context current, since NCCL uses the calling thread's context.
  absl::Status UseContextOf(int ordinal) {
    MESHIFT_ASSIGN_OR_RETURN(const auto driver, CudaDriver::Load());
    MESHIFT_RETURN_IF_ERROR(driver->DeviceGet(&device_, ordinal));
    CUcontext context = nullptr;
    MESHIFT_RETURN_IF_ERROR(driver->DevicePrimaryCtxRetain(&context, device_));
    driver_ = driver;
    return driver_->CtxSetCurrent(context);
  }

  std::shared_ptr<const CudaDriver> driver_;  // set once the context is retained
  CUdevice device_ = 0;
  std::shared_ptr<const NcclLibrary> nccl_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

absl::StatusOr<double> MedianUs(Bootstrap& bootstrap, const std::function<absl::Status()>& call,
                                const std::function<absl::Status()>& finish,
                                std::chrono::milliseconds budget) {
  std::vector<double> times;
  const auto start = Clock::now();
  for (int round = 0; round <= kRounds; ++round) {
    if (round > 1) {
      MESHIFT_ASSIGN_OR_RETURN(
          const std::vector<std::string> late,
          bootstrap.Exchange(Clock::now() - start > budget ? "late" : "in time"));
      if (late[0] == "late") break;
    }
    for (int i = 0; i < kCallsPerRound; ++i) {
      const auto begin = Clock::now();
      MESHIFT_RETURN_IF_ERROR(call());
      if (round > 0) {
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      }
    }
    MESHIFT_RETURN_IF_ERROR(finish());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

absl::StatusOr<HostTime> MeasureHostTime(NcclEngine& engine, Bootstrap& bootstrap) {
  HostTime time;
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> buffer, engine.Allocate(8));
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, engine.CreateStream());
  MESHIFT_ASSIGN_OR_RETURN(void* const handle, engine.HandleOf(*stream));
  MESHIFT_RETURN_IF_ERROR(engine.FillZero(buffer->data(), 8, *stream));
  MESHIFT_RETURN_IF_ERROR(engine.Synchronize(*stream));
  for (const bool blocking : {true, false}) {
    MESHIFT_ASSIGN_OR_RETURN(const auto raw, RawCommunicator::Create(engine, bootstrap, blocking));
    MESHIFT_ASSIGN_OR_RETURN(
        (blocking ? time.raw_us : time.polled_us),
        MedianUs(
            bootstrap, [&] { return raw->AllReduce(buffer->data(), 2, handle); },
            [&] { return engine.Synchronize(*stream); }));
  }
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Create({{"x", engine.world_size()}}));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[2]", mesh, "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute,
                           Redistributor::Create(mesh, &engine, {.agreement = Agreement::kOff}));
  const TensorView view = TensorView::Contiguous(buffer->data(), from.dtype(), Shape{2});
  RunHandle last;
  const auto call = [&]() -> absl::Status {
    MESHIFT_ASSIGN_OR_RETURN(
        last, redistribute({.from = from, .to = to, .source = view, .target = view}));
    return absl::OkStatus();
  };
  MESHIFT_ASSIGN_OR_RETURN(time.call_us, MedianUs(bootstrap, call, [&] { return last.Wait(); }));
  return time;
}

}  // namespace meshift
