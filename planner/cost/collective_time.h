// How long a collective takes on one group: the least over what a library may take.
//
//   const GroupTimes times(topology, ShapeOf(topology, 16, groups));
//   const CollectiveTime time = times.AllReduce(int64_t{64} << 20);
//   time.Ns();
//   time.algorithm;                          // kInSwitch
//   topology.protocols()[time.protocol].name;         // "Simple"
//
// Each algorithm (ring, tree, in-switch, direct messages) in each protocol of the topology takes a
// start, the latency of its hops, and its bytes over the bandwidth of the links that they wait for.
// So the least is a concave function of the bytes, linear in pieces, that only grows. The formulas
// stand in docs/cost_model.md. All times are in ns, bandwidths in bytes per us, and nothing
// overflows.
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
  int64_t start_ns = 0;
  int64_t hops_ns = 0;
  int64_t links_ns = 0;
  Algorithm algorithm = Algorithm::kRing;
  int8_t protocol = -1;  // of Topology::protocols(); -1: it has none
  int8_t level = 0;      // of the links that bytes wait for
  // Where these are between domains: the fewest members of a group that share a domain of the level
  // below, each with a link of its own. Else 0.
  int64_t sharing = 0;

  int64_t Ns() const { return SaturatingAdd(SaturatingAdd(start_ns, hops_ns), links_ns); }
};

// Messages of ranks to whom it may be, as hops of a tree of `latency_ns` reach them.
class MessageTimes {
 public:
  MessageTimes(const Topology& topology, int64_t latency_ns);

  // Where the worst rank sends or receives bytes[i] over level i. What each message takes is left
  // out.
  CollectiveTime Of(absl::Span<const int64_t> bytes) const;

 private:
  struct Line {
    CollectiveTime time;                        // of no bytes
    absl::InlinedVector<int64_t, 2> bandwidth;  // by level
  };
  absl::InlinedVector<Line, 3> lines_;  // by protocol
};

// Bytes by level of links.
using BytesByLevel = absl::InlinedVector<int64_t, 3>;

class GroupTimes {
 public:
  GroupTimes(const Topology& topology, const GroupShape& shape);

  const GroupShape& shape() const { return shape_; }
  // Of a tensor of so many bytes.
  CollectiveTime AllReduce(int64_t bytes) const { return Least(all_reduce_, bytes); }
  // A gather or scatter in which a member sends so many bytes: all blocks but its own.
  CollectiveTime Blocks(int64_t bytes) const { return Least(blocks_, bytes); }
  // So many bytes in so many messages to other members, whose shares across the levels are the
  // worst that the group allows; fewer messages take no less. What each message takes is left out.
  CollectiveTime Direct(int64_t bytes, int64_t messages) const;
  enum class Kind : uint8_t { kAllReduce, kBlocks, kToAll };
  // All that a library may do, each algorithm in each protocol, also where it is never the least.
  // Bytes are as above, those of kToAll as Direct() to all other members takes them.
  static std::vector<CollectiveTime> Variants(const Topology& topology, const GroupShape& shape,
                                              Kind kind, int64_t bytes);
  // What any of them takes at least, and of that the hops.
  int64_t LeastStartNs() const { return least_start_ns_; }
  int64_t LeastLatencyNs() const { return least_latency_ns_; }

 private:
  using Lines = Envelope<CollectiveTime>;  // of no bytes; x: bytes, times: 1000, over: bandwidth
  class Maker;                             // of the lines

  CollectiveTime Least(const Lines& lines, int64_t bytes) const;
  static CollectiveTime At(const GroupShape& shape, const Lines::Line& line, int64_t bytes);
  static CollectiveTime WithSharing(const GroupShape& shape, CollectiveTime time);

  GroupShape shape_;
  Lines all_reduce_;
  Lines blocks_;
  Lines to_all_;  // of messages to all other members, which are many a step's
  MessageTimes direct_;
  int64_t least_start_ns_ = INT64_MAX;
  int64_t least_latency_ns_ = INT64_MAX;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_COLLECTIVE_TIME_H_
