#include "comm/local/local_communicator.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/local/collective.h"
#include "comm/local/group.h"
#include "comm/local/scheduler.h"
#include "comm/local/symmetric.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

namespace {

using Kind = CollectiveCall::Kind;

MemberCall CallOf(Kind kind, DType dtype, int64_t count, const void* send, void* recv,
                  const Reduction& reduction = {}) {
  MemberCall call;
  call.call.kind = kind;
  call.call.dtype = dtype;
  call.call.count = count;
  call.call.reduction = reduction;
  call.buffers = {send, recv};
  return call;
}

MemberCall RaggedCallOf(Kind kind, DType dtype, absl::Span<const int64_t> counts, const void* send,
                        void* recv, const Reduction& reduction = {}) {
  MemberCall call = CallOf(kind, dtype, 0, send, recv, reduction);
  call.call.begins.assign(1, 0);
  for (const int64_t count : counts) {
    call.call.begins.push_back(SaturatingAdd(call.call.begins.back(), count));
  }
  call.call.count = call.call.begins.back();
  return call;
}

}  // namespace

absl::StatusOr<LocalStream*> AsLocalStream(Stream& stream, const Scheduler& scheduler,
                                           int64_t rank) {
  auto* local = dynamic_cast<LocalStream*>(&stream);
  if (local == nullptr || &local->scheduler() != &scheduler) {
    return InvalidArgument("the stream does not belong to the world of rank {}", rank);
  }
  if (local->rank() != rank) {
    return InvalidArgument("the stream belongs to rank {}, not to rank {}", local->rank(), rank);
  }
  return local;
}

LocalCommunicator::LocalCommunicator(std::shared_ptr<Scheduler> scheduler,
                                     const ReductionSettings* settings,
                                     std::shared_ptr<Group> group, int member)
    : scheduler_(std::move(scheduler)),
      settings_(settings),
      group_(std::move(group)),
      member_(member) {}

absl::Status LocalCommunicator::Post(MemberCall call, Stream& stream) {
  const auto local = AsLocalStream(stream, *scheduler_, group_->ranks()[member_]);
  const MutexLock lock(scheduler_->mutex());
  absl::Status status = local.status();
  if (status.ok()) {
    call.member = member_;
    call.stream = *local;
    status = group_->Call(*scheduler_, call, *settings_);
  } else {
    group_->Fail(*scheduler_, status);
  }
  scheduler_->AdvanceStreams();
  return status;
}

absl::Status LocalCommunicator::AllReduce(const void* send, void* recv, int64_t count, DType dtype,
                                          const Reduction& reduction, Stream& stream) {
  return Post(CallOf(Kind::kAllReduce, dtype, count, send, recv, reduction), stream);
}

absl::Status LocalCommunicator::ReduceScatter(const void* send, void* recv, int64_t recv_count,
                                              DType dtype, const Reduction& reduction,
                                              Stream& stream) {
  return Post(CallOf(Kind::kReduceScatter, dtype, recv_count, send, recv, reduction), stream);
}

absl::Status LocalCommunicator::AllGather(const void* send, void* recv, int64_t send_count,
                                          DType dtype, Stream& stream) {
  return Post(CallOf(Kind::kAllGather, dtype, send_count, send, recv), stream);
}

absl::Status LocalCommunicator::ReduceScatterV(const void* send, void* recv,
                                               absl::Span<const int64_t> counts, DType dtype,
                                               const Reduction& reduction, Stream& stream) {
  return Post(RaggedCallOf(Kind::kReduceScatter, dtype, counts, send, recv, reduction), stream);
}

absl::Status LocalCommunicator::AllGatherV(const void* send, void* recv,
                                           absl::Span<const int64_t> counts, DType dtype,
                                           Stream& stream) {
  return Post(RaggedCallOf(Kind::kAllGather, dtype, counts, send, recv), stream);
}

absl::Status LocalCommunicator::AllToAll(const void* send, void* recv, int64_t count, DType dtype,
                                         Stream& stream) {
  return Post(CallOf(Kind::kAllToAll, dtype, count, send, recv), stream);
}

absl::Status LocalCommunicator::SendRecv(absl::Span<const PeerMessage> sends,
                                         absl::Span<const PeerMessage> recvs, DType dtype,
                                         Stream& stream) {
  MemberCall call = CallOf(Kind::kSendRecv, dtype, 0, nullptr, nullptr);
  call.sends = sends;
  call.recvs = recvs;
  return Post(call, stream);
}

absl::Status LocalCommunicator::Broadcast(void* data, int64_t count, DType dtype, int root,
                                          Stream& stream) {
  MemberCall call = CallOf(Kind::kBroadcast, dtype, count, nullptr, data);
  call.call.root = root;
  return Post(call, stream);
}

absl::Status LocalCommunicator::Barrier(Stream& stream) { return Post(MemberCall(), stream); }

absl::Status LocalCommunicator::CallSymmetric(const SymmetricCall& call, Stream& stream) {
  absl::Status status = CheckSymmetricCall(call, member_, size());
  for (const SymmetricPlace* place : {&call.send, &call.recv}) {
    const auto* buffer = dynamic_cast<const LocalSymmetricBuffer*>(place->buffer);
    if (status.ok() && (buffer == nullptr || buffer->group() != group_->id())) {
      status = InvalidArgument("{}: buffer {} is not one of {}", call.ToString(),
                               place->buffer->number(), group_->ToString());
    }
  }
  if (!status.ok()) {
    Fail(status);
    return status;
  }
  const bool gathers = call.kind == SymmetricCall::Kind::kAllGather;
  MemberCall made =
      RaggedCallOf(gathers ? Kind::kAllGather : Kind::kReduceScatter, call.dtype, call.counts,
                   call.send.data(), call.recv.data(), gathers ? Reduction() : call.reduction);
  made.call.symmetric_places = {call.send.buffer->number(), call.send.offset,
                                call.recv.buffer->number(), call.recv.offset};
  return Post(std::move(made), stream);
}

void LocalCommunicator::Fail(const absl::Status& status) {
  const MutexLock lock(scheduler_->mutex());
  group_->Fail(*scheduler_, status);
  scheduler_->AdvanceStreams();
}

void LocalCommunicator::Abort() {
  const MutexLock lock(scheduler_->mutex());
  group_->Abort(*scheduler_, group_->ranks()[member_]);
  scheduler_->AdvanceStreams();
}

absl::Status LocalCommunicator::Health() const {
  const MutexLock lock(scheduler_->mutex());
  return group_->status();
}

std::string LocalCommunicator::ToString() const {
  return fmt::format("local {}, member {}", group_->ToString(), member_);
}

}  // namespace meshift
