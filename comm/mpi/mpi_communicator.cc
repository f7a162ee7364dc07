#include "comm/mpi/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/checked_math.h"
#include "base/final_cast.h"
#include "base/status.h"
#include "comm/kernels/reduce.h"
#include "comm/mpi/symmetric.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = MpiCall::Kind;

absl::Status CheckMessages(const MpiGroup& group, absl::Span<const PeerMessage> messages,
                           const char* what) {
  bool ascends = true;
  for (size_t i = 0; i < messages.size(); ++i) {
    const PeerMessage& message = messages[i];
    if (message.peer < 0 || message.peer >= group.size() || message.peer == group.member()) {
      return InvalidArgument("{}: member {} {} {}; the peer must be another member, 0 to {}",
                             group.name(), group.member(), what, message.peer, group.size() - 1);
    }
    if (message.count < 0) {
      return InvalidArgument("{}: a message has {} elements; it must have 0 or more", group.name(),
                             message.count);
    }
    ascends = ascends && (i == 0 || messages[i - 1].peer < message.peer);
  }
  if (ascends) return absl::OkStatus();
  std::vector<int> peers;
  for (const PeerMessage& message : messages) peers.push_back(message.peer);
  std::sort(peers.begin(), peers.end());
  const auto twice = std::adjacent_find(peers.begin(), peers.end());
  if (twice == peers.end()) return absl::OkStatus();
  return InvalidArgument("{}: member {} {} {} twice", group.name(), group.member(), what, *twice);
}

}  // namespace

absl::Status CheckCount(const MpiGroup& group, int64_t count) {
  if (count >= 0) return absl::OkStatus();
  return InvalidArgument("{}: a count of {} is negative", group.name(), count);
}

absl::Status CheckCounts(const MpiGroup& group, absl::Span<const int64_t> counts) {
  int64_t all = 0;
  for (const int64_t count : counts) {
    MESHIFT_RETURN_IF_ERROR(CheckCount(group, count));
    all = SaturatingAdd(all, count);
  }
  if (all == INT64_MAX) {
    return InvalidArgument("{}: {} blocks have too many elements in all: {} or more", group.name(),
                           counts.size(), all);
  }
  if (static_cast<int>(counts.size()) == group.size()) return absl::OkStatus();
  return InvalidArgument("{}: the number of counts is {}; expected {}, one for each member",
                         group.name(), counts.size(), group.size());
}

absl::Status CheckPeers(const MpiGroup& group, absl::Span<const PeerMessage> sends,
                        absl::Span<const PeerMessage> recvs) {
  MESHIFT_RETURN_IF_ERROR(CheckMessages(group, sends, "sends to"));
  return CheckMessages(group, recvs, "receives from");
}

absl::StatusOr<MpiStream*> AsMpiStream(Stream& stream, const Progress& progress) {
  auto* mpi = FinalCast<MpiStream>(&stream);
  if (mpi == nullptr || &mpi->progress() != &progress) {
    return InvalidArgument("the stream belongs to another engine");
  }
  MESHIFT_RETURN_IF_ERROR(progress.MayCall());
  return mpi;
}

absl::Status RefuseCall(const absl::Status& status, MpiGroup& group, MpiStream& stream) {
  absl::Status error = group.Fail(status);
  auto task = stream.state()->NewTask();
  task->kind = MpiTask::Kind::kError;
  task->error = error;
  stream.Put(std::move(task));
  return error;
}

absl::Status MpiCommunicator::Call(Kind kind, const void* send, void* recv, int64_t count,
                                   DType dtype, Stream& stream, const Reduction* reduction,
                                   int root) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpiStream(stream, *progress_));
  if (group_->ended()) return Refuse(group_->Health(), *mpi);
  absl::Status status = CheckCount(*group_, count);
  if (reduction != nullptr && status.ok()) status = CheckReduction(dtype, *reduction);
  if (root < 0 || root >= size()) {
    status = InvalidArgument("{}: root {} is not a member; expected 0 to {}", group_->name(), root,
                             size() - 1);
  }
  if (count > 0 && (recv == nullptr || (send == nullptr && kind != Kind::kBroadcast))) {
    status = InvalidArgument("{}: a buffer of {} elements is null", group_->name(), count);
  }
  if (!status.ok()) return Refuse(status, *mpi);
  return Put(kind, send, recv, count, {}, dtype, reduction, root, *mpi);
}

absl::Status MpiCommunicator::CallV(Kind kind, const void* send, void* recv,
                                    absl::Span<const int64_t> counts, DType dtype, Stream& stream,
                                    const Reduction* reduction) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpiStream(stream, *progress_));
  if (group_->ended()) return Refuse(group_->Health(), *mpi);
  int64_t all = 0;
  for (const int64_t count : counts) all = SaturatingAdd(all, count);
  absl::Status status = CheckCounts(*group_, counts);
  if (reduction != nullptr && status.ok()) status = CheckReduction(dtype, *reduction);
  // One buffer has this member's block, the other has all blocks.
  const bool gathers = kind == Kind::kAllGather;
  const void* const own = gathers ? send : recv;
  const void* const whole = gathers ? recv : send;
  if (status.ok() && ((counts[rank()] > 0 && own == nullptr) || (all > 0 && whole == nullptr))) {
    status = InvalidArgument("{}: a buffer of {} elements is null", group_->name(),
                             whole == nullptr ? all : counts[rank()]);
  }
  if (!status.ok()) return Refuse(status, *mpi);
  return Put(kind, send, recv, all, counts, dtype, reduction, /*root=*/0, *mpi);
}

std::unique_ptr<MpiTask> MpiCommunicator::NewCall(Kind kind, DType dtype, MpiStream& stream) {
  auto task = stream.state()->NewTask();
  task->kind = MpiTask::Kind::kCollective;
  task->group = group_.get();
  task->owner = group_;
  task->number = group_->TakeNumber();
  task->progress_count = -1;
  MpiCall& call = task->operation.call();
  call.window = nullptr;
  call.kind = kind;
  call.dtype = dtype;
  call.root = 0;
  return task;
}

absl::Status MpiCommunicator::Put(Kind kind, const void* send, void* recv, int64_t count,
                                  absl::Span<const int64_t> counts, DType dtype,
                                  const Reduction* reduction, int root, MpiStream& stream) {
  auto task = NewCall(kind, dtype, stream);
  MpiCall& call = task->operation.call();
  call.root = root;
  call.send = static_cast<const char*>(send);
  call.recv = static_cast<char*>(recv);
  call.count = count;
  call.begins.clear();
  if (!counts.empty()) call.SetBlocks(counts);
  if (reduction != nullptr) call.reduction = *reduction;
  stream.Put(std::move(task));
  return absl::OkStatus();
}

absl::Status MpiCommunicator::AllReduce(const void* send, void* recv, int64_t count, DType dtype,
                                        const Reduction& reduction, Stream& stream) {
  return Call(Kind::kAllReduce, send, recv, count, dtype, stream, &reduction);
}

absl::Status MpiCommunicator::ReduceScatter(const void* send, void* recv, int64_t recv_count,
                                            DType dtype, const Reduction& reduction,
                                            Stream& stream) {
  return Call(Kind::kReduceScatter, send, recv, recv_count, dtype, stream, &reduction);
}

absl::Status MpiCommunicator::AllGather(const void* send, void* recv, int64_t send_count,
                                        DType dtype, Stream& stream) {
  return Call(Kind::kAllGather, send, recv, send_count, dtype, stream);
}

absl::Status MpiCommunicator::ReduceScatterV(const void* send, void* recv,
                                             absl::Span<const int64_t> counts, DType dtype,
                                             const Reduction& reduction, Stream& stream) {
  return CallV(Kind::kReduceScatter, send, recv, counts, dtype, stream, &reduction);
}

absl::Status MpiCommunicator::AllGatherV(const void* send, void* recv,
                                         absl::Span<const int64_t> counts, DType dtype,
                                         Stream& stream) {
  return CallV(Kind::kAllGather, send, recv, counts, dtype, stream);
}

absl::Status MpiCommunicator::AllToAll(const void* send, void* recv, int64_t count, DType dtype,
                                       Stream& stream) {
  return Call(Kind::kAllToAll, send, recv, count, dtype, stream);
}

absl::Status MpiCommunicator::SendRecv(absl::Span<const PeerMessage> sends,
                                       absl::Span<const PeerMessage> recvs, DType dtype,
                                       Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpiStream(stream, *progress_));
  absl::Status status = group_->Health();
  if (status.ok()) status = CheckPeers(*group_, sends, recvs);
  for (const absl::Span<const PeerMessage> messages : {sends, recvs}) {
    for (const PeerMessage& message : messages) {
      if (!status.ok() || message.count == 0 || message.data != nullptr) continue;
      status =
          InvalidArgument("{}: a message of {} elements is null", group_->name(), message.count);
    }
  }
  if (!status.ok()) return Refuse(status, *mpi);
  auto task = NewCall(Kind::kSendRecv, dtype, *mpi);
  MpiCall& call = task->operation.call();
  call.sends.assign(sends.begin(), sends.end());
  call.recvs.assign(recvs.begin(), recvs.end());
  mpi->Put(std::move(task));
  return absl::OkStatus();
}

absl::Status MpiCommunicator::Broadcast(void* data, int64_t count, DType dtype, int root,
                                        Stream& stream) {
  return Call(Kind::kBroadcast, nullptr, data, count, dtype, stream, nullptr, root);
}

absl::Status MpiCommunicator::Barrier(Stream& stream) {
  return Call(Kind::kBarrier, nullptr, nullptr, 0, DType::kU8, stream);
}

absl::Status MpiCommunicator::CallSymmetric(const SymmetricCall& call, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpiStream(stream, *progress_));
  const bool reduces = call.kind == SymmetricCall::Kind::kReduceScatter;
  absl::Status status = group_->Health();
  if (status.ok()) status = CheckSymmetricCall(call, rank(), size());
  if (status.ok() && reduces) status = CheckReduction(call.dtype, call.reduction);
  for (const SymmetricPlace* place : {&call.send, &call.recv}) {
    const auto* buffer = dynamic_cast<const MpiSymmetricBuffer*>(place->buffer);
    if (status.ok() && (buffer == nullptr || buffer->window()->group() != group_.get())) {
      status = InvalidArgument("{}: buffer {} is not one of {}", call.ToString(),
                               place->buffer->number(), group_->name());
    }
  }
  if (!status.ok()) return Refuse(status, *mpi);
  const auto& send = static_cast<const MpiSymmetricBuffer&>(*call.send.buffer);
  auto task = NewCall(reduces ? Kind::kReduceScatter : Kind::kAllGather, call.dtype, *mpi);
  MpiCall& made = task->operation.call();
  made.reduction = call.reduction;
  made.send = call.send.data();
  made.recv = call.recv.data();
  made.SetBlocks(call.counts);
  made.window = send.window();
  made.buffer = send.index();
  made.offset = call.send.offset;
  made.number = task->number + 1;
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const int64_t count : call.counts) {
    hash = (hash ^ static_cast<uint64_t>(count)) * 1099511628211U;
  }
  made.compared_arguments = {static_cast<int64_t>(made.kind),
                             static_cast<int64_t>(call.dtype),
                             reduces ? static_cast<int64_t>(call.reduction.op) : 0,
                             reduces ? call.reduction.divisor : 0,
                             made.count,
                             static_cast<int64_t>(hash),
                             call.send.buffer->number(),
                             call.send.offset,
                             call.recv.buffer->number(),
                             call.recv.offset};
  mpi->Put(std::move(task));
  return absl::OkStatus();
}

void MpiCommunicator::Abort() {
  group_
      ->Fail(absl::AbortedError(fmt::format("{} was aborted by rank {}", group_->name(),
                                            group_->rank_of(group_->member()))))
      .IgnoreError();
}

std::string MpiCommunicator::ToString() const { return group_->name(); }

}  // namespace meshift
