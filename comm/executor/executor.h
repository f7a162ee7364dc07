// Runs programs on an engine: puts the work on a stream, and counts the bytes that its calls send,
// from their actual arguments, or, of calls that an engine has made ready, from what they were made
// of. Knows nothing of the planner's estimates.
//
//   Executor executor(engine);
//   RunRecord record;
//   MESHIFT_RETURN_IF_ERROR(executor.Enqueue(program, communicators,
//                                            {.source = in, .target = out, .workspace = w},
//                                            {}, *stream, &record));
//   MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));
//   record.bytes_sent[0];               // by this rank, in step 0
//
// A program may also be run in parts, each on a stream of its own (comm/program/program_parts.h).
//
// For one thread at a time.
#ifndef MESHIFT_COMM_EXECUTOR_EXECUTOR_H_
#define MESHIFT_COMM_EXECUTOR_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/executor/work_preparer.h"
#include "comm/program/program.h"
#include "meshift/communicator.h"
#include "meshift/engine.h"

namespace meshift {

// Memory that a program runs on; null where it has no bytes. Of a strided tensor: its element
// (0, 0, ...). The source is only read, unless the program consumes it.
struct TensorBuffers {
  const void* source = nullptr;
  void* target = nullptr;
};
struct ProgramBuffers {
  const void* source = nullptr;
  void* target = nullptr;
  void* workspace = nullptr;
  // Of the tensors behind the first, where a program has several.
  absl::Span<const TensorBuffers> others = {};
};

// Part of a program that runs on one stream.
struct ProgramPart {
  int32_t first = 0;  // instructions [first, first + size)
  int32_t size = 0;
  Stream* stream = nullptr;
  // Recorded behind this part where the next one is on another stream, which waits for it. Kept
  // from run to run.
  std::shared_ptr<Event> done;
};

// What its engine has made ready of a program (comm/executor/work_preparer.h).
struct ReadyProgram {
  // One per instruction, null where it has not; or none at all.
  std::vector<std::shared_ptr<const PreparedWork>> work;
  bool is_whole = false;  // all instructions are ready
  RunRecord record;       // of those that are
};

struct ExecutorOptions {
  bool time_steps = false;              // put an event before the first step and behind each
  const ReadyProgram* ready = nullptr;  // what Prepare has made of the program, or null
};

class Executor {
 public:
  // `engine` must outlive this.
  explicit Executor(Engine* engine)
      : engine_(engine), preparer_(dynamic_cast<WorkPreparer*>(engine)) {}

  // Makes ready what the engine can, once for all runs of the program.
  absl::StatusOr<ReadyProgram> Prepare(const Program& program,
                                       absl::Span<Communicator* const> communicators);

  // Puts the program on `stream`; returns without waiting. `communicators`: one per group of the
  // program. After an error the stream may hold part of the work. Allocates nothing once the
  // program has run before, as far as the engine does not.
  absl::Status Enqueue(const Program& program, absl::Span<Communicator* const> communicators,
                       const ProgramBuffers& buffers, const ExecutorOptions& options,
                       Stream& stream, RunRecord* record);
  // Likewise, in parts, which are all of the program's instructions in order; a part waits for the
  // one before it. The first part's stream is to wait for whatever the program needs; once all
  // work on the last part's is done, so is the program. Appends to the record's steps instead of
  // replacing them.
  ABSL_ATTRIBUTE_HOT absl::Status EnqueueParts(const Program& program,
                                               absl::Span<Communicator* const> communicators,
                                               const ProgramBuffers& buffers,
                                               const ExecutorOptions& options,
                                               absl::Span<ProgramPart> parts, RunRecord* record);
  // A program that is ready as a whole, on one stream; then records `*done`. What it sends, its
  // record says. REQUIRES: is_whole.
  absl::Status EnqueueWhole(const ReadyProgram& ready, const ProgramBuffers& buffers,
                            Stream& stream, std::shared_ptr<Event>* done) {
    return preparer_->Enqueue(ready.work, {buffers.source, buffers.target, buffers.workspace},
                              stream, done);
  }

 private:
  ABSL_ATTRIBUTE_HOT absl::Status Run(const Program& program, const Instruction& instruction,
                                      Communicator* communicator, const ProgramBuffers& buffers,
                                      Stream& stream, RunRecord* record);

  Engine* const engine_;
  WorkPreparer* const preparer_;  // the engine, if it is one
  size_t first_step_ = 0;         // of the program that is being run, in the record
  std::vector<BoxCopy> copies_;   // of the call that is being made
  std::vector<PeerMessage> sends_;
  std::vector<PeerMessage> recvs_;
  std::vector<const void*> inputs_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_EXECUTOR_EXECUTOR_H_
