#include "tests/gpu/raw_comm.h"

#include <cuda.h>
#include <nccl.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/cuda/driver.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/bootstrap.h"
#include "meshift/status.h"

namespace meshift {

absl::StatusOr<std::unique_ptr<RawRank>> RawRank::Create() {
  std::unique_ptr<RawRank> rank(new RawRank());
  MESHIFT_ASSIGN_OR_RETURN(rank->bootstrap_, Bootstrap::FromTorchrun());
  MESHIFT_ASSIGN_OR_RETURN(rank->cuda_, CudaDriver::Load());
  MESHIFT_ASSIGN_OR_RETURN(rank->nccl_, NcclLibrary::Load());
  MESHIFT_RETURN_IF_ERROR(rank->cuda_->InitAndCountDevices().status());
  MESHIFT_RETURN_IF_ERROR(rank->cuda_->DeviceGet(&rank->device_, 0));
  MESHIFT_RETURN_IF_ERROR(rank->cuda_->DevicePrimaryCtxRetain(&rank->context_, rank->device_));
  MESHIFT_RETURN_IF_ERROR(rank->UseHere());
  MESHIFT_RETURN_IF_ERROR(rank->cuda_->StreamCreate(&rank->stream_, CU_STREAM_NON_BLOCKING));
  return rank;
}

RawRank::~RawRank() {
  if (stream_ != nullptr) cuda_->StreamDestroy(stream_).IgnoreError();
  if (context_ == nullptr) return;
  cuda_->CtxSetCurrent(nullptr).IgnoreError();
  cuda_->DevicePrimaryCtxRelease(device_).IgnoreError();
}

absl::StatusOr<CUdeviceptr> RawRank::Allocate(size_t bytes) const {
  CUdeviceptr data = 0;
  MESHIFT_RETURN_IF_ERROR(cuda_->MemAlloc(&data, bytes));
  return data;
}

absl::Status RawRank::Put(const std::vector<float>& values, CUdeviceptr data) const {
  MESHIFT_RETURN_IF_ERROR(
      cuda_->MemcpyHtoDAsync(data, values.data(), values.size() * sizeof(float), stream_));
  return Synchronize();
}

absl::StatusOr<std::vector<float>> RawRank::Get(CUdeviceptr data, size_t count) const {
  std::vector<float> values(count);
  MESHIFT_RETURN_IF_ERROR(
      cuda_->MemcpyDtoHAsync(values.data(), data, count * sizeof(float), stream_));
  MESHIFT_RETURN_IF_ERROR(Synchronize());
  return values;
}

absl::StatusOr<std::unique_ptr<RawComm>> RawComm::Create(RawRank& rank, Kind kind, int ctas) {
  std::unique_ptr<RawComm> comm(new RawComm(rank));
  MESHIFT_RETURN_IF_ERROR(comm->Init(kind, ctas));
  MESHIFT_ASSIGN_OR_RETURN(const CUdeviceptr data, rank.Allocate(2 * sizeof(float)));
  MESHIFT_RETURN_IF_ERROR(rank.Put({0, 0}, data));
  MESHIFT_RETURN_IF_ERROR(comm->AllReduce(data, 2));
  MESHIFT_RETURN_IF_ERROR(rank.Synchronize());
  MESHIFT_RETURN_IF_ERROR(rank.Free(data));
  return comm;
}

absl::Status RawComm::Init(Kind kind, int ctas) {
  const NcclLibrary& nccl = rank_.nccl();
  ncclUniqueId id = {};
  if (rank_.rank() == 0) {
    MESHIFT_RETURN_IF_ERROR(nccl.Check(nccl.GetUniqueId(&id), "ncclGetUniqueId"));
  }
  MESHIFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> ids,
      rank_.bootstrap().Exchange(std::string(id.internal, sizeof(id.internal))));
  std::memcpy(id.internal, ids[0].data(), sizeof(id.internal));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = kind == Kind::kBlocking ? 1 : 0;
  config.minCTAs = 1;
  config.maxCTAs = ctas;
  ncclComm_t made = nullptr;
  const ncclResult_t result =
      nccl.CommInitRankConfig(&made, rank_.ranks(), id, rank_.rank(), &config);
  (kind == Kind::kHybrid ? root_ : comm_) = made;
  MESHIFT_RETURN_IF_ERROR(SettleOf(made, result, "ncclCommInitRankConfig"));
  if (kind != Kind::kHybrid) return absl::OkStatus();
  config.blocking = 1;
  MESHIFT_RETURN_IF_ERROR(
      SettleOf(root_, nccl.CommSplit(root_, 0, rank_.rank(), &comm_, &config), "ncclCommSplit"));
  return SettleOf(comm_, ncclInProgress, "ncclCommSplit");
}

absl::Status RawComm::SettleOf(ncclComm_t comm, ncclResult_t result, const char* function) const {
  const NcclLibrary& nccl = rank_.nccl();
  // A split may return ncclSuccess and continue in the background.
  if (result == ncclSuccess) result = ncclInProgress;
  while (result == ncclInProgress) {
    const ncclResult_t query = nccl.CommGetAsyncError(comm, &result);
    if (query != ncclSuccess) result = query;
    if (result == ncclInProgress) std::this_thread::yield();  // NCCL's thread may want the core
  }
  return nccl.Check(result, function, comm);
}

absl::Status RawComm::AllReduce(CUdeviceptr data, size_t count) const {
  void* const at = reinterpret_cast<void*>(data);
  const ncclResult_t result = rank_.nccl().AllReduce(
      at, at, count, ncclFloat32, ncclSum, comm_, reinterpret_cast<cudaStream_t>(rank_.stream()));
  // A blocking communicator is done with the call.
  if (result == ncclSuccess) [[likely]] {
    return absl::OkStatus();
  }
  return result == ncclInProgress ? Settle(result, "ncclAllReduce")
                                  : rank_.nccl().Check(result, "ncclAllReduce", comm_);
}

absl::StatusOr<ncclResult_t> RawComm::State() const {
  ncclResult_t state = ncclSuccess;
  MESHIFT_RETURN_IF_ERROR(
      rank_.nccl().Check(rank_.nccl().CommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
  return state;
}

absl::Status RawComm::EndOf(ncclComm_t comm) {
  if (comm == nullptr) return absl::OkStatus();
  const NcclLibrary& nccl = rank_.nccl();
  MESHIFT_RETURN_IF_ERROR(SettleOf(comm, nccl.CommFinalize(comm), "ncclCommFinalize"));
  return nccl.Check(nccl.CommDestroy(comm), "ncclCommDestroy");
}

absl::Status RawComm::End() {
  MESHIFT_RETURN_IF_ERROR(EndOf(std::exchange(comm_, nullptr)));
  return EndOf(std::exchange(root_, nullptr));
}

absl::Status RawComm::Abort() {
  const NcclLibrary& nccl = rank_.nccl();
  MESHIFT_RETURN_IF_ERROR(nccl.Check(nccl.GroupStart(), "ncclGroupStart"));
  for (ncclComm_t* const comm : {&comm_, &root_}) {
    if (*comm == nullptr) continue;
    MESHIFT_RETURN_IF_ERROR(nccl.Check(nccl.CommAbort(*comm), "ncclCommAbort"));
    *comm = nullptr;
  }
  return nccl.Check(nccl.GroupEnd(), "ncclGroupEnd");
}

std::string_view Name(RawComm::Kind kind) {
  switch (kind) {
    case RawComm::Kind::kBlocking:
      return "blocking";
    case RawComm::Kind::kNonBlocking:
      return "non-blocking";
    case RawComm::Kind::kHybrid:
      return "hybrid";
  }
  return "";
}

}  // namespace meshift
