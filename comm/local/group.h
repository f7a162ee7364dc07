// A group of ranks of a LocalWorld, shared by its members, and its collectives in progress. The
// k-th calls of all members are one collective.
//
//   const MutexLock lock(scheduler->mutex());
//   const absl::Status status = group->Call(*scheduler, call, settings);
//   scheduler->AdvanceStreams();
//
// Any error ends the group for all members: INVALID_ARGUMENT for a refused call,
// FAILED_PRECONDITION for calls that differ, DEADLINE_EXCEEDED if a member does not arrive in time
// while a thread waits for the collective, ABORTED after Abort(), or the error of a stream that
// reaches a collective. A collective in which all members have arrived still finishes. Internal to
// comm/local.
#ifndef MESHIFT_COMM_LOCAL_GROUP_H_
#define MESHIFT_COMM_LOCAL_GROUP_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/local/collective.h"
#include "comm/local/reduction_order.h"
#include "comm/local/scheduler.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"

namespace meshift {

class Group;

// One call of one member. `sends` and `recvs` need not outlive Group::Call.
struct MemberCall {
  int member = 0;
  CollectiveCall call;
  CollectiveBuffers buffers;
  absl::Span<const PeerMessage> sends;
  absl::Span<const PeerMessage> recvs;
  LocalStream* stream = nullptr;
};

// A collective in progress.
class Collective final : public Rendezvous, public std::enable_shared_from_this<Collective> {
 public:
  Collective(std::shared_ptr<Group> group, int64_t number, const MemberCall& first,
             const ReductionSettings& settings);

  void Run(int part) override { work_.RunPart(part, num_parts()); }
  void Done(Scheduler& scheduler) override;
  absl::Status Arrive(Scheduler& scheduler, int member, const absl::Status& status) override;
  void TimeOut(Scheduler& scheduler) override;

 private:
  friend class Group;
  struct Member {
    LocalStream* stream = nullptr;  // null until it has called
    bool arrived = false;
  };

  // Adds a member's call. FAILED_PRECONDITION if it differs from the first member's, or if all have
  // called and their messages do not match.
  absl::Status Add(const MemberCall& call);
  // Resumes the streams of the members that have arrived, with `status`.
  void End(Scheduler& scheduler, const absl::Status& status);
  // "call 3 of group 0-7"
  std::string Name() const;

  const std::shared_ptr<Group> group_;
  const int64_t number_;
  int first_member_;  // the member that called first
  CollectiveWork work_;
  std::vector<Member> members_;
  std::vector<Transfer> sends_;
  std::vector<Transfer> recvs_;
  int called_ = 0;
  int arrived_ = 0;
  bool done_ = false;
};

// Call, Fail, Abort, status and OnDone require the scheduler's lock; the others return constants.
class Group : public std::enable_shared_from_this<Group> {
 public:
  // `number` is the group's index in its partition; `id` is unique in the world.
  Group(RankList ranks, int64_t number, int64_t id);

  const RankList& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int64_t number() const { return number_; }
  int64_t id() const { return id_; }
  std::string ToString() const;  // "group 0-7"

  // Puts a member's next call on its stream. An error ends the group and fails the stream.
  absl::Status Call(Scheduler& scheduler, const MemberCall& call,
                    const ReductionSettings& settings);
  // Ends the group and all collectives that still wait for members with `status`. Does nothing if
  // the group has ended.
  void Fail(Scheduler& scheduler, const absl::Status& status);
  // As Fail(), with ABORTED; later calls of members return it even after another error.
  void Abort(Scheduler& scheduler, int64_t by_rank);
  // OK, or the error with which the group ended.
  const absl::Status& status() const { return status_; }
  // Drops the collectives before the first that is not done.
  void OnDone();

 private:
  absl::StatusOr<std::shared_ptr<Collective>> Add(const MemberCall& call,
                                                  const ReductionSettings& settings);

  const RankList ranks_;
  const int64_t number_;
  const int64_t id_;
  absl::Status status_;
  absl::Status aborted_;
  std::vector<int64_t> calls_;  // number of calls, by member
  int64_t first_number_ = 0;    // the number of in_progress_[0]
  std::deque<std::shared_ptr<Collective>> in_progress_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_GROUP_H_
