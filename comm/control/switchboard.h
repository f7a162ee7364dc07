// Who of a job is there, what is being waited for, and who is to be told what: the hub's part that
// knows no sockets.
//
//   Switchboard board(world_size, [&](int64_t rank, const Bytes& frame) { ... });
//   if (std::string why = board.Refuse(rank, size); why.empty()) board.Enter(rank);
//   MESHIFT_RETURN_IF_ERROR(board.Handle(rank, std::move(frame)));   // else: drop the rank
//   board.EndTurn();
//
// Everything that a rank can make it keep is bounded. One thread at a time.
#ifndef MESHIFT_COMM_CONTROL_SWITCHBOARD_H_
#define MESHIFT_COMM_CONTROL_SWITCHBOARD_H_

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

// Encoded frames, one or several of one kind, shared by all to whom they go.
using Bytes = std::shared_ptr<const std::string>;

class Switchboard {
 public:
  // Of one rank, at a time: exchanges that not all have given to, roots it has joined, and calls of
  // one root that not all have announced.
  static constexpr int64_t kMaxExchanges = 64;
  static constexpr int64_t kMaxRoots = 16384;
  static constexpr size_t kMaxCalls = 4096;

  // `post`: takes what is for a rank that is here; must not call back.
  Switchboard(int64_t world_size, std::function<void(int64_t, const Bytes&)> post);

  // Why `rank` of a job of `world_size` cannot come; empty: it can. Remembers a refusal, for those
  // who will wait for that rank.
  std::string Refuse(int64_t rank, int64_t world_size);
  // As if Refuse() had said `why`: it has not shown the secret, or the hub had no descriptor left.
  void NoteRefusal(int64_t rank, const std::string& why);
  // Something about the hub that those who wait for ranks should know.
  void SetNote(std::string note) { note_ = std::move(note); }
  // `rank` is here, and learns who has gone before.
  void Enter(int64_t rank);
  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED: the rank breaks a rule, and should be dropped.
  absl::Status Handle(int64_t sender, Frame frame);
  // The rank's connection has ended.
  void Exit(int64_t rank);
  // Tells who has gone since the last turn.
  void EndTurn();
  // Tells those who are still here that the hub leaves.
  void Leave() { SendToAll(LastWord()); }

 private:
  enum class Presence : uint8_t { kNever, kHere, kLeft, kGone };
  // One exchange that not all ranks have given to.
  struct Exchange {
    std::vector<std::optional<std::string>> given;  // by rank
    int64_t count = 0;
    bool done = false;
  };
  // One call of a root that some have announced.
  struct Announced {
    Frame first;
    std::vector<bool> given;  // by place in the root's ranks
    int64_t count = 0;
    Bytes settled;  // as unequal
  };
  struct Root {
    std::vector<int64_t> ranks;
    std::vector<bool> parted;  // who says no more: has parted, left, or is gone
    int64_t count = 0;         // of them
    int64_t opener = 0;
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
  // The root of that name and the sender's place in it. Nothing: it has ended. INVALID_ARGUMENT:
  // the sender is not in it.
  absl::StatusOr<std::pair<Root*, size_t>> Find(const std::string& root, int64_t sender);
  Roots::iterator Part(Roots::iterator root, size_t place);
  static Bytes LastWord();
  void Went(int64_t rank, Presence how, Bytes told);
  void Send(int64_t rank, const Frame& frame);
  void SendToRoot(const Root& root, const Frame& frame, int64_t but);
  void SendToAll(const Bytes& frames);

  const int64_t world_size_;
  const std::function<void(int64_t, const Bytes&)> post_;
  std::vector<Presence> presence_;
  std::vector<Bytes> farewells_;  // what is told of a rank that is not here any more
  std::vector<int64_t> went_;     // those ranks, in their order
  size_t told_ = 0;               // of went_, all know of these
  std::map<int64_t, std::string> refused_;
  std::string note_;
  int64_t first_exchange_ = 0;  // all before it are done
  std::map<int64_t, Exchange> exchanges_;
  Roots roots_;
  std::vector<int64_t> opened_;  // by rank: roots that are there because of it
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_SWITCHBOARD_H_
