// The messages of a crossing: the step that takes a value from one mesh to another.
//
//   const Crossing crossing = Crossing::Of(before, after, topology);
//   for (const CrossingMessage& m : crossing.messages()) {
//     crossing.PartOf(m);               // the box of global indices that m.sender gives m.receiver
//   }
//   crossing.KeptBy(3);                 // what rank 3 has of its box after, and needs not be sent
//
// Each rank of the second mesh takes its box after from ranks of the first, from the nearest that
// hold it and among these from who has been given the least to send; docs/plan_format.md,
// "Crossing to another mesh", has the rule. Where the value before is partial, the receivers want
// every contribution of it.
//
// Takes O(ranks + messages) memory, and a factor log(ranks) more time; no rank is compared with
// every other. An immutable value; safe for concurrent use.
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

// How many contributions make up a value: the sizes of the mesh dims that are P, multiplied.
int64_t ContributionsOf(const Sharding& sharding);

// All that goes from one rank to another.
struct CrossingMessage {
  int64_t sender = 0;
  int64_t receiver = 0;
  int64_t contribution =
      0;                 // flattened coordinate over the P dims of the value before; 0 without P
  int64_t elements = 0;  // > 0
  friend bool operator==(const CrossingMessage&, const CrossingMessage&) = default;
};

// The pieces that a value is cut into: the distinct boxes that ranks hold.
class Pieces {
 public:
  explicit Pieces(const Sharding& sharding);
  // How many of them have an element in `box`.
  int64_t CountIn(const Box& box) const;

 private:
  std::vector<std::vector<int64_t>> begins_;  // by tensor dim: where pieces begin, then its extent
};

class Crossing {
 public:
  // So many messages are planned at most, as the verifier looks at no more (kMaxPairs).
  static constexpr int64_t kMaxMessages = int64_t{1} << 24;
  // No less than the number of messages that Of() makes; saturates. Takes O(ranks) time.
  static int64_t CountMessages(const Sharding& before, const Sharding& after);
  // REQUIRES: equal shapes; `after` has no P; fewer than 2^31 messages. The value before has
  // `before`'s dtype.
  static Crossing Of(const Sharding& before, const Sharding& after, const Topology& topology);

  // Ascending by receiver; of one receiver, by contribution, then by the first index of the
  // sender's box (lexicographically). None is empty, none is of a rank to itself.
  absl::Span<const CrossingMessage> messages() const { return messages_; }
  absl::Span<const CrossingMessage> MessagesTo(int64_t rank) const;
  // Those that `rank` sends, in the order of messages(), as indices into it.
  absl::Span<const int32_t> MessagesFrom(int64_t rank) const;
  // What the message carries: the sender's box before and the receiver's box after have it in
  // common.
  Box PartOf(const CrossingMessage& message) const;

  // What `rank` itself holds of its box after; nullopt where that is nothing. `contribution`, where
  // given, is set to the one that it holds.
  std::optional<Box> KeptBy(int64_t rank, int64_t* contribution = nullptr) const;

  // The ranks of both meshes, ascending.
  absl::Span<const int64_t> ranks() const { return ranks_; }
  // Contributions of which every receiver gets all; 1 without P.
  int64_t contributions() const { return contributions_; }

  // Elements that `rank` sends, and receives; 0 where it is in neither mesh.
  int64_t SentBy(int64_t rank) const;
  int64_t ReceivedBy(int64_t rank) const;
  // Of those that it sends, the ones that go to ranks with which it shares a domain of this level
  // of the topology, and of none below.
  int64_t SentBy(int64_t rank, int level) const;
  // The most that any rank sends, receives, and keeps; messages of a rank, sent or received.
  int64_t most_sent() const { return most_sent_; }
  int64_t most_received() const { return most_received_; }
  int64_t most_kept() const { return most_kept_; }
  int64_t most_messages() const { return most_messages_; }
  // The most that any rank sends to, or receives from, ranks with which it shares no domain below
  // this level. At level 0: the larger of most_sent() and most_received().
  int64_t MostAcross(int level) const { return most_across_[level]; }
  // Whether some message, or what a rank keeps, is no run of the sender's box before (of the
  // receiver's box after), by the rule of docs/plan_format.md, "Memory".
  bool send_packs() const { return send_packs_; }
  bool receive_packs() const { return receive_packs_; }

 private:
  Crossing(Sharding before, Sharding after)
      : before_(std::move(before)), after_(std::move(after)) {}
  // The place of `rank` in ranks_, or -1.
  int64_t IndexOf(int64_t rank) const;
  void SetPacking();
  // Sets what is known by rank, from messages_ and kept_. `senders`, `receivers`: places in ranks_,
  // by message.
  void Count(const Topology& topology, absl::Span<const int32_t> senders,
             absl::Span<const int32_t> receivers);

  Sharding before_;
  Sharding after_;
  int64_t contributions_ = 1;
  std::vector<int64_t> ranks_;
  std::vector<CrossingMessage> messages_;
  // By place in ranks_:
  std::vector<int64_t> kept_;      // elements
  std::vector<int64_t> sent_;      // elements, by level
  std::vector<int64_t> received_;  // elements, by level
  std::vector<int32_t> to_begin_;  // where the messages to it begin, and where the last one's end
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
