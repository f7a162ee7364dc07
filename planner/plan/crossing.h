// Lists the messages of a crossing: the step that sends a value from one mesh to another.
//
//   const Crossing crossing = Crossing::Of(before, after, topology);
//   for (const CrossingMessage& m : crossing.messages()) {
//     crossing.PartOf(m);   // the box of global indices that m.sender sends to m.receiver
//   }
//   crossing.KeptBy(3);     // the part of rank 3's new box that rank 3 holds already
//
// Each rank of the second mesh receives its new box, without the part that it holds already, from
// ranks of the first mesh. Among the ranks that hold a piece, the nearest in the topology sends it;
// among equally near ones, the rank with the fewest elements to send so far; on a tie, the lowest
// rank. docs/plan_format.md, "Crossing to another mesh", has the rule. If the value before is
// partial, each receiver gets every contribution. A Crossing has no times (planner/cost) and sends
// no data (comm/program).
//
// Sizes are in elements. Of() refuses nothing: the caller first compares CountMessages() with
// kMaxMessages. Memory is O(ranks * levels + messages); time is O((ranks + messages) * levels *
// log(ranks)), with the levels of the topology. Immutable, and safe for concurrent use.
#ifndef MESHIFT_PLANNER_PLAN_CROSSING_H_
#define MESHIFT_PLANNER_PLAN_CROSSING_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"

namespace meshift {

// The number of contributions of a value: the product of the sizes of the mesh dims that are P.
int64_t ContributionsOf(const Sharding& sharding);

// The one message from a sender to a receiver.
struct CrossingMessage {
  int64_t sender = 0;
  int64_t receiver = 0;
  // The flattened coordinate over the P dims of the value before; 0 without P.
  int64_t contribution = 0;
  int64_t elements = 0;  // at least 1
  friend bool operator==(const CrossingMessage&, const CrossingMessage&) = default;
};

// The distinct non-empty boxes of a value that ranks hold: its pieces.
class DistinctBoxes {
 public:
  explicit DistinctBoxes(const Sharding& sharding);
  // The number of these boxes that have an element in `box`.
  int64_t CountIn(const Box& box) const;

 private:
  // By tensor dim: the first index of each interval, then the extent.
  std::vector<std::vector<int64_t>> begins_;
};

class Crossing {
 public:
  // The planner refuses a crossing whose CountMessages() is larger. The verifier has the same limit
  // (kMaxPairs in planner/verifier/crossing.h).
  static constexpr int64_t kMaxMessages = int64_t{1} << 24;
  // An upper bound of the number of messages that Of() makes; saturates. O(ranks log ranks) time.
  // REQUIRES: equal shapes.
  static int64_t CountMessages(const Sharding& before, const Sharding& after);
  // REQUIRES: equal shapes; `after` has no P; CountMessages() and the number of ranks are below
  // 2^31. The value that is sent has the dtype of `before`.
  static Crossing Of(const Sharding& before, const Sharding& after, const Topology& topology);

  // Ascending by receiver, then by contribution, then by the first index of the sender's box
  // (lexicographically). No message is empty; no rank sends to itself.
  absl::Span<const CrossingMessage> messages() const { return messages_; }
  absl::Span<const CrossingMessage> MessagesTo(int64_t rank) const;
  // The messages that `rank` sends, in the order of messages(), as indices into it.
  absl::Span<const int32_t> MessagesFrom(int64_t rank) const;
  // The box of the message: the common part of the sender's box before and the receiver's box
  // after.
  Box PartOf(const CrossingMessage& message) const;

  // The part of its box after that `rank` holds itself; nullopt if there is none. If there is one,
  // also sets `contribution`, if given, to the one that `rank` holds.
  std::optional<Box> KeptBy(int64_t rank, int64_t* contribution = nullptr) const;

  // The ranks of both meshes, ascending.
  absl::Span<const int64_t> ranks() const { return ranks_; }
  // The number of contributions, each of which every receiver gets; 1 without P.
  int64_t contributions() const { return contributions_; }

  // Elements that `rank` sends and receives; 0 if it is in neither mesh.
  int64_t SentBy(int64_t rank) const;
  int64_t ReceivedBy(int64_t rank) const;
  // The elements of SentBy(rank) whose receivers share a domain of this level of the topology with
  // `rank`, and no domain of a lower level.
  int64_t SentBy(int64_t rank, int level) const;
  // The maximum over ranks of elements sent, received and kept, and of messages sent or received.
  int64_t most_sent() const { return most_sent_; }
  int64_t most_received() const { return most_received_; }
  int64_t most_kept() const { return most_kept_; }
  int64_t most_messages() const { return most_messages_; }
  // The most elements that a rank sends to, or receives from, ranks with which it shares no domain
  // below this level. At level 0: the larger of most_sent() and most_received().
  int64_t MostAcross(int level) const { return most_across_[level]; }
  // Whether some message, or the kept part of some rank, is not contiguous in the sender's box
  // before (in the receiver's box after), by the rule of docs/plan_format.md, "Memory". Such parts
  // are packed.
  bool send_packs() const { return send_packs_; }
  bool receive_packs() const { return receive_packs_; }

 private:
  Crossing(Sharding before, Sharding after)
      : before_(std::move(before)), after_(std::move(after)) {}
  // The index of `rank` in ranks_, or -1.
  int64_t IndexOf(int64_t rank) const;
  void SetPacking();
  // Sets the totals by rank from messages_ and kept_. `senders`, `receivers`: indices into ranks_,
  // by message.
  void Count(const Topology& topology, absl::Span<const int32_t> senders,
             absl::Span<const int32_t> receivers);

  Sharding before_;
  Sharding after_;
  int64_t contributions_ = 1;
  std::vector<int64_t> ranks_;
  std::vector<CrossingMessage> messages_;
  // By index in ranks_:
  std::vector<int64_t> kept_;      // elements
  std::vector<int64_t> sent_;      // elements, by level
  std::vector<int64_t> received_;  // elements, by level
  std::vector<int32_t> to_begin_;  // index of its first received message; one more at the end
  std::vector<int32_t> from_begin_;
  std::vector<int32_t> from_;  // indices of messages, by sender
  int num_levels_ = 1;
  std::vector<int64_t> most_across_;
  int64_t most_sent_ = 0;
  int64_t most_received_ = 0;
  int64_t most_kept_ = 0;
  int64_t most_messages_ = 0;
  bool send_packs_ = false;
  bool receive_packs_ = false;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_CROSSING_H_
