// Estimates the time of a collective in ns: the minimum over the algorithms and protocols of a
// collective library such as NCCL. A step's groups may differ in shape. Each number of a GroupShape
// is that of the worst group in it (group_shape.h), so a time may be that of no single group.
//
//   const GroupTimes times(topology, ShapeOf(topology, 16, groups));
//   const CollectiveTime time = times.AllReduce(int64_t{64} << 20);
//   time.Ns();
//   time.algorithm;                             // such as kInSwitch
//   topology.protocols()[time.protocol].name;   // "Simple"
//
// Each algorithm (ring, tree, in-switch, direct messages) in each protocol of the topology takes a
// start time, the latency of its hops, and its bytes over the bandwidth of its slowest links. Only
// the last protocol reduces in switches; without protocols there are only rings and messages. Trees
// and switches serve only all_reduce. So, before rounding, the minimum is a concave, piecewise
// linear, increasing function of the bytes. docs/cost_model.md has the formulas. Not included:
// other traffic on the links, packing, local copies, and the time per message.
//
// Arithmetic saturates; times are rounded up to whole ns. REQUIRES: bytes >= 0. GroupTimes and
// MessageTimes are immutable, keep no reference to the topology, and are safe for concurrent use.
#ifndef MESHIFT_PLANNER_COST_COLLECTIVE_TIME_H_
#define MESHIFT_PLANNER_COST_COLLECTIVE_TIME_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "meshift/plan.h"
#include "meshift/topology.h"
#include "planner/cost/envelope.h"
#include "planner/cost/group_shape.h"

namespace meshift {

struct CollectiveTime {
  int64_t start_ns = 0;  // start-up of the collective and its protocol
  int64_t hops_ns = 0;   // latency of the hops, and entry of the levels
  int64_t links_ns = 0;  // the bytes on the slowest links
  Algorithm algorithm = Algorithm::kRing;
  int8_t protocol = -1;  // index in Topology::protocols(); -1: the topology has none
  int8_t level = 0;      // of the slowest links
  // If the slowest links connect domains: the fewest members of a group in one such domain. Each
  // member has a link of its own. Otherwise, and in MessageTimes::Of(), 0.
  int64_t sharing = 0;

  int64_t Ns() const { return SaturatingAdd(SaturatingAdd(start_ns, hops_ns), links_ns); }
};

// The time of messages between arbitrary ranks.
class MessageTimes {
 public:
  // `latency_ns`: the entry times of the levels, and the hops of a tree that reaches all receivers
  // (TreeNs()).
  MessageTimes(const Topology& topology, int64_t latency_ns);

  // The most that a rank sends or receives over level i is bytes[i]; levels after the last entry
  // carry nothing. The time per message (message_latency_ns) is not included. REQUIRES: at most one
  // entry per level of the topology.
  CollectiveTime Of(absl::Span<const int64_t> bytes) const;

 private:
  struct Line {
    CollectiveTime time;                        // for 0 bytes
    absl::InlinedVector<int64_t, 2> bandwidth;  // by level
  };
  absl::InlinedVector<Line, 3> lines_;  // by protocol
};

// Bytes by level of links.
using BytesByLevel = absl::InlinedVector<int64_t, 3>;

// The times of collectives in groups of one shape.
class GroupTimes {
 public:
  GroupTimes(const Topology& topology, const GroupShape& shape);

  const GroupShape& shape() const { return shape_; }
  // An all_reduce of a tensor of `bytes`.
  CollectiveTime AllReduce(int64_t bytes) const { return Least(all_reduce_, bytes); }
  // An all_gather or reduce_scatter. `bytes`: that a member sends, all blocks except its own.
  CollectiveTime Blocks(int64_t bytes) const { return Least(blocks_, bytes); }
  // The worst rank exchanges `messages` messages of equal size, `bytes` in all, with other members.
  // As many of the messages cross each level as the group allows. So the same bytes in fewer
  // messages never take less time. The time per message is not included. REQUIRES: the messages go
  // to different members.
  CollectiveTime Direct(int64_t bytes, int64_t messages) const;
  enum class Kind : uint8_t { kAllReduce, kBlocks, kToAll };
  // The time of each algorithm in each protocol, even if it is never the minimum. `bytes` as above;
  // for kToAll as in Direct() with messages to all other members.
  static std::vector<CollectiveTime> Variants(const Topology& topology, const GroupShape& shape,
                                              Kind kind, int64_t bytes);
  // The least sum of start_ns and hops_ns of any collective of the group; the least hops_ns of
  // those that are the fastest for some number of bytes.
  int64_t LeastStartNs() const { return least_start_ns_; }
  int64_t LeastLatencyNs() const { return least_latency_ns_; }

 private:
  using Lines = Envelope<CollectiveTime>;  // times for 0 bytes; x: bytes, over: bandwidth
  class Maker;                             // makes the lines

  CollectiveTime Least(const Lines& lines, int64_t bytes) const;
  static CollectiveTime At(const GroupShape& shape, const Lines::Line& line, int64_t bytes);
  static CollectiveTime WithSharing(const GroupShape& shape, CollectiveTime time);

  GroupShape shape_;
  Lines all_reduce_;
  Lines blocks_;
  Lines to_all_;  // messages to all other members, a frequent case of Direct()
  MessageTimes direct_;
  int64_t least_start_ns_ = INT64_MAX;
  int64_t least_latency_ns_ = INT64_MAX;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_COLLECTIVE_TIME_H_
