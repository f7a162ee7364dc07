#include "comm/mpi/prepared.h"

#include <utility>

#include "base/status_macros.h"

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
  work->dtype_ = dtype;
  const auto add = [&](absl::Span<const ProgramMessage> from, std::vector<Message>* messages) {
    for (const ProgramMessage& message : from) {
      messages->push_back({message.peer, work->PlaceOf(message.at), message.count});
      work->bytes_ += Bytes(dtype, message.count);
    }
  };
  add(sends, &work->sends_);
  add(recvs, &work->recvs_);
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

void MpiPreparedWork::FillIn(const WorkBases& bases, absl::Span<const Message> from,
                             std::vector<PeerMessage>* messages) const {
  messages->clear();
  for (const Message& message : from) {
    // What is sent is not written to, which PeerMessage cannot say.
    messages->push_back({message.peer, const_cast<char*>(message.at.At(bases)), message.count});
  }
}

void MpiPreparedWork::FillIn(const WorkBases& bases, MpiCall* call) const {
  call->window = nullptr;
  call->kind = MpiCall::Kind::kSendRecv;
  call->dtype = dtype_;
  FillIn(bases, sends_, &call->sends);
  FillIn(bases, recvs_, &call->recvs);
}

}  // namespace meshift
