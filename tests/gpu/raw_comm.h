// NCCL's and the driver's own calls without the engine, for the measurements of nccl_probe.
//
//   MESHIFT_ASSIGN_OR_RETURN(const auto rank, RawRank::Create());   // by torchrun's variables
//   MESHIFT_ASSIGN_OR_RETURN(const auto comm, RawComm::Create(*rank, RawComm::Kind::kHybrid));
//   MESHIFT_RETURN_IF_ERROR(comm->AllReduce(data, 2));
//   MESHIFT_RETURN_IF_ERROR(rank->Synchronize());
//   MESHIFT_RETURN_IF_ERROR(comm->End());
#ifndef MESHIFT_TESTS_GPU_RAW_COMM_H_
#define MESHIFT_TESTS_GPU_RAW_COMM_H_

#include <cuda.h>
#include <nccl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/cuda/driver.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/bootstrap.h"

namespace meshift {

// This process on device 0, with a stream. The context is current on the constructing thread. Not
// thread-safe.
class RawRank {
 public:
  static absl::StatusOr<std::unique_ptr<RawRank>> Create();
  ~RawRank();

  int rank() const { return static_cast<int>(bootstrap_->job().rank); }
  int ranks() const { return static_cast<int>(bootstrap_->job().world_size); }
  const CudaDriver& cuda() const { return *cuda_; }
  const NcclLibrary& nccl() const { return *nccl_; }
  CUstream stream() const { return stream_; }
  Bootstrap& bootstrap() { return *bootstrap_; }

  // Makes the context current on another thread.
  absl::Status UseHere() const { return cuda_->CtxSetCurrent(context_); }
  // Waits until all ranks are here.
  absl::Status Barrier() { return bootstrap_->Exchange("").status(); }

  // Allocates device memory, which only Free frees.
  absl::StatusOr<CUdeviceptr> Allocate(size_t bytes) const;
  absl::Status Free(CUdeviceptr data) const { return cuda_->MemFree(data); }
  // Copies on the stream, and waits for it.
  absl::Status Put(const std::vector<float>& values, CUdeviceptr data) const;
  absl::StatusOr<std::vector<float>> Get(CUdeviceptr data, size_t count) const;
  absl::Status Synchronize() const { return cuda_->StreamSynchronize(stream_); }

 private:
  RawRank() = default;

  std::unique_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<const CudaDriver> cuda_;
  std::shared_ptr<const NcclLibrary> nccl_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

// A communicator of all ranks.
class RawComm {
 public:
  // kHybrid: a blocking communicator split from a non-blocking one.
  enum class Kind { kBlocking, kNonBlocking, kHybrid };
  static constexpr std::array kKinds = {Kind::kBlocking, Kind::kNonBlocking, Kind::kHybrid};

  // Collective, with a first all-reduce in which NCCL makes its connections. `ctas`: the largest
  // number of CTAs.
  static absl::StatusOr<std::unique_ptr<RawComm>> Create(RawRank& rank, Kind kind, int ctas = 1);

  ncclComm_t handle() const { return comm_; }
  // In place, on floats, on the rank's stream; returns once NCCL is done with the call.
  absl::Status AllReduce(CUdeviceptr data, size_t count) const;
  // The communicator's current state.
  absl::StatusOr<ncclResult_t> State() const;
  // Polls until NCCL is done with a call that returned `result`.
  absl::Status Settle(ncclResult_t result, const char* function) const {
    return SettleOf(comm_, result, function);
  }
  // Finalizes and destroys; collective.
  absl::Status End();
  // Aborts it, and the communicator that it was split from, in one group. May be called on any
  // thread that uses the rank's context.
  absl::Status Abort();

 private:
  explicit RawComm(RawRank& rank) : rank_(rank) {}
  absl::Status Init(Kind kind, int ctas);
  absl::Status SettleOf(ncclComm_t comm, ncclResult_t result, const char* function) const;
  absl::Status EndOf(ncclComm_t comm);

  RawRank& rank_;
  ncclComm_t root_ = nullptr;  // for kHybrid
  ncclComm_t comm_ = nullptr;
};

std::string_view Name(RawComm::Kind kind);  // "blocking", "non-blocking", "hybrid"

}  // namespace meshift

#endif  // MESHIFT_TESTS_GPU_RAW_COMM_H_
