#include "comm/mpi/executable.h"

#include <cstddef>

#include "base/status.h"
#include "comm/kernels/reduce.h"
#include "comm/mpi/mpi_communicator.h"
#include "meshift/status.h"

namespace meshift {

absl::Status MpiStep::SetCopies(absl::Span<const ProgramCopy> copies, DType dtype) {
  is_prepared_ = true;
  for (const ProgramCopy& copy : copies) {
    StridedCopy ready;
    MESHIFT_RETURN_IF_ERROR(ready.SetLayout(copy.shape, copy.src_strides, copy.dst_strides, dtype));
    if (ready.bytes() == 0) continue;
    bytes_ += ready.bytes();
    copies_.push_back(std::move(ready));
    copy_places_.emplace_back(PlaceOf(copy.src), PlaceOf(copy.dst));
  }
  return absl::OkStatus();
}

void MpiStep::SetMessages(const Program& program, const Instruction& instruction) {
  for (const ProgramMessage& message : program.MessagesOf(instruction.sends)) {
    call_.sends.push_back({message.peer, nullptr, message.count});
    sends_.push_back(PlaceOf(message.at));
  }
  for (const ProgramMessage& message : program.MessagesOf(instruction.recvs)) {
    call_.recvs.push_back({message.peer, nullptr, message.count});
    recvs_.push_back(PlaceOf(message.at));
  }
}

absl::Status MpiStep::SetCall(const Program& program, const Instruction& instruction,
                              std::shared_ptr<MpiGroup> group) {
  is_prepared_ = true;
  group_ = std::move(group);
  call_.dtype = instruction.dtype;
  call_.reduction = instruction.reduction;
  call_.count = instruction.count;
  const absl::Span<const int64_t> counts = program.CountsOf(instruction);
  if (!counts.empty()) {
    MESHIFT_RETURN_IF_ERROR(CheckCounts(*group_, counts));
    call_.SetBlocks(counts);
  }
  const int64_t own = counts.empty() ? instruction.count : counts[group_->member()];
  int64_t sent = own;  // elements in the send buffer
  int64_t received = own;
  switch (instruction.kind) {
    case Instruction::Kind::kSendRecv:
      call_.kind = MpiCall::Kind::kSendRecv;
      SetMessages(program, instruction);
      MESHIFT_RETURN_IF_ERROR(CheckPeers(*group_, call_.sends, call_.recvs));
      sent = received = 0;
      break;
    case Instruction::Kind::kAllGather:
      call_.kind = MpiCall::Kind::kAllGather;
      received = call_.count;
      break;
    case Instruction::Kind::kReduceScatter:
      call_.kind = MpiCall::Kind::kReduceScatter;
      sent = call_.count;
      break;
    default:
      call_.kind = MpiCall::Kind::kAllReduce;
      break;
  }
  MESHIFT_RETURN_IF_ERROR(CheckCount(*group_, call_.count));
  if (sent > 0) send_ = PlaceOf(instruction.src);
  if (received > 0) recv_ = PlaceOf(instruction.dst);
  bytes_ = call_.MessageBytes(group_->size());
  const bool reduces =
      call_.kind == MpiCall::Kind::kAllReduce || call_.kind == MpiCall::Kind::kReduceScatter;
  return reduces ? CheckReduction(call_.dtype, call_.reduction) : absl::OkStatus();
}

void MpiStep::SetAddresses(const MpiBases& bases, std::vector<StridedCopy>* copies) const {
  for (size_t i = 0; i < copy_places_.size(); ++i) {
    const auto& [src, dst] = copy_places_[i];
    (*copies)[i].SetAddresses(src.At(bases), dst.At(bases));
  }
}

void MpiStep::SetAddresses(const MpiBases& bases, MpiCall* call) const {
  call->send = send_.At(bases);
  call->recv = recv_.At(bases);
  for (size_t i = 0; i < sends_.size(); ++i) call->sends[i].data = sends_[i].At(bases);
  for (size_t i = 0; i < recvs_.size(); ++i) call->recvs[i].data = recvs_[i].At(bases);
}

absl::StatusOr<std::shared_ptr<const MpiExecutable::Steps>> MpiExecutable::StepsOf(
    const Program& program, absl::Span<const std::shared_ptr<MpiGroup>> groups) {
  auto steps = std::make_shared<Steps>(program.instructions.size());
  for (size_t i = 0; i < steps->size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    MpiStep& step = (*steps)[i];
    if (instruction.kind == Instruction::Kind::kCopy) {
      MESHIFT_RETURN_IF_ERROR(step.SetCopies(program.CopiesOf(instruction), instruction.dtype));
    } else if (instruction.group >= 0) {
      MESHIFT_RETURN_IF_ERROR(step.SetCall(program, instruction, groups[instruction.group]));
    }
  }
  return steps;
}

absl::Status MpiExecutable::Enqueue(const ListRange& instructions, const ProgramBuffers& buffers,
                                    Stream& stream, std::shared_ptr<Event>* done) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpiStream(stream, *progress_));
  if (buffers.tensors.size() != 1) [[unlikely]] {
    return InvalidArgument("got the buffers of {} tensors; the program has 1",
                           buffers.tensors.size());
  }
  const TensorBuffers& tensor = buffers.tensors[0];
  const MpiBases bases = {tensor.source, tensor.target, buffers.workspace};
  const int32_t end = instructions.first + instructions.size;
  const MpiStep* const steps = steps_->data();
  for (int32_t i = instructions.first;; ++i) {
    const int32_t first = i;
    for (; i < end && steps[i].is_prepared(); ++i) {
      const MpiStep& step = steps[i];
      MpiGroup* const group = step.group().get();
      absl::Status status = group == nullptr ? absl::OkStatus() : group->Health();
      if (status.ok() && !step.HasAll(bases)) [[unlikely]] {
        status = InvalidArgument("a buffer that the prepared program uses is null");
      }
      if (!status.ok()) return group == nullptr ? status : RefuseCall(status, *group, *mpi);
    }
    mpi->Put(steps_, {first, i - first}, bases, i == end ? done : nullptr);
    if (i == end) return absl::OkStatus();
    MESHIFT_RETURN_IF_ERROR(fallback_->Enqueue({i, 1}, buffers, stream, /*done=*/nullptr));
  }
}

}  // namespace meshift
