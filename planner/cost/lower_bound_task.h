// What any plan must do, whatever its steps: the items that move, those that are copied, the mesh
// dims that they must go across. Internal to the lower bound (lower_bound.h), whose terms these
// are.
//
//   const Task task(problem);
//   task.total();           // items that all ranks together send, at least
//   task.lacking();         // items that some rank lacks
//
// Counts are of items (Problem::extent), in 128 bits where all ranks are summed. Meshes of any
// size: what is not counted rank by rank is bounded. The problem must outlive the task.
#ifndef MESHIFT_PLANNER_COST_LOWER_BOUND_TASK_H_
#define MESHIFT_PLANNER_COST_LOWER_BOUND_TASK_H_

#include <array>
#include <cstdint>

#include "planner/graph/state.h"

namespace meshift {

// What is to be done, without a word on how.
class Task {
 public:
  using Coordinates = std::array<int64_t, kMaxStateDims>;  // by mesh dim

  explicit Task(const Problem& problem);

  bool is_even() const { return even_; }  // nor is anything empty, or ragged
  int64_t contributions() const { return contributions_; }
  // Items that are sent, by all ranks together.
  __int128 total() const { return total_; }
  // Of some rank: items it lacks, has, at least; messages that bring what it lacks.
  int64_t lacking() const { return lacking_; }
  int64_t kept() const { return kept_; }
  int64_t messages() const { return messages_; }
  // Ranks that have an element to begin with, or of partial ones each contribution.
  int64_t replicas() const { return replicas_; }
  // Mesh dims across which data must go.
  DimMask dims() const { return dims_; }
  // Items that a rank gets, at least, where all of a group over these get one value that has all of
  // its members' targets.
  int64_t LeastGathered() const;

  // Items that kernels must copy, since rows of the target are no runs of the source: of all ranks
  // together, in steps whose messages bring no rows next to each other.
  struct Copies {
    __int128 once = 0;    // every distinct row of the target, but one of each box
    __int128 apiece = 0;  // the rows that a rank has a part of, at each rank
    __int128 row = 0;     // items of a row
    // Rows, at least, of a message that are not next to each other where it leaves, where it comes
    // to; and the items that no rank has that wants them, if messages are neither.
    int64_t torn_rows = 1;
    int64_t joined_rows = 1;
    __int128 twice = 0;
  };
  Copies CopiesNeeded() const;

 private:
  // Along one tensor dim, of one rank: items that it wants, and has of those; pieces before the
  // task that have some of them; mesh dims that some of them come across.
  struct Corner {
    int64_t wanted = 0;
    int64_t own = 0;
    int64_t holders = 1;
    DimMask across = 0;
  };
  __int128 HeldAlong(DimMask tensor_dims) const;
  __int128 Held() const;
  Corner LookAt(int k, const Coordinates& at) const;
  void LookAtCorners();

  const Problem& problem_;
  const CutLists& before_;
  const CutLists& after_;
  std::array<DimMask, kMaxTensorRank> cut_by_ = {};  // mesh dims, before or after, by tensor dim
  bool masks_ = false;
  bool even_ = true;
  int64_t contributions_ = 1;
  int64_t wanting_ = 1;  // ranks that want an element, for each of the
  int64_t classes_ = 1;  // coordinates of mesh dims that stay partial
  int64_t replicas_ = 1;
  int64_t idle_ = 1;  // replicated before and after
  __int128 elements_ = 1;
  __int128 total_ = 0;
  __int128 overlap_ = 0;  // items that a rank has that wants them
  __int128 held_ = 0;     // of what all ranks want, if nothing is partial
  int64_t lacking_ = 0;
  int64_t kept_ = 0;
  int64_t messages_ = 0;
  DimMask dims_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_LOWER_BOUND_TASK_H_
