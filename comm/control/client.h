// One rank's connection to the hub (comm/control/hub.h). It is the rank's ControlChannel, and does
// the work of its Bootstrap.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto client, Client::Start(job, std::move(socket), key, deadline));
//   MESHIFT_ASSIGN_OR_RETURN(auto root, client->Join(ranks, on_failure));
//
// A thread reads the hub's frames, answers peers' questions, and calls the roots' on_failure;
// Post() may call on_failure too. It does not reconnect. Destroy all roots first. Safe for
// concurrent use. A call that sends may block while the hub reads nothing. Internal to
// comm/control.
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
  // How long a connected hub may take to answer, and then to accept the rank.
  static constexpr std::chrono::seconds kHelloTime{5};
  static constexpr std::chrono::seconds kProofTime{60};

  // Sends the hello and waits for the hub's welcome. FAILED_PRECONDITION: the job's own hub refuses
  // this rank, so a retry is useless. Worth a retry are DEADLINE_EXCEEDED (no answer by `until`, or
  // within the times above) and UNAVAILABLE (the peer has not proven that it is the job's hub, or
  // has hung up; or the kernel provides no random bytes).
  static absl::StatusOr<std::unique_ptr<Client>> Start(const JobRank& job, Socket socket,
                                                       const JobKey& key,
                                                       std::chrono::steady_clock::time_point until);
  // Leaves the job, unless Leave() did.
  ~Client() override;

  // As Bootstrap::Exchange().
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
  // For frames about ranks that left or died.
  void HandleOfAbsent(const Frame& frame);
  // Whether `rank`, which has left, had joined roots over `ranks` (EncodeRanks) more than `number`
  // times. Then it may have finished with a root that this rank is about to join.
  bool HadJoined(int64_t rank, const std::string& ranks, int64_t number) const
      MESHIFT_REQUIRES(mutex_);
  // The connection to the hub has ended. If the hub left in order (`left`), no root fails for that.
  void Lose(const absl::Status& status, bool left);
  void Send(const Frame& frame);
  // Asks the other ranks of a root about a call. Returns the answers by rank, the hub's as rank -1,
  // that arrive within half a second, before one of the ranks leaves with an error, and before the
  // connection ends.
  std::map<int64_t, Frame> Ask(const std::string& root, int64_t call,
                               absl::Span<const int64_t> ranks);
  // The error with which one of `ranks` has left; OK if there was none.
  absl::Status WhyLeft(absl::Span<const int64_t> ranks);
  absl::Status WhyLeftLocked(absl::Span<const int64_t> ranks) const MESHIFT_REQUIRES(mutex_);
  // Whether the connection to the hub stands. Then a hub that has not answered is stuck.
  bool HubIsSilent();
  // Waits until the hub has forwarded a root's failure, or with "" this rank's kLeave; at most half
  // a second.
  void AwaitPassed(const std::string& root);
  // The hub's answer to kMissing: the ranks that have not sent their bytes, and notes about why.
  struct Missing {
    bool answered = false;  // false: the hub did not answer in time
    std::vector<int64_t> ranks;
    std::vector<std::string> notes;
  };
  Missing AskMissing(int64_t exchange);
  absl::StatusOr<std::string> AwaitExchange(int64_t number, std::chrono::nanoseconds timeout);
  // `calls` is the number of calls that this rank has made on the root.
  void LeaveRoot(const std::string& root, int64_t calls);

  const JobRank job_;
  const Socket socket_;
  std::thread thread_;
  Mutex send_mutex_;

  Mutex mutex_;
  std::condition_variable changed_;
  absl::Status lost_ MESHIFT_GUARDED_BY(mutex_);          // why the connection ended; OK: it stands
  bool hub_left_ MESHIFT_GUARDED_BY(mutex_) = false;      // it left in order
  absl::Status leave_reason_ MESHIFT_GUARDED_BY(mutex_);  // this rank's reason in Leave()
  std::map<int64_t, absl::Status> absent_ MESHIFT_GUARDED_BY(mutex_);  // ranks that left or died
  // Ranks that left with an error, in order.
  std::vector<std::pair<int64_t, absl::Status>> left_ MESHIFT_GUARDED_BY(mutex_);
  // The last roots that this rank left (kMaxLeftRoots in client.cc), with their numbers of calls.
  std::deque<std::pair<std::string, int64_t>> left_roots_ MESHIFT_GUARDED_BY(mutex_);
  // The first rank that died or left with an error; later ones may have ended because of it.
  absl::Status first_gone_ MESHIFT_GUARDED_BY(mutex_);
  // For each rank that left in order, how often it had joined which ranks, and its calls by root.
  std::map<int64_t, std::map<std::string, int64_t>> joins_of_left_ MESHIFT_GUARDED_BY(mutex_);
  int64_t exchanges_ MESHIFT_GUARDED_BY(mutex_) = 0;
  // The exchanges in progress, by number; without a value until the hub has all parts.
  std::map<int64_t, std::optional<std::string>> exchanged_ MESHIFT_GUARDED_BY(mutex_);
  std::map<int64_t, Missing> missing_ MESHIFT_GUARDED_BY(mutex_);
  int64_t questions_ MESHIFT_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, std::map<int64_t, Frame>> answers_ MESHIFT_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> joins_ MESHIFT_GUARDED_BY(mutex_);  // Join() calls by ranks
  std::set<std::string> passed_ MESHIFT_GUARDED_BY(mutex_);  // roots whose kPassed has arrived
  // Failures of roots that this rank has not joined yet, or has left.
  std::map<std::string, absl::Status> early_ MESHIFT_GUARDED_BY(mutex_);

  // Held while the reading thread calls a root. Lock order: before mutex_.
  Mutex roots_mutex_;
  std::map<std::string, ClientRoot*> roots_ MESHIFT_GUARDED_BY(roots_mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_CLIENT_H_
