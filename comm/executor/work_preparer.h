// What some engines can do besides: make a program's copies and calls ready once, so that each run
// of it only says where its buffers are.
//
//   auto* preparer = dynamic_cast<WorkPreparer*>(engine);    // null: this engine does not
//   MESHIFT_ASSIGN_OR_RETURN(auto work, preparer->PrepareCopies(copies, DType::kF32));
//   MESHIFT_RETURN_IF_ERROR(
//       preparer->Enqueue({&work, 1}, {source, target, workspace}, *stream, &done));
#ifndef MESHIFT_COMM_EXECUTOR_WORK_PREPARER_H_
#define MESHIFT_COMM_EXECUTOR_WORK_PREPARER_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/program/program.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

// Of an engine; it may be enqueued any number of times, also while an earlier time is not done.
class PreparedWork {
 public:
  virtual ~PreparedWork() = default;
};

// By Location::Space; null where nothing of the work lies there.
using WorkBases = std::array<const void*, 3>;

class WorkPreparer {
 public:
  // As Engine::CopyBoxes. All locations are of the first tensor of a program.
  virtual absl::StatusOr<std::shared_ptr<const PreparedWork>> PrepareCopies(
      absl::Span<const ProgramCopy> copies, DType dtype) = 0;
  // As Communicator::SendRecv.
  virtual absl::StatusOr<std::shared_ptr<const PreparedWork>> PrepareMessages(
      Communicator& communicator, absl::Span<const ProgramMessage> sends,
      absl::Span<const ProgramMessage> recvs, DType dtype) = 0;
  // As the communicator's call of an instruction of kind kAllReduce, kReduceScatter or kAllGather;
  // `counts`: of its blocks, where they differ.
  virtual absl::StatusOr<std::shared_ptr<const PreparedWork>> PrepareCollective(
      Communicator& communicator, const Instruction& instruction,
      absl::Span<const int64_t> counts) = 0;
  // Puts all of `work` on `stream`, in order, as the calls that it was prepared from do; where one
  // is refused, none. Behind them records `*done`, as Engine::RecordInto, unless `done` is null.
  virtual absl::Status Enqueue(absl::Span<const std::shared_ptr<const PreparedWork>> work,
                               const WorkBases& bases, Stream& stream,
                               std::shared_ptr<Event>* done) = 0;

 protected:
  ~WorkPreparer() = default;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_EXECUTOR_WORK_PREPARER_H_
