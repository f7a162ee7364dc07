#include "comm/executor.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "base/status.h"
#include "base/status_macros.h"
#include "comm/byte_count.h"

namespace meshift {
namespace {

using Kind = Instruction::Kind;

const void* Resolve(const Location& at, const ProgramBuffers& buffers) {
  const void* base = at.space == Location::Space::kSource   ? buffers.source
                     : at.space == Location::Space::kTarget ? buffers.target
                                                            : buffers.workspace;
  return static_cast<const char*>(base) + at.offset;
}

// As Resolve. A program writes to the source only where it consumes it, and sends from it without
// writing to it, which calls that take mutable memory cannot say.
void* ResolveMutable(const Location& at, const ProgramBuffers& buffers) {
  return const_cast<void*>(Resolve(at, buffers));
}

}  // namespace

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
    record->bytes_sent[instruction.step] += bytes;
    ++record->calls[instruction.step];
  };
  const int64_t count = instruction.count;
  switch (instruction.kind) {
    case Kind::kCopy: {
      copies_.clear();
      for (int i = 0; i < instruction.copies.size; ++i) {
        const ProgramCopy& copy = program.copies[instruction.copies.first + i];
        copies_.push_back(
            {resolve(copy.src), resolve(copy.dst), copy.shape, copy.src_strides, copy.dst_strides});
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
      count_call(BlockBytes(Bytes(dtype, count), communicator->size()));
      return communicator->ReduceScatter(resolve(instruction.src), resolve(instruction.dst), count,
                                         dtype, instruction.reduction, stream);
    case Kind::kAllGather:
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
  }
  return Internal("instruction {} is unknown", static_cast<int>(instruction.kind));
}

absl::Status Executor::Enqueue(const Program& program,
                               absl::Span<Communicator* const> communicators,
                               const ProgramBuffers& buffers, const ExecutorOptions& options,
                               Stream& stream, RunRecord* record) {
  if (communicators.size() != program.groups.size()) {
    return InvalidArgument("{} communicators for the {} groups of a program", communicators.size(),
                           program.groups.size());
  }
  record->bytes_sent.assign(program.num_steps, 0);
  record->calls.assign(program.num_steps, 0);
  record->events.clear();
  const auto mark = [&]() -> absl::Status {
    MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<Event> event, engine_->Record(stream));
    record->events.push_back(std::move(event));
    return absl::OkStatus();
  };
  for (const Instruction& instruction : program.instructions) {
    while (options.time_steps && record->events.size() <= static_cast<size_t>(instruction.step)) {
      MESHIFT_RETURN_IF_ERROR(mark());
    }
    // A plan without steps has copies all the same.
    Communicator* const communicator =
        instruction.group < 0 ? nullptr : communicators[instruction.group];
    MESHIFT_RETURN_IF_ERROR(Run(program, instruction, communicator, buffers, stream, record));
  }
  while (options.time_steps && record->events.size() <= static_cast<size_t>(program.num_steps)) {
    MESHIFT_RETURN_IF_ERROR(mark());
  }
  return absl::OkStatus();
}

}  // namespace meshift
