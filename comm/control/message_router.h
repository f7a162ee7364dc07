// Decides which frames the hub sends to which ranks. Keeps the hub's state of a job: the ranks that
// are present, and the exchanges and the roots' calls (meshift/bootstrap.h) that are not complete.
//
//   MessageRouter router(world_size, [&](int64_t rank, const Bytes& frame) { ... });
//   if (std::string why = router.Refuse(rank, size); why.empty()) router.Enter(rank);
//   MESHIFT_RETURN_IF_ERROR(router.Handle(rank, std::move(frame)));   // else: drop the rank
//   router.EndTurn();
//
// It has no sockets: the caller sends and receives. The memory that one rank can make it use is
// bounded. Not thread-safe. Internal to comm/control.
#ifndef MESHIFT_COMM_CONTROL_MESSAGE_ROUTER_H_
#define MESHIFT_COMM_CONTROL_MESSAGE_ROUTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/control/frame.h"

namespace meshift {

// Encoded frames, shared by all receivers: one, or the kBye, kLeave and kGone of several ranks.
using Bytes = std::shared_ptr<const std::string>;

class MessageRouter {
 public:
  // Limits at a time.
  static constexpr int64_t kMaxExchanges = 64;  // from the first that is not complete
  static constexpr int64_t kMaxRoots = 16384;   // opened by one rank
  static constexpr size_t kMaxCalls = 4096;     // of one root that not all ranks have announced

  // `post` sends frames to a rank that is present. It must not call this router.
  MessageRouter(int64_t world_size, std::function<void(int64_t, const Bytes&)> post);

  // The reason why a rank that says that it is `rank` of `world_size` cannot enter; empty: it can.
  // Remembers the refusal if rank `rank` has not entered yet, to report it to ranks that wait.
  std::string Refuse(int64_t rank, int64_t world_size);
  // Remembers `why` as a refusal, as Refuse() does: for example, the rank has not proven the
  // secret.
  void NoteRefusal(int64_t rank, const std::string& why);
  // A note about the hub for ranks that wait for missing ones; empty: none.
  void SetNote(std::string note) { note_ = std::move(note); }
  // `rank` is present from now on. Sends it the frames of all ranks that have left or are gone.
  // REQUIRES: Refuse() returned "".
  void Enter(int64_t rank);
  // Handles a frame. INVALID_ARGUMENT, RESOURCE_EXHAUSTED: the rank broke a rule or a limit above;
  // the caller should drop it, and call Exit().
  absl::Status Handle(int64_t sender, Frame frame);
  // The rank's connection has ended.
  void Exit(int64_t rank);
  // Tells the ranks which ranks have left or are gone since the last EndTurn(). Call it after each
  // batch of frames: then ranks that leave together take linear work.
  void EndTurn();
  // Tells the ranks that are present that the hub leaves.
  void Leave() { SendToAll(LastWord()); }

 private:
  enum class Presence : uint8_t { kNever, kHere, kLeft, kGone };
  // An exchange to which some ranks have sent their bytes.
  struct Exchange {
    std::vector<std::optional<std::string>> given;  // by rank
    int64_t count = 0;
    bool done = false;
  };
  // A call of a root that some ranks have announced.
  struct Announced {
    Frame first;
    std::vector<bool> given;  // by index in the root's ranks
    int64_t count = 0;
    Bytes settled;  // the kSettled, once two plans have differed
  };
  struct Root {
    std::vector<int64_t> ranks;
    std::vector<bool> parted;  // ranks that have parted, left, or are gone, by index in `ranks`
    int64_t count = 0;         // number of true elements of `parted`
    int64_t opener = 0;        // the rank that joined first
    std::map<int64_t, Announced> calls;
  };
  using Roots = std::map<std::string, Root>;

  absl::Status OnExchange(int64_t sender, Frame frame);
  void OnMissing(int64_t sender, const Frame& frame);
  absl::Status OnJoin(int64_t sender, const Frame& frame);
  absl::Status OnAnnounce(int64_t sender, const Frame& frame);
  absl::Status OnAsk(int64_t sender, Frame frame);
  absl::Status OnAnswer(int64_t sender, Frame frame);
  absl::Status OnFail(int64_t sender, Frame frame);
  void OnBye(int64_t sender, Frame frame);
  // The root and the sender's index in its ranks; a null root: it has ended. INVALID_ARGUMENT: the
  // sender is not a member.
  absl::StatusOr<std::pair<Root*, size_t>> Find(const std::string& root, int64_t sender);
  // The rank at index `place` leaves the root. Returns the next root; the last rank erases it.
  Roots::iterator Part(Roots::iterator root, size_t place);
  static Bytes LastWord();  // the hub's kBye
  void MarkAbsent(int64_t rank, Presence how, Bytes farewell);
  void Send(int64_t rank, const Frame& frame);
  void SendToRoot(const Root& root, const Frame& frame, int64_t but);
  void SendToAll(const Bytes& frames);

  const int64_t world_size_;
  const std::function<void(int64_t, const Bytes&)> post_;
  std::vector<Presence> presence_;
  std::vector<Bytes> farewells_;     // by rank: its kBye, kLeave or kGone; null while it is present
  std::vector<int64_t> absent_;      // ranks that have left or are gone, in order
  size_t num_announced_absent_ = 0;  // how many of absent_, from the first, all ranks know of
  std::map<int64_t, std::string> refused_;
  std::string note_;
  int64_t first_exchange_ = 0;  // all earlier ones are done
  std::map<int64_t, Exchange> exchanges_;
  Roots roots_;
  std::vector<int64_t> opened_;  // by rank: number of existing roots that it opened
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_MESSAGE_ROUTER_H_
