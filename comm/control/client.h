// One rank's connection to the hub: Bootstrap and ControlChannel in one. A thread reads what comes,
// and answers peers that ask.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto client, Client::Start(job, std::move(socket), key, deadline));
#ifndef MESHIFT_COMM_CONTROL_CLIENT_H_
#define MESHIFT_COMM_CONTROL_CLIENT_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/control/client_root.h"
#include "comm/control/frame.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "meshift/bootstrap.h"

namespace meshift {

class Client final : public ControlChannel {
 public:
  // How long a hub that is there may take to answer, and, once it has, to let a rank in.
  static constexpr std::chrono::seconds kHelloTime{5};
  static constexpr std::chrono::seconds kProofTime{60};

  // Says hello and waits for the hub's welcome. FAILED_PRECONDITION: the job's own hub refuses this
  // rank. Else somebody else may be there, or the hub later: DEADLINE_EXCEEDED: no answer by
  // `until`, or in the times above; UNAVAILABLE: who answers is not the job's hub, or has hung up.
  static absl::StatusOr<std::unique_ptr<Client>> Start(const JobRank& job, Socket socket,
                                                       const JobKey& key,
                                                       std::chrono::steady_clock::time_point until);
  // Leaves the job, unless Leave() has.
  ~Client() override;

  absl::StatusOr<std::vector<std::string>> Exchange(std::string_view mine,
                                                    std::chrono::nanoseconds timeout);
  // As Bootstrap::Leave().
  void Leave(const absl::Status& reason);
  absl::StatusOr<std::unique_ptr<ControlRoot>> Join(
      absl::Span<const int64_t> ranks,
      std::function<void(const absl::Status&)> on_failure) override;

 private:
  friend class ClientRoot;

  Client(const JobRank& job, Socket socket) : job_(job), socket_(std::move(socket)) {}
  void Run(FrameReader reader);
  void Handle(Frame frame);
  void HandleOfRoot(Frame frame);
  void HandleOfAbsent(const Frame& frame);
  // Whether a rank that left has joined these ranks (as text) more than `number` times before. It
  // may then be done with a root that this rank is only about to join.
  bool HadJoined(int64_t rank, const std::string& ranks, int64_t number) const
      MESHIFT_REQUIRES(mutex_);
  // The hub is lost. Where it has left, no root has failed for that.
  void Lose(const absl::Status& status, bool left);
  void Send(const Frame& frame);
  // What the other ranks of a root say about a call, by rank, and the hub as rank -1: what comes
  // within half a second, and before one of them leaves for an error.
  std::map<int64_t, Frame> Ask(const std::string& root, int64_t call,
                               absl::Span<const int64_t> ranks);
  // Why one of `ranks` has left; OK: none has left for an error.
  absl::Status WhyLeft(absl::Span<const int64_t> ranks);
  absl::Status WhyLeftLocked(absl::Span<const int64_t> ranks) const MESHIFT_REQUIRES(mutex_);
  // It has given no answer, and is neither gone nor has it left.
  bool HubIsSilent();
  // Waits until the hub has passed on a root's failure ("": that this rank leaves); half a second
  // at most.
  void AwaitPassed(const std::string& root);
  // Who has not given its bytes, and what else the hub knows about it.
  struct Missing {
    bool answered = false;  // by the hub
    std::vector<int64_t> ranks;
    std::vector<std::string> notes;
  };
  Missing AskMissing(int64_t exchange);
  absl::StatusOr<std::string> AwaitExchange(int64_t number, std::chrono::nanoseconds timeout);
  // `calls`: that this rank has made of it.
  void LeaveRoot(const std::string& root, int64_t calls);

  const JobRank job_;
  const Socket socket_;
  std::thread thread_;
  Mutex send_mutex_;

  Mutex mutex_;
  std::condition_variable changed_;
  absl::Status lost_ MESHIFT_GUARDED_BY(mutex_);      // why there is no hub any more
  bool hub_left_ MESHIFT_GUARDED_BY(mutex_) = false;  // in order
  absl::Status told_ MESHIFT_GUARDED_BY(mutex_);      // with Leave()
  std::map<int64_t, absl::Status> absent_ MESHIFT_GUARDED_BY(mutex_);  // ranks that went, and how
  // Those that left for an error, in their order.
  std::vector<std::pair<int64_t, absl::Status>> left_ MESHIFT_GUARDED_BY(mutex_);
  // The last roots that were left, and how many calls they had.
  std::deque<std::pair<std::string, int64_t>> parted_ MESHIFT_GUARDED_BY(mutex_);
  // Of those that went without leaving the one that was first: others may have ended for it.
  absl::Status first_gone_ MESHIFT_GUARDED_BY(mutex_);
  // How often those that left had joined which ranks.
  std::map<int64_t, std::map<std::string, int64_t>> joins_of_left_ MESHIFT_GUARDED_BY(mutex_);
  int64_t exchanges_ MESHIFT_GUARDED_BY(mutex_) = 0;
  // By number, those that are waited for; empty until the hub has all.
  std::map<int64_t, std::optional<std::string>> exchanged_ MESHIFT_GUARDED_BY(mutex_);
  std::map<int64_t, Missing> missing_ MESHIFT_GUARDED_BY(mutex_);
  int64_t questions_ MESHIFT_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, std::map<int64_t, Frame>> answers_ MESHIFT_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> joins_ MESHIFT_GUARDED_BY(mutex_);  // of each set of ranks
  std::set<std::string> passed_ MESHIFT_GUARDED_BY(mutex_);          // roots whose failure has gone
  // Failures of roots that this rank has not joined yet.
  std::map<std::string, absl::Status> early_ MESHIFT_GUARDED_BY(mutex_);

  // Held while a root is called by this client's thread; taken before mutex_.
  Mutex roots_mutex_;
  std::map<std::string, ClientRoot*> roots_ MESHIFT_GUARDED_BY(roots_mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_CLIENT_H_
