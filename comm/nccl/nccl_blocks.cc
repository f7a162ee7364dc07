// Implements ReduceScatterV and AllGatherV of NcclCommunicator (nccl_communicator.h), for blocks of
// unequal sizes. INVALID_ARGUMENT: a stream of another engine, an invalid reduction, a wrong number
// of counts, a negative count or a null buffer.
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "comm/cuda/kernels.h"
#include "comm/engine/collective_kind.h"
#include "comm/kernels/reduce.h"
#include "comm/nccl/call_buffers.h"
#include "comm/nccl/context.h"
#include "comm/nccl/native_reduction.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/streams.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/status.h"

namespace meshift {

using nccl_internal::At;
using nccl_internal::BytesOf;
using nccl_internal::CheckBuffers;

absl::Status NcclCommunicator::SetBegins(std::string_view call, absl::Span<const int64_t> counts) {
  if (static_cast<int>(counts.size()) != size()) {
    return InvalidArgument("{}: the number of counts is {}; expected {}, one for each member of {}",
                           call, counts.size(), size(), group_->ToString());
  }
  begins_.assign(1, 0);
  for (const int64_t count : counts) {
    if (count < 0) {
      return InvalidArgument("{} of {} elements: the count is negative", call, count);
    }
    begins_.push_back(SaturatingAdd(begins_.back(), count));
  }
  return absl::OkStatus();
}

// If NCCL has the reduction, one NCCL group of reductions, one to each member with a block that is
// not empty. Else ReduceScatterSliced().
absl::Status NcclCommunicator::ReduceScatterV(const void* send, void* recv,
                                              absl::Span<const int64_t> counts, DType dtype,
                                              const Reduction& reduction, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(NcclStream * own, NcclStream::Of(stream, *context_));
  MESHIFT_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  MESHIFT_RETURN_IF_ERROR(SetBegins("reduce_scatter", counts));
  const int64_t all = begins_.back();
  const int64_t mine = counts[rank()];
  MESHIFT_RETURN_IF_ERROR(CheckBuffers("reduce_scatter", all, send, send));
  MESHIFT_RETURN_IF_ERROR(CheckBuffers("reduce_scatter", mine, recv, recv));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  if (all == 0) return absl::OkStatus();
  const CudaDevice::Scope scope(context_->device());
  const std::optional<NativeReduction> native = NativeReductionOf(dtype, reduction);
  if (!native) return ReduceScatterSliced(send, recv, begins_, dtype, reduction, *own);
  const NcclLibrary& nccl = context_->nccl();
  MESHIFT_RETURN_IF_ERROR(
      LaunchGroup({CollectiveKind::kReduceScatter, all, dtype}, *own, [&](const KeepResult& keep) {
        for (int root = 0; root < size(); ++root) {
          if (counts[root] == 0) continue;
          const char* const block = At(send, Bytes(dtype, begins_[root]));
          keep(nccl.Reduce(block, root == rank() ? recv : const_cast<char*>(block),
                           static_cast<size_t>(counts[root] * native->parts), native->type,
                           native->op, root, group_->comm(), own->handle()),
               "ncclReduce");
        }
      }));
  if (!native->divide || mine == 0) return absl::OkStatus();
  return context_->device().kernels().Scale(recv, recv, mine * native->parts, native->dtype,
                                            reduction.divisor, own->handle());
}

// One NCCL group of broadcasts, one from each member with a block that is not empty.
absl::Status NcclCommunicator::AllGatherV(const void* send, void* recv,
                                          absl::Span<const int64_t> counts, DType dtype,
                                          Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(NcclStream * own, NcclStream::Of(stream, *context_));
  MESHIFT_RETURN_IF_ERROR(SetBegins("all_gather", counts));
  const int64_t all = begins_.back();
  MESHIFT_RETURN_IF_ERROR(CheckBuffers("all_gather", counts[rank()], send, send));
  MESHIFT_RETURN_IF_ERROR(CheckBuffers("all_gather", all, recv, recv));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  if (all == 0) return absl::OkStatus();
  const NcclLibrary& nccl = context_->nccl();
  return LaunchGroup({CollectiveKind::kAllGather, all, dtype}, *own, [&](const KeepResult& keep) {
    for (int root = 0; root < size(); ++root) {
      if (counts[root] == 0) continue;
      char* const block = At(recv, Bytes(dtype, begins_[root]));
      keep(nccl.Broadcast(root == rank() ? send : block, block, BytesOf(dtype, counts[root]),
                          ncclUint8, root, group_->comm(), own->handle()),
           "ncclBroadcast");
    }
  });
}

}  // namespace meshift
