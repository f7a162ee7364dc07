// A group of ranks, as one of its members sees it: its tags, the order of its calls, its error.
//
//   MpiGroup group(comm, /*ranks=*/{0, 2}, /*member=*/1, tag, "group 1 {0,2}", /*watch=*/nullptr);
//   const int64_t call = group.TakeNumber();
//   if (group.turn() == call) { ... }       // send and receive, then group.EndTurn()
//
// A group is not an MPI communicator. Its messages travel on the engine's private communicator,
// under the group's own tags. So making a group is local, and freeing a failed one needs no
// agreement.
//
// Members compute the tag without communication, because all members of a communicator make their
// Split calls in the same order. A tag is a pair of numbers, which mpi_engine.cc maps to MPI tags:
// the k-th split of the world has tag (k, 0), the j-th split of such a group has tag (k, j). A
// group with tag (k, j), j > 0, cannot be split: there are two levels below the world. The number
// of splits of one group is limited too. mpi_engine.cc refuses more of either. The groups of one
// split are disjoint, so they share one tag. The constructor checks nothing. Safe for concurrent
// use, except TakeNumber and EndTurn. Internal to comm/mpi.
#ifndef MESHIFT_COMM_MPI_GROUP_H_
#define MESHIFT_COMM_MPI_GROUP_H_

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/mpi/watchdog.h"

namespace meshift {

class MpiGroup {
 public:
  // `ranks` are ranks of `comm`, ascending. The group uses the tags `tag` and `tag` + 1. `watch`
  // watches the thread that calls MPI with bounded waits; null without them.
  MpiGroup(MPI_Comm comm, std::vector<int64_t> ranks, int member, int tag, std::string name,
           MpiWatchdog* watch)
      : comm_(comm),
        watch_(watch),
        ranks_(std::move(ranks)),
        member_(member),
        tag_(tag),
        name_(std::move(name)) {}

  MPI_Comm comm() const { return comm_; }
  MpiWatchdog* watch() const { return watch_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int member() const { return member_; }
  int rank_of(int member) const { return static_cast<int>(ranks_[member]); }
  int tag() const { return tag_; }
  const std::string& name() const { return name_; }  // "group 1 {0,2}"

  // Calls of a group run one at a time, in the order of their numbers: MPI distinguishes messages
  // of one tag only by their order. A call may start once turn() is its number. One thread at a
  // time takes numbers.
  int64_t TakeNumber() { return next_number_++; }
  int64_t turn() const { return turn_.load(std::memory_order_acquire); }
  // REQUIRES: the caller runs the call whose turn it is.
  void EndTurn() { turn_.store(turn() + 1, std::memory_order_release); }

  // Ends the group on this rank. Keeps the first error and returns it. Any thread may call.
  absl::Status Fail(const absl::Status& error);
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  absl::Status Health() const;

 private:
  // Every call uses these three; they are adjacent, to share a cache line.
  int64_t next_number_ = 0;
  std::atomic<int64_t> turn_{0};
  std::atomic<bool> ended_{false};
  const MPI_Comm comm_;
  MpiWatchdog* const watch_;
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
