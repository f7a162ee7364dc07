#include "comm/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "comm/cuda/kernel_params.h"
#include "comm/cuda/kernels.h"
#include "comm/engine/collective_kind.h"
#include "comm/kernels/reduce.h"
#include "comm/nccl/call_buffers.h"
#include "comm/nccl/context.h"
#include "comm/nccl/native_reduction.h"
#include "comm/nccl/streams.h"
#include "comm/nccl/symmetric.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using nccl_internal::At;
using nccl_internal::BytesOf;
using nccl_internal::CheckBuffers;

// All-reduces with contributions of at most this many bytes in total gather instead of using
// slices: saving a collective is worth more than the additional bytes.
constexpr int64_t kGatherBytes = 64 << 10;
// Slices begin at multiples of this number of elements, hence of 16 bytes.
constexpr int64_t kSliceAlignment = 16;

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclContext> context,
                                   std::shared_ptr<NcclGroup> group)
    : context_(std::move(context)), group_(std::move(group)) {}

NcclCommunicator::~NcclCommunicator() {
  if (scratch_.memory != 0) context_->device().FreeLater(scratch_.memory, scratch_.done);
  for (const CUdeviceptr memory : in_graphs_) context_->device().FreeLater(memory, nullptr);
}

std::string NcclCommunicator::ToString() const {
  return fmt::format("nccl {}, member {}", group_->ToString(), group_->member);
}

void NcclCommunicator::Abort() {
  context_
      ->Fail(absl::AbortedError(
          fmt::format("rank {} aborted {}", context_->rank(), group_->ToString())))
      .IgnoreError();
}

absl::Status NcclCommunicator::Launch(const LaunchText& text, NcclStream& stream,
                                      absl::FunctionRef<NcclResult()> issue) {
  return context_->Launch(group_, text, stream.state(), issue);
}

absl::Status NcclCommunicator::AllReduce(const void* send, void* recv, int64_t count, DType dtype,
                                         const Reduction& reduction, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(NcclStream * own, NcclStream::Of(stream, *context_));
  MESHIFT_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  MESHIFT_RETURN_IF_ERROR(CheckBuffers("all_reduce", count, send, recv));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  if (count == 0) return absl::OkStatus();
  const CudaDevice::Scope scope(context_->device());
  const std::optional<NativeReduction> native = NativeReductionOf(dtype, reduction);
  if (!native) return AllReduceSliced(send, recv, count, dtype, reduction, *own);
  const int64_t parts = count * native->parts;
  MESHIFT_RETURN_IF_ERROR(
      Launch({CollectiveKind::kAllReduce, count, dtype}, *own, [&]() -> NcclResult {
        return {context_->nccl().AllReduce(send, recv, static_cast<size_t>(parts), native->type,
                                           native->op, group_->comm(), own->handle()),
                "ncclAllReduce"};
      }));
  if (!native->divide) return absl::OkStatus();
  return context_->device().kernels().Scale(recv, recv, parts, native->dtype, reduction.divisor,
                                            own->handle());
}

absl::Status NcclCommunicator::ReduceScatter(const void* send, void* recv, int64_t recv_count,
                                             DType dtype, const Reduction& reduction,
                                             Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(NcclStream * own, NcclStream::Of(stream, *context_));
  MESHIFT_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  MESHIFT_RETURN_IF_ERROR(CheckBuffers("reduce_scatter", recv_count, send, recv));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  if (recv_count == 0) return absl::OkStatus();
  const CudaDevice::Scope scope(context_->device());
  const std::optional<NativeReduction> native = NativeReductionOf(dtype, reduction);
  if (!native) {
    begins_.clear();
    for (int64_t i = 0; i <= size(); ++i) begins_.push_back(i * recv_count);
    return ReduceScatterSliced(send, recv, begins_, dtype, reduction, *own);
  }
  const int64_t parts = recv_count * native->parts;
  MESHIFT_RETURN_IF_ERROR(
      Launch({CollectiveKind::kReduceScatter, recv_count, dtype}, *own, [&]() -> NcclResult {
        return {context_->nccl().ReduceScatter(send, recv, static_cast<size_t>(parts), native->type,
                                               native->op, group_->comm(), own->handle()),
                "ncclReduceScatter"};
      }));
  if (!native->divide) return absl::OkStatus();
  return context_->device().kernels().Scale(recv, recv, parts, native->dtype, reduction.divisor,
                                            own->handle());
}

absl::Status NcclCommunicator::AllGather(const void* send, void* recv, int64_t send_count,
                                         DType dtype, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(NcclStream * own, NcclStream::Of(stream, *context_));
  MESHIFT_RETURN_IF_ERROR(CheckBuffers("all_gather", send_count, send, recv));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  if (send_count == 0) return absl::OkStatus();
  return Launch({CollectiveKind::kAllGather, send_count, dtype}, *own, [&]() -> NcclResult {
    return {context_->nccl().AllGather(send, recv, BytesOf(dtype, send_count), ncclUint8,
                                       group_->comm(), own->handle()),
            "ncclAllGather"};
  });
}

absl::Status NcclCommunicator::AllToAll(const void* send, void* recv, int64_t count, DType dtype,
                                        Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(NcclStream * own, NcclStream::Of(stream, *context_));
  MESHIFT_RETURN_IF_ERROR(CheckBuffers("all_to_all", count, send, recv));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  if (count == 0) return absl::OkStatus();
  const LaunchText text{CollectiveKind::kAllToAll, count, dtype};
  if (context_->nccl().AlltoAll != nullptr) {
    return Launch(text, *own, [&]() -> NcclResult {
      return {context_->nccl().AlltoAll(send, recv, BytesOf(dtype, count), ncclUint8,
                                        group_->comm(), own->handle()),
              "ncclAlltoAll"};
    });
  }
  sends_.clear();
  recvs_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t offset = Bytes(dtype, peer * count);
    sends_.push_back({peer, const_cast<char*>(At(send, offset)), count});
    recvs_.push_back({peer, At(recv, offset), count});
  }
  return Exchange(text, sends_, recvs_, dtype, *own);
}

absl::Status NcclCommunicator::CheckMessages(absl::Span<const PeerMessage> messages) const {
  for (const PeerMessage& message : messages) {
    if (message.peer < 0 || message.peer >= size() || message.peer == rank()) {
      return InvalidArgument(
          "send_recv: member {} of {} has peer {}; a peer must be another member, 0 to {}", rank(),
          group_->ToString(), message.peer, size() - 1);
    }
    MESHIFT_RETURN_IF_ERROR(CheckBuffers("send_recv", message.count, message.data, message.data));
  }
  return absl::OkStatus();
}

absl::Status NcclCommunicator::SendRecv(absl::Span<const PeerMessage> sends,
                                        absl::Span<const PeerMessage> recvs, DType dtype,
                                        Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(NcclStream * own, NcclStream::Of(stream, *context_));
  MESHIFT_RETURN_IF_ERROR(CheckMessages(sends));
  MESHIFT_RETURN_IF_ERROR(CheckMessages(recvs));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  int64_t count = 0;
  for (const PeerMessage& message : sends) count += message.count;
  return Exchange({CollectiveKind::kSendRecv, count, dtype}, sends, recvs, dtype, *own);
}

absl::Status NcclCommunicator::Exchange(const LaunchText& text, absl::Span<const PeerMessage> sends,
                                        absl::Span<const PeerMessage> recvs, DType dtype,
                                        NcclStream& stream) {
  const auto is_empty = [](const PeerMessage& message) { return message.count == 0; };
  // Only the two peers of a message take part in it, so a member without messages makes no call.
  if (std::all_of(sends.begin(), sends.end(), is_empty) &&
      std::all_of(recvs.begin(), recvs.end(), is_empty)) {
    return absl::OkStatus();
  }
  const NcclLibrary& nccl = context_->nccl();
  return LaunchGroup(text, stream, [&](const KeepResult& keep) {
    for (const PeerMessage& message : sends) {
      if (message.count == 0) continue;
      keep(nccl.Send(message.data, BytesOf(dtype, message.count), ncclUint8, message.peer,
                     group_->comm(), stream.handle()),
           "ncclSend");
    }
    for (const PeerMessage& message : recvs) {
      if (message.count == 0) continue;
      keep(nccl.Recv(message.data, BytesOf(dtype, message.count), ncclUint8, message.peer,
                     group_->comm(), stream.handle()),
           "ncclRecv");
    }
  });
}

absl::Status NcclCommunicator::LaunchGroup(const LaunchText& text, NcclStream& stream,
                                           absl::FunctionRef<void(const KeepResult&)> issue) {
  const NcclLibrary& nccl = context_->nccl();
  return Launch(text, stream, [&]() -> NcclResult {
    NcclResult failed;
    const ncclResult_t start = nccl.GroupStart();
    if (start != ncclSuccess) return {start, "ncclGroupStart"};
    issue([&](ncclResult_t code, const char* function) {
      if (code != ncclSuccess && code != ncclInProgress && failed.code == ncclSuccess) {
        failed = {code, function};
      }
    });
    const ncclResult_t end = nccl.GroupEnd();
    if (failed.code != ncclSuccess) return failed;
    return {end, "ncclGroupEnd"};
  });
}

absl::Status NcclCommunicator::Broadcast(void* data, int64_t count, DType dtype, int root,
                                         Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(NcclStream * own, NcclStream::Of(stream, *context_));
  if (root < 0 || root >= size()) {
    return InvalidArgument("broadcast: root {} is not a member of {}; expected 0 to {}", root,
                           group_->ToString(), size() - 1);
  }
  MESHIFT_RETURN_IF_ERROR(CheckBuffers("broadcast", count, data, data));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  if (count == 0) return absl::OkStatus();
  return Launch({CollectiveKind::kBroadcast, count, dtype}, *own, [&]() -> NcclResult {
    return {context_->nccl().Broadcast(data, data, BytesOf(dtype, count), ncclUint8, root,
                                       group_->comm(), own->handle()),
            "ncclBroadcast"};
  });
}

absl::Status NcclCommunicator::Barrier(Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(NcclStream * own, NcclStream::Of(stream, *context_));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  void* const barrier = reinterpret_cast<void*>(group_->barrier_memory);
  return Launch({CollectiveKind::kBarrier, 1, DType::kI32}, *own, [&]() -> NcclResult {
    return {context_->nccl().AllReduce(barrier, barrier, 1, ncclInt32, ncclSum, group_->comm(),
                                       own->handle()),
            "ncclAllReduce"};
  });
}

Communicator::SymmetricSupport NcclCommunicator::SupportOf(const SymmetricCall& call) const {
  if (!call.IsEven()) return SymmetricSupport::kNone;  // NCCL has no collective on unequal blocks
  if (call.kind == SymmetricCall::Kind::kAllGather) return SymmetricSupport::kSameBits;
  if (!NativeReductionOf(call.dtype, call.reduction)) return SymmetricSupport::kNone;
  // NCCL chooses the kernel, and with it the order of addition, by size.
  return IsExact(call.reduction.op, call.dtype) ? SymmetricSupport::kSameBits
                                                : SymmetricSupport::kOtherBits;
}

absl::Status NcclCommunicator::CallSymmetric(const SymmetricCall& call, Stream& stream) {
  MESHIFT_RETURN_IF_ERROR(CheckSymmetricCall(call, rank(), size()));
  for (const SymmetricPlace* place : {&call.send, &call.recv}) {
    const auto* buffer = dynamic_cast<const NcclSymmetricBuffer*>(place->buffer);
    if (buffer == nullptr || buffer->group() != group_.get()) {
      return InvalidArgument("{}: buffer {} is not one of {}", call.ToString(),
                             place->buffer->number(), group_->ToString());
    }
  }
  if (SupportOf(call) == SymmetricSupport::kNone) {
    return Unimplemented("{}: NCCL has no such call", call.ToString());
  }
  if (call.kind == SymmetricCall::Kind::kAllGather) {
    return AllGather(call.send.data(), call.recv.data(), call.counts[0], call.dtype, stream);
  }
  return ReduceScatter(call.send.data(), call.recv.data(), call.counts[0], call.dtype,
                       call.reduction, stream);
}

NcclCommunicator::Slices NcclCommunicator::SlicesOf(int64_t count, DType dtype) const {
  const int64_t bytes = Bytes(dtype, count);
  if (SaturatingMul(bytes, size()) <= kGatherBytes) return {.gather = true, .block_bytes = bytes};
  const int64_t slice = RoundUp(CeilDiv(count, size()), kSliceAlignment);
  return {.count = slice, .block_bytes = Bytes(dtype, slice)};
}

int64_t NcclCommunicator::ScratchBytes(ReduceCall call, int64_t count, DType dtype) const {
  if (call == ReduceCall::kAllReduce) return size() * SlicesOf(count, dtype).block_bytes;
  return size() * RoundUp(Bytes(dtype, count), kSliceAlignment);
}

absl::Status NcclCommunicator::Reserve(ReduceCall call, int64_t count, DType dtype,
                                       const Reduction& reduction) {
  MESHIFT_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  MESHIFT_RETURN_IF_ERROR(context_->Health());
  if (count <= 0 || NativeReductionOf(dtype, reduction)) return absl::OkStatus();
  const CudaDevice::Scope scope(context_->device());
  return GrowScratch(ScratchBytes(call, count, dtype), /*capturing=*/false);
}

absl::Status NcclCommunicator::AllReduceSliced(const void* send, void* recv, int64_t count,
                                               DType dtype, const Reduction& reduction,
                                               NcclStream& stream) {
  const Slices slices = SlicesOf(count, dtype);
  MESHIFT_ASSIGN_OR_RETURN(char* scratch,
                           TakeScratch(ScratchBytes(ReduceCall::kAllReduce, count, dtype), stream));
  if (slices.gather) {
    MESHIFT_RETURN_IF_ERROR(AllGather(send, scratch, count, dtype, stream));
    MESHIFT_RETURN_IF_ERROR(
        ReduceBlocks(nullptr, recv, count, slices.block_bytes, dtype, reduction, stream));
    return ScratchTaken(stream);
  }
  const auto offset = [&](int64_t member) {
    return Bytes(dtype, std::min(member * slices.count, count));
  };
  const auto size_of = [&](int64_t member) {
    return std::clamp<int64_t>(count - member * slices.count, 0, slices.count);
  };
  const int me = rank();
  sends_.clear();
  recvs_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == me) continue;
    sends_.push_back({peer, const_cast<char*>(At(send, offset(peer))), size_of(peer)});
    recvs_.push_back({peer, scratch + peer * slices.block_bytes, size_of(me)});
  }
  const LaunchText text{CollectiveKind::kAllReduce, count, dtype};
  MESHIFT_RETURN_IF_ERROR(Exchange(text, sends_, recvs_, dtype, stream));
  MESHIFT_RETURN_IF_ERROR(ReduceBlocks(At(send, offset(me)), At(recv, offset(me)), size_of(me),
                                       slices.block_bytes, dtype, reduction, stream));
  MESHIFT_RETURN_IF_ERROR(ScratchTaken(stream));
  if (count == size() * slices.count) {
    return AllGather(At(recv, offset(me)), recv, slices.count, dtype, stream);
  }
  sends_.clear();
  recvs_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == me) continue;
    sends_.push_back({peer, At(recv, offset(me)), size_of(me)});
    recvs_.push_back({peer, At(recv, offset(peer)), size_of(peer)});
  }
  return Exchange(text, sends_, recvs_, dtype, stream);
}

absl::Status NcclCommunicator::ReduceScatterSliced(const void* send, void* recv,
                                                   absl::Span<const int64_t> begins, DType dtype,
                                                   const Reduction& reduction, NcclStream& stream) {
  const int64_t recv_count = begins[rank() + 1] - begins[rank()];
  const int64_t block_bytes = RoundUp(Bytes(dtype, recv_count), kSliceAlignment);
  char* scratch = nullptr;
  if (recv_count > 0) {
    MESHIFT_ASSIGN_OR_RETURN(
        scratch, TakeScratch(ScratchBytes(ReduceCall::kReduceScatter, recv_count, dtype), stream));
  }
  const int me = rank();
  sends_.clear();
  recvs_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == me) continue;
    sends_.push_back({peer, const_cast<char*>(At(send, Bytes(dtype, begins[peer]))),
                      begins[peer + 1] - begins[peer]});
    recvs_.push_back({peer, scratch + peer * block_bytes, recv_count});
  }
  MESHIFT_RETURN_IF_ERROR(
      Exchange({CollectiveKind::kReduceScatter, recv_count, dtype}, sends_, recvs_, dtype, stream));
  if (recv_count == 0) return absl::OkStatus();
  MESHIFT_RETURN_IF_ERROR(ReduceBlocks(At(send, Bytes(dtype, begins[me])), recv, recv_count,
                                       block_bytes, dtype, reduction, stream));
  return ScratchTaken(stream);
}

absl::Status NcclCommunicator::ReduceBlocks(const void* own, void* out, int64_t count,
                                            int64_t block_bytes, DType dtype,
                                            const Reduction& reduction, NcclStream& stream) {
  if (count == 0) return absl::OkStatus();
  if (own != nullptr && size() > cuda::kMaxReduceInputs) {
    // With this many inputs the kernel needs equal distances, so copy the own block to scratch.
    const CUdeviceptr block = scratch_.memory + static_cast<CUdeviceptr>(rank() * block_bytes);
    MESHIFT_RETURN_IF_ERROR(context_->device().driver().MemcpyDtoDAsync(
        block, reinterpret_cast<CUdeviceptr>(own), BytesOf(dtype, count), stream.handle()));
    own = nullptr;
  }
  absl::InlinedVector<const void*, 16> inputs(size());
  for (int member = 0; member < size(); ++member) {
    inputs[member] = reinterpret_cast<const void*>(scratch_.memory +
                                                   static_cast<CUdeviceptr>(member * block_bytes));
  }
  if (own != nullptr) inputs[rank()] = own;
  return context_->device().kernels().ReduceBuffers(inputs, out, count, dtype, reduction,
                                                    stream.handle());
}

absl::Status NcclCommunicator::GrowScratch(int64_t bytes, bool capturing) {
  if (bytes <= scratch_.bytes) return absl::OkStatus();
  if (capturing) {
    return FailedPrecondition(
        "{} needs {} bytes of scratch memory and has {}: none can be allocated during graph "
        "capture; make the call once, or prepare its plan, before the capture",
        group_->ToString(), bytes, scratch_.bytes);
  }
  absl::StatusOr<CUdeviceptr> memory = context_->device().Allocate(bytes);
  if (!memory.ok()) {
    return Annotate(memory.status(), "scratch memory of " + group_->ToString());
  }
  if (scratch_.in_graph) {
    in_graphs_.push_back(scratch_.memory);
    if (scratch_.done != nullptr) context_->device().GiveEvent(scratch_.done, /*timed=*/false);
  } else if (scratch_.memory != 0) {
    context_->device().FreeLater(scratch_.memory, scratch_.done);
  }
  scratch_ = Scratch();
  scratch_.memory = *memory;
  scratch_.bytes = bytes;
  return absl::OkStatus();
}

absl::StatusOr<char*> NcclCommunicator::TakeScratch(int64_t bytes, NcclStream& stream) {
  CudaDevice& device = context_->device();
  MESHIFT_ASSIGN_OR_RETURN(const uint64_t capture, device.CaptureOf(stream.handle()));
  MESHIFT_RETURN_IF_ERROR(GrowScratch(bytes, /*capturing=*/capture != 0));
  // The caller orders a graph's launches against other work, so no wait crosses a capture's border.
  const DeviceStream* const last =
      capture == 0 ? scratch_.stream.get() : scratch_.captured_stream.get();
  if (last == nullptr || IsSameStream(*last, *stream.state())) {
    // The stream orders the uses.
  } else if (capture == 0) {
    MESHIFT_RETURN_IF_ERROR(device.driver().StreamWaitEvent(stream.handle(), scratch_.done, 0));
  } else if (capture == scratch_.capture) {
    MESHIFT_RETURN_IF_ERROR(context_->ChainCaptured(*last, stream.handle(), capture));
  }
  return reinterpret_cast<char*>(scratch_.memory);
}

absl::Status NcclCommunicator::ScratchTaken(NcclStream& stream) {
  CudaDevice& device = context_->device();
  MESHIFT_ASSIGN_OR_RETURN(const uint64_t capture, device.CaptureOf(stream.handle()));
  if (capture != 0) {
    scratch_.capture = capture;
    scratch_.captured_stream = stream.state();
    scratch_.in_graph = true;
    return absl::OkStatus();
  }
  scratch_.stream = stream.state();
  if (scratch_.done == nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(scratch_.done, device.TakeEvent(/*timed=*/false));
  }
  return device.driver().EventRecord(scratch_.done, stream.handle());
}

}  // namespace meshift
