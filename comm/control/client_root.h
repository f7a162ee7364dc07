// What a rank knows of one root: its own last posts, what the hub has settled, and the first
// failure. Peers are asked and told through the client, whose thread brings what they say.
//
//   root->Post(post, /*announce=*/true);
//   MESHIFT_RETURN_IF_ERROR(root->Await(post.call, timeout));
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

// UNAVAILABLE: the rank has left the job, in order, or is gone.
absl::Status Went(int64_t rank, bool left);

// Safe for concurrent use.
class ClientRoot final : public ControlRoot {
 public:
  ClientRoot(Client* client, std::string key, std::vector<int64_t> ranks,
             std::function<void(const absl::Status&)> on_failure);
  ~ClientRoot() override;

  void Post(const CallPost& post, bool announce) override;
  absl::Status Await(int64_t call, std::chrono::nanoseconds timeout,
                     const std::function<void()>& meanwhile) override;
  absl::Status Explain(int64_t call, const absl::Status& error) override;
  void Fail(const absl::Status& error) override;
  absl::Status Health() const override;

  // For the client's thread.
  bool Has(int64_t rank) const;
  void Settle(int64_t call, const absl::Status& status);
  void PeerFailed(const absl::Status& status);
  // Peer `rank` has left in order, once it had made so many calls. Who makes more needs it.
  void PeerLeft(int64_t rank, int64_t calls);
  // The hub has left, in order: nothing has failed, and no call will be settled any more.
  void HubLeft(const absl::Status& status);
  // Fills in what this rank says about the call that `question` names.
  void Answer(Frame* question) const;

 private:
  // A call needs a peer that has left.
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
  absl::Status told_ MESHIFT_GUARDED_BY(mutex_);  // the peers, of a failure here
  absl::Status failure_ MESHIFT_GUARDED_BY(mutex_);
  absl::Status hub_left_ MESHIFT_GUARDED_BY(mutex_);
  absl::Status left_ MESHIFT_GUARDED_BY(mutex_);  // of the peer that has left with the fewest calls
  std::atomic<int64_t> fewest_calls_ = INT64_MAX;  // of those that have left
  std::atomic<bool> failed_ = false;               // !failure_.ok()
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_CLIENT_ROOT_H_
