// Copies and calls of a program but for the addresses of its buffers, as the tasks of many runs
// share them.
//
//   MESHIFT_ASSIGN_OR_RETURN(task->prepared, MpiPreparedWork::OfCopies(copies, DType::kF32));
//   task->bases = {source, target, workspace};
//   ... task->prepared->FillIn(task->bases, &task->copies) ...     // by whoever does the work
#ifndef MESHIFT_COMM_MPI_PREPARED_H_
#define MESHIFT_COMM_MPI_PREPARED_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/executor/work_preparer.h"
#include "comm/kernels/copy.h"
#include "comm/mpi/group.h"
#include "comm/mpi/operation.h"
#include "comm/program/program.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"

namespace meshift {

class MpiPreparedWork final : public PreparedWork {
 public:
  static absl::StatusOr<std::shared_ptr<const MpiPreparedWork>> OfCopies(
      absl::Span<const ProgramCopy> copies, DType dtype);
  // Of messages, or a collective, that is checked.
  static std::shared_ptr<const MpiPreparedWork> OfMessages(std::shared_ptr<MpiGroup> group,
                                                           absl::Span<const ProgramMessage> sends,
                                                           absl::Span<const ProgramMessage> recvs,
                                                           DType dtype);
  static std::shared_ptr<const MpiPreparedWork> OfCollective(std::shared_ptr<MpiGroup> group,
                                                             const Instruction& instruction,
                                                             absl::Span<const int64_t> counts);

  // Of a call; null: these are copies.
  const std::shared_ptr<MpiGroup>& group() const { return group_; }
  int64_t bytes() const { return bytes_; }  // what is written, or sent and received, roughly
  // Whether no buffer that it needs is null.
  bool HasAll(const WorkBases& bases) const {
    for (size_t i = 0; i < bases.size(); ++i) {
      if (needs_[i] && bases[i] == nullptr) return false;
    }
    return true;
  }
  // REQUIRES: HasAll(bases).
  void FillIn(const WorkBases& bases, std::vector<StridedCopy>* copies) const;
  void FillIn(const WorkBases& bases, MpiCall* call) const;

 private:
  struct Place {
    Location::Space space = Location::Space::kSource;
    int64_t offset = 0;
    const char* At(const WorkBases& bases) const {
      return static_cast<const char*>(bases[static_cast<size_t>(space)]) + offset;
    }
  };
  struct Copy {
    StridedCopy copy;
    Place src;
    Place dst;
  };
  Place PlaceOf(const Location& at) {
    needs_[static_cast<size_t>(at.space)] = true;
    return {at.space, at.offset};
  }

  std::shared_ptr<MpiGroup> group_;
  int64_t bytes_ = 0;
  std::array<bool, 3> needs_ = {};
  std::vector<Copy> copies_;
  MpiCall call_;  // without addresses; they are:
  Place send_;
  Place recv_;
  std::vector<Place> sends_;
  std::vector<Place> recvs_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_PREPARED_H_
