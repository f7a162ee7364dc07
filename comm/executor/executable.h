// A program that an engine has made ready (Engine::Prepare): a run of it only says where its
// buffers are.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto executable, engine->Prepare(program, communicators));
//   const TensorBuffers tensor = {.source = in, .target = out};
//   MESHIFT_RETURN_IF_ERROR(executable->Enqueue(program.All(), {.tensors = {&tensor, 1}}, *stream,
//                                               /*done=*/nullptr));
//   MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));
//
// A program may also be run in parts, each on a stream of its own (comm/program/program_parts.h).
#ifndef MESHIFT_COMM_EXECUTOR_EXECUTABLE_H_
#define MESHIFT_COMM_EXECUTOR_EXECUTABLE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/program/program.h"
#include "meshift/engine.h"

namespace meshift {

// Memory of one tensor; null where it has no bytes. Of a strided one: its element (0, 0, ...). The
// source is only read, unless the program consumes it.
struct TensorBuffers {
  const void* source = nullptr;
  void* target = nullptr;
};
struct ProgramBuffers {
  void* workspace = nullptr;                     // null where the program needs none
  absl::Span<const TensorBuffers> tensors = {};  // Program::num_tensors
};

// For one thread at a time.
class Executable {
 public:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  virtual ~Executable() = default;

  // Puts these instructions on `stream`, and behind them records `*done`, as Engine::RecordInto,
  // unless that is null. Returns without waiting; may be called while an earlier run is not done.
  // After an error the stream may hold part of the work. Allocates nothing once it has run before,
  // as far as the engine does not.
  virtual absl::Status Enqueue(const ListRange& instructions, const ProgramBuffers& buffers,
                               Stream& stream, std::shared_ptr<Event>* done) = 0;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_EXECUTOR_EXECUTABLE_H_
