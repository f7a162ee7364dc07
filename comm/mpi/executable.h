// The executable of the MPI engine: a program of one tensor whose copies and collectives are
// prepared once, all but the addresses. A run only stores the base addresses of its buffers; the
// thread that does the work fills them in.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto steps, MpiExecutable::StepsOf(program, groups));
//   const MpiStep& step = (*steps)[0];
//   std::vector<StridedCopy> copies = step.copies();
//   step.SetAddresses({source, target, workspace}, &copies);
//
// Enqueue returns INVALID_ARGUMENT if the call does not have exactly one tensor, or if a buffer
// that the program uses is null; a null buffer of a collective also ends its group. Other errors
// are those of AsMpiStream, of a group that has ended, and of `fallback`, which runs the
// instructions that are not prepared. Enqueue is not thread-safe; threads may share the steps.
// Internal to comm/mpi.
#ifndef MESHIFT_COMM_MPI_EXECUTABLE_H_
#define MESHIFT_COMM_MPI_EXECUTABLE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/executor/executable.h"
#include "comm/kernels/copy.h"
#include "comm/mpi/group.h"
#include "comm/mpi/operation.h"
#include "comm/program/program.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

class Progress;

// Base addresses, indexed by Location::Space. An unused one may be null.
using MpiBases = std::array<const void*, 3>;

// One prepared instruction. Immutable; the tasks of many runs share it.
class MpiStep {
 public:
  // Whether it is prepared: copies or a collective. The default executor runs other instructions.
  bool is_prepared() const { return is_prepared_; }
  // The group of a collective; null for copies.
  const std::shared_ptr<MpiGroup>& group() const { return group_; }
  int64_t bytes() const { return bytes_; }  // written, or sent and received; approximate
  // Whether every base address that the step uses is set.
  bool HasAll(const MpiBases& bases) const {
    for (size_t i = 0; i < bases.size(); ++i) {
      if (needs_[i] && bases[i] == nullptr) return false;
    }
    return true;
  }
  // The copies, or the collective, without addresses.
  const std::vector<StridedCopy>& copies() const { return copies_; }
  const MpiCall& call() const { return call_; }
  // REQUIRES: HasAll(bases); the copies or the call are those of this step, with any addresses.
  void SetAddresses(const MpiBases& bases, std::vector<StridedCopy>* copies) const;
  void SetAddresses(const MpiBases& bases, MpiCall* call) const;

 private:
  friend class MpiExecutable;
  struct Place {
    Location::Space space = Location::Space::kSource;
    int64_t offset = 0;
    char* At(const MpiBases& bases) const {
      // Drops const: a source is written only if the plan may use it as scratch, and a send buffer
      // never is.
      return const_cast<char*>(static_cast<const char*>(bases[static_cast<size_t>(space)])) +
             offset;
    }
  };
  absl::Status SetCopies(absl::Span<const ProgramCopy> copies, DType dtype);
  absl::Status SetCall(const Program& program, const Instruction& instruction,
                       std::shared_ptr<MpiGroup> group);
  void SetMessages(const Program& program, const Instruction& instruction);
  Place PlaceOf(const Location& at) {
    needs_[static_cast<size_t>(at.space)] = true;
    return {at.space, at.offset};
  }

  bool is_prepared_ = false;
  std::shared_ptr<MpiGroup> group_;
  int64_t bytes_ = 0;
  std::array<bool, 3> needs_ = {};
  std::vector<StridedCopy> copies_;
  std::vector<std::pair<Place, Place>> copy_places_;  // of their sources and destinations
  MpiCall call_;                                      // the places below give its addresses
  Place send_;
  Place recv_;
  std::vector<Place> sends_;
  std::vector<Place> recvs_;
};

class MpiExecutable final : public Executable {
 public:
  using Steps = std::vector<MpiStep>;
  // One step per instruction of a program of one tensor. `groups` are the program's; null where
  // this rank is not a member. INVALID_ARGUMENT for an invalid copy or collective. REQUIRES: this
  // rank is a member of the group of each instruction.
  static absl::StatusOr<std::shared_ptr<const Steps>> StepsOf(
      const Program& program, absl::Span<const std::shared_ptr<MpiGroup>> groups);

  // `fallback` runs the instructions that are not prepared; null if all are.
  MpiExecutable(std::shared_ptr<Progress> progress, std::shared_ptr<const Steps> steps,
                std::unique_ptr<Executable> fallback)
      : progress_(std::move(progress)), steps_(std::move(steps)), fallback_(std::move(fallback)) {}

  ABSL_ATTRIBUTE_HOT absl::Status Enqueue(const ListRange& instructions,
                                          const ProgramBuffers& buffers, Stream& stream,
                                          std::shared_ptr<Event>* done) override;

 private:
  const std::shared_ptr<Progress> progress_;
  const std::shared_ptr<const Steps> steps_;  // queued tasks share it, and may outlive this
  const std::unique_ptr<Executable> fallback_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_EXECUTABLE_H_
