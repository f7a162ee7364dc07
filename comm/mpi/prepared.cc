#include "comm/mpi/prepared.h"

#include <cstddef>
#include <utility>

#include "meshift/status.h"

namespace meshift {

absl::StatusOr<std::shared_ptr<const MpiPreparedWork>> MpiPreparedWork::OfCopies(
    absl::Span<const ProgramCopy> copies, DType dtype) {
  auto work = std::make_shared<MpiPreparedWork>();
  for (const ProgramCopy& copy : copies) {
    StridedCopy ready;
    MESHIFT_RETURN_IF_ERROR(ready.Lay(copy.shape, copy.src_strides, copy.dst_strides, dtype));
    if (ready.bytes() == 0) continue;
    work->bytes_ += ready.bytes();
    work->copies_.push_back({std::move(ready), work->PlaceOf(copy.src), work->PlaceOf(copy.dst)});
  }
  return work;
}

std::shared_ptr<const MpiPreparedWork> MpiPreparedWork::OfMessages(
    std::shared_ptr<MpiGroup> group, absl::Span<const ProgramMessage> sends,
    absl::Span<const ProgramMessage> recvs, DType dtype) {
  auto work = std::make_shared<MpiPreparedWork>();
  work->group_ = std::move(group);
  work->call_.kind = MpiCall::Kind::kSendRecv;
  work->call_.dtype = dtype;
  for (const ProgramMessage& message : sends) {
    work->call_.sends.push_back({message.peer, nullptr, message.count});
    work->sends_.push_back(work->PlaceOf(message.at));
  }
  for (const ProgramMessage& message : recvs) {
    work->call_.recvs.push_back({message.peer, nullptr, message.count});
    work->recvs_.push_back(work->PlaceOf(message.at));
  }
  work->bytes_ = work->call_.MessageBytes(work->group_->size());
  return work;
}

std::shared_ptr<const MpiPreparedWork> MpiPreparedWork::OfCollective(
    std::shared_ptr<MpiGroup> group, const Instruction& instruction,
    absl::Span<const int64_t> counts) {
  auto work = std::make_shared<MpiPreparedWork>();
  work->group_ = std::move(group);
  MpiCall& call = work->call_;
  const bool gathers = instruction.kind == Instruction::Kind::kAllGather;
  call.kind = gathers                                             ? MpiCall::Kind::kAllGather
              : instruction.kind == Instruction::Kind::kAllReduce ? MpiCall::Kind::kAllReduce
                                                                  : MpiCall::Kind::kReduceScatter;
  call.dtype = instruction.dtype;
  call.reduction = instruction.reduction;
  call.count = instruction.count;
  int64_t own = instruction.count;
  if (!counts.empty()) {
    call.SetBlocks(counts);
    own = counts[work->group_->member()];
  }
  // One side has this member's block, the other all.
  const auto place = [&](const Location& at, int64_t elements) {
    return elements > 0 ? work->PlaceOf(at) : Place{};
  };
  work->send_ = place(instruction.src, gathers ? own : call.count);
  work->recv_ = place(instruction.dst, gathers ? call.count : own);
  work->bytes_ = call.MessageBytes(work->group_->size());
  return work;
}

void MpiPreparedWork::FillIn(const WorkBases& bases, std::vector<StridedCopy>* copies) const {
  copies->resize(copies_.size());
  for (size_t i = 0; i < copies_.size(); ++i) {
    const Copy& copy = copies_[i];
    (*copies)[i] = copy.copy;
    // What is written lies in the target or the workspace, or in a source that may be scratch.
    (*copies)[i].Place(copy.src.At(bases), const_cast<char*>(copy.dst.At(bases)));
  }
}

void MpiPreparedWork::FillIn(const WorkBases& bases, MpiCall* call) const {
  *call = call_;
  // What is received is written to a target or a workspace, or to a source that may be scratch;
  // what is sent is not written to, which PeerMessage cannot say.
  call->send = send_.At(bases);
  call->recv = const_cast<char*>(recv_.At(bases));
  for (size_t i = 0; i < sends_.size(); ++i) {
    call->sends[i].data = const_cast<char*>(sends_[i].At(bases));
  }
  for (size_t i = 0; i < recvs_.size(); ++i) {
    call->recvs[i].data = const_cast<char*>(recvs_[i].At(bases));
  }
}

}  // namespace meshift
