// Implements ControlRoot (meshift/bootstrap.h) for one rank. A root is a set of ranks that compare
// the plans of their calls and tell each other of failures; it is not a rank. This keeps the rank's
// last posts (its plan in each call), the calls that the hub has settled, and the first failure of
// a peer. The hub settles a call when all ranks have announced it, or when two ranks have announced
// different plans.
//
//   root->Post(post, /*announce=*/true);
//   MESHIFT_RETURN_IF_ERROR(root->Await(post.call, timeout));
//
// The client sends its messages, and the client's thread delivers those of peers. It does not check
// these messages (frame_rules.h does). Errors and waits are those of ControlRoot. Internal to
// comm/control.
#ifndef MESHIFT_COMM_CONTROL_CLIENT_ROOT_H_
#define MESHIFT_COMM_CONTROL_CLIENT_ROOT_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "comm/control/frame.h"
#include "meshift/bootstrap.h"

namespace meshift {

class Client;

// UNAVAILABLE: the rank has left the job in order (`left`), or its process or connection is gone.
absl::Status Went(int64_t rank, bool left);

// Safe for concurrent use.
class ClientRoot final : public ControlRoot {
 public:
  // `client` must outlive this. `key`: the ranks as text, "#", and a number. `ranks` ascend.
  ClientRoot(Client* client, std::string key, std::vector<int64_t> ranks,
             std::function<void(const absl::Status&)> on_failure);
  ~ClientRoot() override;

  void Post(const CallPost& post, bool announce) override;
  absl::Status Await(int64_t call, std::chrono::nanoseconds timeout,
                     const std::function<void()>& meanwhile) override;
  absl::Status Explain(int64_t call, const absl::Status& error) override;
  void Fail(const absl::Status& error) override;
  absl::Status Health() const override;

  // For the client; from any thread.
  bool Has(int64_t rank) const;
  void Settle(int64_t call, const absl::Status& status);
  void PeerFailed(const absl::Status& status);
  // Peer `rank` has left in order after `calls` calls on this root. A further call here, made
  // already or later, needs the peer, and fails the root.
  void PeerLeft(int64_t rank, int64_t calls);
  // The hub has left in order: no failure, but no further call is settled.
  void HubLeft(const absl::Status& status);
  // Fills in this rank's answer about the call that `question` names.
  void Answer(Frame* question) const;

 private:
  // Fails the root: a call needs a peer that has left.
  void MissPeer();

  Client* const client_;
  const std::string key_;
  const std::vector<int64_t> ranks_;
  const std::function<void(const absl::Status&)> on_failure_;

  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::vector<CallPost> posts_ MESHIFT_GUARDED_BY(mutex_);  // call k at k % kRememberedPosts
  int64_t calls_ MESHIFT_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, absl::Status> settled_ MESHIFT_GUARDED_BY(mutex_);
  absl::Status told_ MESHIFT_GUARDED_BY(mutex_);     // this rank's own failure, sent to the peers
  absl::Status failure_ MESHIFT_GUARDED_BY(mutex_);  // the first failure of a peer
  absl::Status hub_left_ MESHIFT_GUARDED_BY(mutex_);
  absl::Status left_ MESHIFT_GUARDED_BY(mutex_);   // of the peer that left after the fewest calls
  std::atomic<int64_t> fewest_calls_ = INT64_MAX;  // of the peers that have left
  std::atomic<bool> failed_ = false;               // !failure_.ok()
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_CLIENT_ROOT_H_
