// One member's side of a group of ranks.
//
//   MpiGroup group(comm, /*ranks=*/{0, 2}, /*member=*/1, tag, "group 1 {0,2}", /*watch=*/nullptr);
//   const int64_t call = group.TakeNumber();
//   if (group.turn() == call) { ... }       // its messages may go; then group.EndTurn()
//
// A group is no MPI communicator: its messages travel on the engine's one private communicator,
// under tags of their own. So making a group sends nothing and waits for nobody, and a group that
// has failed leaves nothing behind that MPI would have to agree upon.
//
// The tag of a group is known to its members without a word, because all members of a communicator
// make their Split calls in the same order: the k-th split of the world has tag (k, 0), the j-th
// split of that has tag (k, j). Groups of one split have no common member, so one tag does for all.
#ifndef MESHIFT_COMM_MPI_GROUP_H_
#define MESHIFT_COMM_MPI_GROUP_H_

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/mpi/watch.h"

namespace meshift {

class MpiGroup {
 public:
  // Members are ranks of `comm`, ascending. `tag` and `tag` + 1 are the group's. `watch`: of the
  // thread that makes its calls of MPI; null: any does.
  MpiGroup(MPI_Comm comm, std::vector<int64_t> ranks, int member, int tag, std::string name,
           MpiWatch* watch)
      : comm_(comm),
        watch_(watch),
        ranks_(std::move(ranks)),
        member_(member),
        tag_(tag),
        name_(std::move(name)) {}

  MPI_Comm comm() const { return comm_; }
  MpiWatch* watch() const { return watch_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int member() const { return member_; }
  int rank_of(int member) const { return static_cast<int>(ranks_[member]); }
  int tag() const { return tag_; }
  const std::string& name() const { return name_; }  // "group 1 {0,2}"

  // Calls run one after another, in the order in which they were made: MPI tells messages of one
  // tag apart by their order only. A call takes a number, and may start when it is its turn.
  int64_t TakeNumber() { return next_number_.fetch_add(1, std::memory_order_relaxed); }
  int64_t turn() const { return turn_.load(std::memory_order_acquire); }
  void EndTurn() { turn_.fetch_add(1, std::memory_order_acq_rel); }

  // Ends the group on this rank; the first error counts. Returns it. Any thread.
  absl::Status Fail(const absl::Status& error);
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  absl::Status Health() const;

 private:
  // What each call looks at lies together.
  std::atomic<int64_t> next_number_{0};
  std::atomic<int64_t> turn_{0};
  std::atomic<bool> ended_{false};
  const MPI_Comm comm_;
  MpiWatch* const watch_;
  const std::vector<int64_t> ranks_;
  const int member_;
  const int tag_;
  const std::string name_;
  mutable Mutex mutex_;
  absl::Status error_ MESHIFT_GUARDED_BY(mutex_);
};

inline absl::Status MpiGroup::Fail(const absl::Status& error) {
  const MutexLock lock(mutex_);
  if (error_.ok()) {
    error_ = error;
    ended_.store(true, std::memory_order_release);
  }
  return error_;
}

inline absl::Status MpiGroup::Health() const {
  if (!ended()) return absl::OkStatus();
  const MutexLock lock(mutex_);
  return error_;
}

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_GROUP_H_
