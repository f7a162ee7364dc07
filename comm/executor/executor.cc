#include "comm/executor/executor.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/status.h"
#include "comm/program/byte_count.h"
#include "comm/program/program_bytes.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = Instruction::Kind;

const void* Resolve(const Location& at, const ProgramBuffers& buffers) {
  const void* base = buffers.workspace;
  if (at.space != Location::Space::kWorkspace) {
    const bool is_source = at.space == Location::Space::kSource;
    if (at.tensor == 0) {
      base = is_source ? buffers.source : buffers.target;
    } else {
      const TensorBuffers& tensor = buffers.others[at.tensor - 1];
      base = is_source ? tensor.source : tensor.target;
    }
  }
  return static_cast<const char*>(base) + at.offset;
}

// As Resolve. A program writes to the source only where it consumes it, and sends from it without
// writing to it, which calls that take mutable memory cannot say.
void* ResolveMutable(const Location& at, const ProgramBuffers& buffers) {
  return const_cast<void*>(Resolve(at, buffers));
}

}  // namespace

absl::StatusOr<ReadyProgram> Executor::Prepare(const Program& program,
                                               absl::Span<Communicator* const> communicators) {
  ReadyProgram ready;
  // Of several tensors there are more addresses than those of three buffers.
  if (preparer_ == nullptr || program.num_tensors > 1) return ready;
  ready.work.resize(program.instructions.size());
  ready.record.bytes_sent.resize(program.num_steps);
  ready.record.calls.resize(program.num_steps);
  ready.is_whole = true;
  for (size_t i = 0; i < ready.work.size(); ++i) {
    std::shared_ptr<const PreparedWork>& work = ready.work[i];
    const Instruction& instruction = program.instructions[i];
    Communicator* const communicator =
        instruction.group < 0 ? nullptr : communicators[instruction.group];
    switch (instruction.kind) {
      case Kind::kCopy: {
        MESHIFT_ASSIGN_OR_RETURN(
            work, preparer_->PrepareCopies(program.CopiesOf(instruction), instruction.dtype));
        continue;
      }
      case Kind::kSendRecv: {
        MESHIFT_ASSIGN_OR_RETURN(
            work,
            preparer_->PrepareMessages(*communicator, program.MessagesOf(instruction.sends),
                                       program.MessagesOf(instruction.recvs), instruction.dtype));
        break;
      }
      case Kind::kAllReduce:
      case Kind::kReduceScatter:
      case Kind::kAllGather: {
        MESHIFT_ASSIGN_OR_RETURN(work, preparer_->PrepareCollective(*communicator, instruction,
                                                                    program.CountsOf(instruction)));
        break;
      }
      default:
        ready.is_whole = false;
        continue;
    }
    ready.record.bytes_sent[instruction.step] += InstructionBytes(program, instruction);
    ++ready.record.calls[instruction.step];
  }
  return ready;
}

void RunRecord::Clear() {
  bytes_sent.clear();
  calls.clear();
  events.clear();
}

int64_t RunRecord::StepNs(int i) const {
  if (static_cast<size_t>(i) + 1 >= events.size()) return -1;
  const int64_t begin = events[i]->ReachedNs();
  const int64_t end = events[i + 1]->ReachedNs();
  return begin < 0 || end < 0 ? -1 : end - begin;
}

absl::Status Executor::Run(const Program& program, const Instruction& instruction,
                           Communicator* communicator, const ProgramBuffers& buffers,
                           Stream& stream, RunRecord* record) {
  const DType dtype = instruction.dtype;
  const auto resolve = [&](const Location& at) { return ResolveMutable(at, buffers); };
  const auto count_call = [&](int64_t bytes) {
    record->bytes_sent[first_step_ + instruction.step] += bytes;
    ++record->calls[first_step_ + instruction.step];
  };
  const int64_t count = instruction.count;
  switch (instruction.kind) {
    case Kind::kCopy: {
      copies_.resize(instruction.copies.size);
      for (int i = 0; i < instruction.copies.size; ++i) {
        const ProgramCopy& copy = program.copies[instruction.copies.first + i];
        BoxCopy& box = copies_[i];  // shapes are assigned: nothing is made and moved
        box.src = resolve(copy.src);
        box.dst = resolve(copy.dst);
        box.shape = copy.shape;
        box.src_strides = copy.src_strides;
        box.dst_strides = copy.dst_strides;
      }
      return engine_->CopyBoxes(copies_, dtype, stream);
    }
    case Kind::kFillIdentity:
      return engine_->FillIdentity(resolve(instruction.dst), count, dtype, instruction.reduction.op,
                                   stream);
    case Kind::kFillZero:
      return engine_->FillZero(resolve(instruction.dst), count, stream);
    case Kind::kAllReduce:
      count_call(AllReduceBytes(Bytes(dtype, count), communicator->size()));
      return communicator->AllReduce(resolve(instruction.src), resolve(instruction.dst), count,
                                     dtype, instruction.reduction, stream);
    case Kind::kReduceScatter:
      if (instruction.counts.size > 0) {
        count_call(
            RaggedBytes(Bytes(dtype, program.BlocksCount(instruction)), Bytes(dtype, count)));
        return communicator->ReduceScatterV(resolve(instruction.src), resolve(instruction.dst),
                                            program.CountsOf(instruction), dtype,
                                            instruction.reduction, stream);
      }
      count_call(BlockBytes(Bytes(dtype, count), communicator->size()));
      return communicator->ReduceScatter(resolve(instruction.src), resolve(instruction.dst), count,
                                         dtype, instruction.reduction, stream);
    case Kind::kAllGather:
      if (instruction.counts.size > 0) {
        count_call(
            RaggedBytes(Bytes(dtype, program.BlocksCount(instruction)), Bytes(dtype, count)));
        return communicator->AllGatherV(resolve(instruction.src), resolve(instruction.dst),
                                        program.CountsOf(instruction), dtype, stream);
      }
      count_call(BlockBytes(Bytes(dtype, count), communicator->size()));
      return communicator->AllGather(resolve(instruction.src), resolve(instruction.dst), count,
                                     dtype, stream);
    case Kind::kSendRecv: {
      int64_t bytes = 0;
      const auto fill = [&](const ListRange& range, std::vector<PeerMessage>* messages) {
        messages->clear();
        for (int i = range.first; i < range.first + range.size; ++i) {
          const ProgramMessage& message = program.messages[i];
          messages->push_back({message.peer, resolve(message.at), message.count});
        }
      };
      fill(instruction.sends, &sends_);
      fill(instruction.recvs, &recvs_);
      for (const PeerMessage& message : sends_) bytes += Bytes(dtype, message.count);
      count_call(bytes);
      return communicator->SendRecv(sends_, recvs_, dtype, stream);
    }
    case Kind::kCast:
      return engine_->Cast(resolve(instruction.src), dtype, resolve(instruction.dst),
                           instruction.to_dtype, count, stream);
    case Kind::kReduceInOrder:
      inputs_.clear();
      for (int64_t b = 0; b < instruction.blocks; ++b) {
        inputs_.push_back(
            resolve({instruction.src.space, instruction.src.offset + b * instruction.block_bytes,
                     instruction.src.tensor}));
      }
      return engine_->ReduceInOrder(inputs_, resolve(instruction.dst), count, dtype,
                                    instruction.reduction, stream);
  }
  return Internal("instruction {} is unknown", static_cast<int>(instruction.kind));
}

absl::Status Executor::Enqueue(const Program& program,
                               absl::Span<Communicator* const> communicators,
                               const ProgramBuffers& buffers, const ExecutorOptions& options,
                               Stream& stream, RunRecord* record) {
  record->Clear();
  ProgramPart all;
  all.size = static_cast<int32_t>(program.instructions.size());
  all.stream = &stream;
  return EnqueueParts(program, communicators, buffers, options, absl::MakeSpan(&all, 1), record);
}

absl::Status Executor::EnqueueParts(const Program& program,
                                    absl::Span<Communicator* const> communicators,
                                    const ProgramBuffers& buffers, const ExecutorOptions& options,
                                    absl::Span<ProgramPart> parts, RunRecord* record) {
  if (communicators.size() != program.groups.size()) {
    return InvalidArgument("{} communicators for the {} groups of a program", communicators.size(),
                           program.groups.size());
  }
  if (static_cast<int>(buffers.others.size()) + 1 != program.num_tensors) {
    return InvalidArgument("memory of {} tensors for the {} of a program",
                           buffers.others.size() + 1, program.num_tensors);
  }
  first_step_ = record->bytes_sent.size();
  record->bytes_sent.resize(first_step_ + program.num_steps);
  record->calls.resize(first_step_ + program.num_steps);
  absl::Span<const std::shared_ptr<const PreparedWork>> ready;
  if (options.ready != nullptr) {
    ready = options.ready->work;
    const RunRecord& counted = options.ready->record;
    const auto first = static_cast<std::ptrdiff_t>(first_step_);
    std::copy(counted.bytes_sent.begin(), counted.bytes_sent.end(),
              record->bytes_sent.begin() + first);
    std::copy(counted.calls.begin(), counted.calls.end(), record->calls.begin() + first);
  }
  // Steps that are timed have marks [0, i] before them.
  const auto mark_until = [&](int step, Stream& stream) -> absl::Status {
    while (options.time_steps && record->events.size() <= first_step_ + step) {
      MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<Event> event, engine_->Record(stream));
      record->events.push_back(std::move(event));
    }
    return absl::OkStatus();
  };
  const WorkBases bases = {buffers.source, buffers.target, buffers.workspace};
  for (size_t p = 0; p < parts.size(); ++p) {
    ProgramPart& part = parts[p];
    Stream& stream = *part.stream;
    if (p > 0 && part.stream != parts[p - 1].stream) {
      MESHIFT_RETURN_IF_ERROR(engine_->RecordInto(*parts[p - 1].stream, &parts[p - 1].done));
      MESHIFT_RETURN_IF_ERROR(engine_->WaitFor(stream, parts[p - 1].done));
    }
    for (int32_t i = part.first; i < part.first + part.size; ++i) {
      const Instruction& instruction = program.instructions[i];
      MESHIFT_RETURN_IF_ERROR(mark_until(instruction.step, stream));
      if (!ready.empty() && ready[i] != nullptr) {
        MESHIFT_RETURN_IF_ERROR(
            preparer_->Enqueue(ready.subspan(i, 1), bases, stream, /*done=*/nullptr));
        continue;
      }
      // A plan without steps has copies all the same.
      Communicator* const communicator =
          instruction.group < 0 ? nullptr : communicators[instruction.group];
      MESHIFT_RETURN_IF_ERROR(Run(program, instruction, communicator, buffers, stream, record));
    }
  }
  return parts.empty() ? absl::OkStatus() : mark_until(program.num_steps, *parts.back().stream);
}

}  // namespace meshift
