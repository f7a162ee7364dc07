// The default Executable (executable.h), which Engine::Prepare makes: runs each instruction by one
// call of the engine or of a communicator. Lists of copies and messages are built once; each run
// only fills in their addresses. Not thread-safe.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/engine/engine_record.h"
#include "comm/executor/executable.h"
#include "comm/program/program.h"
#include "meshift/communicator.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = Instruction::Kind;

class Executor final : public Executable {
 public:
  Executor(Engine* engine, const Program& program, absl::Span<Communicator* const> communicators)
      : engine_(engine),
        program_(program),
        communicators_(communicators.begin(), communicators.end()) {
    for (const ProgramCopy& copy : program.copies) {
      copies_.push_back({nullptr, nullptr, copy.shape, copy.src_strides, copy.dst_strides});
    }
    for (const ProgramMessage& message : program.messages) {
      messages_.push_back({message.peer, nullptr, message.count});
    }
  }

  // Lets the communicators allocate what their reductions need.
  absl::Status Reserve() {
    for (const Instruction& call : program_.instructions) {
      const bool all = call.kind == Kind::kAllReduce;
      if (!all && call.kind != Kind::kReduceScatter) continue;
      MESHIFT_RETURN_IF_ERROR(communicators_[call.group]->Reserve(
          all ? Communicator::ReduceCall::kAllReduce : Communicator::ReduceCall::kReduceScatter,
          call.count, call.dtype, call.reduction));
    }
    return absl::OkStatus();
  }

  absl::Status Enqueue(const ListRange& instructions, const ProgramBuffers& buffers, Stream& stream,
                       std::shared_ptr<Event>* done) override {
    if (static_cast<int>(buffers.tensors.size()) != program_.num_tensors) {
      return InvalidArgument("got the buffers of {} tensors; the program has {}",
                             buffers.tensors.size(), program_.num_tensors);
    }
    for (int32_t i = instructions.first; i < instructions.first + instructions.size; ++i) {
      MESHIFT_RETURN_IF_ERROR(Run(program_.instructions[i], buffers, stream));
    }
    return done == nullptr ? absl::OkStatus() : engine_->RecordInto(stream, done);
  }

 private:
  absl::Status Run(const Instruction& instruction, const ProgramBuffers& buffers, Stream& stream);
  absl::Span<const PeerMessage> MessagesAt(const ListRange& range, const ProgramBuffers& buffers);

  Engine* const engine_;
  const Program& program_;
  const std::vector<Communicator*> communicators_;
  // The program's lists, with the addresses of the run that is being enqueued.
  std::vector<BoxCopy> copies_;
  std::vector<PeerMessage> messages_;
  std::vector<const void*> inputs_;
};

// Casts const away: sends take mutable pointers, but a program writes to a source only if it
// consumes it.
void* Resolve(const Location& at, const ProgramBuffers& buffers) {
  if (at.space == Location::Space::kWorkspace) {
    return static_cast<char*>(buffers.workspace) + at.offset;
  }
  const TensorBuffers& tensor = buffers.tensors[at.tensor];
  const void* const base = at.space == Location::Space::kSource ? tensor.source : tensor.target;
  return const_cast<char*>(static_cast<const char*>(base)) + at.offset;
}

absl::Span<const PeerMessage> Executor::MessagesAt(const ListRange& range,
                                                   const ProgramBuffers& buffers) {
  for (int32_t i = range.first; i < range.first + range.size; ++i) {
    messages_[i].data = Resolve(program_.messages[i].at, buffers);
  }
  return absl::MakeConstSpan(messages_).subspan(range.first, range.size);
}

absl::Status Executor::Run(const Instruction& instruction, const ProgramBuffers& buffers,
                           Stream& stream) {
  // Local instructions have no group.
  Communicator* const communicator =
      instruction.group < 0 ? nullptr : communicators_[instruction.group];
  void* const src = Resolve(instruction.src, buffers);
  void* const dst = Resolve(instruction.dst, buffers);
  const int64_t count = instruction.count;
  const DType dtype = instruction.dtype;
  const Reduction& reduction = instruction.reduction;
  const absl::Span<const int64_t> counts = program_.CountsOf(instruction);
  switch (instruction.kind) {
    case Kind::kCopy: {
      const ListRange& range = instruction.copies;
      for (int32_t i = range.first; i < range.first + range.size; ++i) {
        copies_[i].src = Resolve(program_.copies[i].src, buffers);
        copies_[i].dst = Resolve(program_.copies[i].dst, buffers);
      }
      return engine_->CopyBoxes(absl::MakeConstSpan(copies_).subspan(range.first, range.size),
                                dtype, stream);
    }
    case Kind::kFillIdentity:
      return engine_->FillIdentity(dst, count, dtype, reduction.op, stream);
    case Kind::kFillZero:
      return engine_->FillZero(dst, count, stream);
    case Kind::kAllReduce:
      return communicator->AllReduce(src, dst, count, dtype, reduction, stream);
    case Kind::kReduceScatter:
      return counts.empty()
                 ? communicator->ReduceScatter(src, dst, count, dtype, reduction, stream)
                 : communicator->ReduceScatterV(src, dst, counts, dtype, reduction, stream);
    case Kind::kAllGather:
      return counts.empty() ? communicator->AllGather(src, dst, count, dtype, stream)
                            : communicator->AllGatherV(src, dst, counts, dtype, stream);
    case Kind::kSendRecv:
      return communicator->SendRecv(MessagesAt(instruction.sends, buffers),
                                    MessagesAt(instruction.recvs, buffers), dtype, stream);
    case Kind::kCast:
      return engine_->Cast(src, dtype, dst, instruction.to_dtype, count, stream);
    case Kind::kReduceInOrder:
      inputs_.clear();
      for (int64_t b = 0; b < instruction.blocks; ++b) {
        inputs_.push_back(static_cast<const char*>(src) + b * instruction.block_bytes);
      }
      return engine_->ReduceInOrder(inputs_, dst, count, dtype, reduction, stream);
  }
  return Internal("unknown instruction kind {}", static_cast<int>(instruction.kind));
}

}  // namespace

// Defined here because Engine's vtable refers to Engine::Prepare.
Engine::Engine() : record_(std::make_unique<RecordSlot>()) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Executable>> Engine::Prepare(
    const Program& program, absl::Span<Communicator* const> communicators) {
  if (communicators.size() != program.groups.size()) {
    return InvalidArgument("got {} communicators; the program has {} groups", communicators.size(),
                           program.groups.size());
  }
  auto executor = std::make_unique<Executor>(this, program, communicators);
  MESHIFT_RETURN_IF_ERROR(executor->Reserve());
  return executor;
}

}  // namespace meshift
