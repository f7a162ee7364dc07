// A program that an engine has prepared once (Engine::Prepare), ready to run many times. Each run
// only gives the addresses of the buffers.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto executable, engine->Prepare(program, communicators));
//   const TensorBuffers tensor = {.source = in, .target = out};
//   MESHIFT_RETURN_IF_ERROR(executable->Enqueue(program.All(), {.tensors = {&tensor, 1}}, *stream,
//                                               /*done=*/nullptr));
//   MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));
//
// A program may be enqueued in parts, each on its own stream (comm/program/program_segments.h). The
// program and its communicators must outlive the executable. The sizes of the buffers and the range
// of instructions are not checked. Not a public header.
#ifndef MESHIFT_COMM_EXECUTOR_EXECUTABLE_H_
#define MESHIFT_COMM_EXECUTOR_EXECUTABLE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/program/program.h"
#include "meshift/engine.h"

namespace meshift {

// Memory of one tensor; null if it has no bytes. The address of a strided tensor is that of its
// element (0, 0, ...). The source is only read, unless the program consumes it.
struct TensorBuffers {
  const void* source = nullptr;
  void* target = nullptr;
};
struct ProgramBuffers {
  void* workspace = nullptr;                     // null if the program needs none
  absl::Span<const TensorBuffers> tensors = {};  // Program::num_tensors entries
};

// Not thread-safe.
class Executable {
 public:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  virtual ~Executable() = default;

  // Puts these instructions on `stream`, then records `*done` as Engine::RecordInto does, unless
  // `done` is null. Does not wait for the work, but NCCL may block until peers connect or the
  // device's queue has room. May be called before an earlier run is done. After an error the stream
  // may hold part of the work. Allocates nothing after the first run, unless the engine does.
  // INVALID_ARGUMENT: the wrong number of tensors; else the engine's errors.
  virtual absl::Status Enqueue(const ListRange& instructions, const ProgramBuffers& buffers,
                               Stream& stream, std::shared_ptr<Event>* done) = 0;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_EXECUTOR_EXECUTABLE_H_
