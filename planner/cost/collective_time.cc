#include "planner/cost/collective_time.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

namespace meshift {
namespace {

// A topology without protocols is treated as one with a single default protocol, of index -1.
int FirstProtocol(const Topology& topology) { return topology.protocols().empty() ? -1 : 0; }
int EndOfProtocols(const Topology& topology) {
  return static_cast<int>(topology.protocols().size());
}
const TopologyProtocol& ProtocolOf(const Topology& topology, int index) {
  static const TopologyProtocol kNone;
  return index < 0 ? kNone : topology.protocols()[index];
}

// The bandwidth of messages in a protocol that reaches `percent` of the links' bandwidth.
int64_t DirectBandwidth(const TopologyLevel& level, int64_t percent) {
  const int64_t bandwidth =
      std::max<int64_t>(MulDivFloor(level.bandwidth_bytes_per_us, percent, 100), 1);
  const int64_t most = level.direct_bandwidth_bytes_per_us;
  return most > 0 ? std::min(bandwidth, most) : bandwidth;
}

bool Uses(const GroupShape& shape, int level) { return level == 0 || shape.sharing[level - 1] > 0; }

// The entry time of all levels that the group uses.
int64_t EntryNs(const Topology& topology, const GroupShape& shape) {
  int64_t ns = 0;
  for (int level = 0; level < topology.NumLevels(); ++level) {
    if (Uses(shape, level)) ns += topology.level(level).entry_ns;
  }
  return ns;
}

// The time of 0 bytes.
CollectiveTime Start(const Topology& topology, Algorithm algorithm, int protocol,
                     int64_t latency_ns) {
  const TopologyProtocol& of = ProtocolOf(topology, protocol);
  CollectiveTime time;
  time.algorithm = algorithm;
  time.protocol = static_cast<int8_t>(protocol);
  time.start_ns = topology.constants().collective_latency_ns + of.start_ns;
  time.hops_ns = MulDivCeil(latency_ns, of.latency_percent, 100);
  return time;
}

}  // namespace

std::string_view Name(Algorithm algorithm) {
  constexpr std::array<std::string_view, 4> kNames = {"ring", "tree", "in-switch", "direct"};
  return kNames[static_cast<size_t>(algorithm)];
}

MessageTimes::MessageTimes(const Topology& topology, int64_t latency_ns) {
  for (int p = FirstProtocol(topology); p < EndOfProtocols(topology); ++p) {
    Line& line = lines_.emplace_back();
    line.time = Start(topology, Algorithm::kDirect, p, latency_ns);
    const int64_t percent = ProtocolOf(topology, p).bandwidth_percent;
    for (int i = 0; i < topology.NumLevels(); ++i) {
      line.bandwidth.push_back(DirectBandwidth(topology.level(i), percent));
    }
  }
}

CollectiveTime MessageTimes::Of(absl::Span<const int64_t> bytes) const {
  std::optional<CollectiveTime> least;
  for (const Line& line : lines_) {
    CollectiveTime time = line.time;
    if (least && time.Ns() >= least->Ns()) continue;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == 0) continue;
      const int64_t ns = MulDivCeil(bytes[i], 1000, line.bandwidth[i]);
      if (ns <= time.links_ns) continue;
      time.links_ns = ns;
      time.level = static_cast<int8_t>(i);
    }
    if (!least || time.Ns() < least->Ns()) least = time;
  }
  return *least;
}

// Makes the lines (time as a function of bytes) of one protocol.
class GroupTimes::Maker {
 public:
  using Line = Lines::Line;

  Maker(const Topology& topology, const GroupShape& shape, int64_t entry_ns, int protocol)
      : topology_(topology),
        shape_(shape),
        entry_ns_(entry_ns),
        index_(protocol),
        protocol_(ProtocolOf(topology, protocol)) {}

  // Calls fn(kind, line) for each algorithm in each protocol that has it.
  template <typename Fn>
  static void ForEach(const Topology& topology, const GroupShape& shape, const Fn& fn) {
    const int64_t entry_ns = EntryNs(topology, shape);
    const int end = EndOfProtocols(topology);
    for (int p = FirstProtocol(topology); p < end; ++p) {
      const Maker maker(topology, shape, entry_ns, p);
      fn(Kind::kToAll, maker.ToAll());
      const Line blocks = maker.Blocks();
      fn(Kind::kBlocks, blocks);
      fn(Kind::kAllReduce, maker.Ring(blocks));
      if (p >= 0) fn(Kind::kAllReduce, maker.Tree());
      // Only the last protocol can use in-switch reductions.
      if (p >= 0 && p + 1 == end && maker.IsInSwitch()) {
        fn(Kind::kAllReduce, maker.InSwitch());
      }
    }
  }

 private:
  // A ring: each member sends all blocks except one.
  Line Blocks() const {
    Line line = Begin(Algorithm::kRing, RingNs());
    ForEachLevel([&](int level) {
      Wait(level, 1000, Across(level, topology_.level(level).bandwidth_bytes_per_us), &line);
    });
    return line;
  }
  // A ring reduce_scatter and all_gather, of blocks of 1/n each.
  Line Ring(const Line& blocks) const {
    Line line = Begin(Algorithm::kRing, SaturatingMul(2, RingNs()));
    line.what.level = blocks.what.level;
    line.times = SaturatingMul(2 * blocks.times, shape_.size - 1);
    line.over = SaturatingMul(blocks.over, shape_.size);
    return line;
  }
  // A double binary tree: up and down, each half of the tensor along its own tree.
  Line Tree() const {
    Line line = Begin(Algorithm::kTree, 2 * shape_.latency_ns);
    ForEachLevel([&](int level) { WaitForTree(level, &line); });
    return line;
  }
  // One message to each other member.
  Line ToAll() const {
    Line line = Begin(Algorithm::kDirect, shape_.latency_ns);
    const int64_t messages = shape_.size - 1;
    ForEachLevel([&](int level) {
      const int64_t bandwidth =
          DirectBandwidth(topology_.level(level), protocol_.bandwidth_percent);
      const int64_t leave = level == 0 ? messages : shape_.size - shape_.sharing[level - 1];
      Wait(level, 1000 * leave, SaturatingMul(bandwidth, messages), &line);
    });
    return line;
  }
  // Whether some level can reduce in its switches. The other levels are then crossed as by trees.
  bool IsInSwitch() const {
    bool any = false;
    ForEachLevel([&](int level) { any |= IsInSwitch(level); });
    return any;
  }
  Line InSwitch() const {
    int64_t hops_ns = 2 * shape_.latency_ns;
    if (IsInSwitch(0)) {  // the switch serves one member after another
      const int64_t inside_ns = SaturatingMul(shape_.fanout[0] - 1, topology_.level(0).latency_ns);
      hops_ns = SaturatingAdd(inside_ns, 2 * shape_.beyond_ns);
    }
    Line line = Begin(Algorithm::kInSwitch, hops_ns);
    ForEachLevel([&](int level) {
      if (!IsInSwitch(level)) return WaitForTree(level, &line);
      Wait(level, 1000, Across(level, topology_.level(level).in_switch_bandwidth_bytes_per_us),
           &line);
    });
    return line;
  }

  template <typename Fn>
  void ForEachLevel(const Fn& fn) const {
    for (int level = 0; level < topology_.NumLevels(); ++level) {
      if (Uses(shape_, level)) fn(level);
    }
  }
  Line Begin(Algorithm algorithm, int64_t hops_ns) const {
    const CollectiveTime time =
        Start(topology_, algorithm, index_, SaturatingAdd(entry_ns_, hops_ns));
    return {.start = time.Ns(), .what = time};
  }
  // Without protocols a ring counts with the hops of a tree.
  int64_t RingNs() const { return index_ < 0 ? shape_.latency_ns : shape_.ring_ns; }
  // The bandwidth of the links by which a group enters or leaves a domain of the level below.
  int64_t Across(int level, int64_t bandwidth) const {
    // Each member in the domain adds a link.
    if (level > 0) bandwidth = SaturatingMul(bandwidth, shape_.sharing[level - 1]);
    bandwidth = MulDivFloor(bandwidth, protocol_.bandwidth_percent, 100);
    const int64_t most = topology_.level(level).domain_bandwidth_bytes_per_us;
    if (level > 0 && most > 0) {
      bandwidth = std::min(bandwidth, MulDivFloor(most, protocol_.domain_percent, 100));
    }
    return std::max<int64_t>(bandwidth, 1);
  }
  // Takes a level's links for the line's slope if they are the slowest so far.
  static void Wait(int level, int64_t times, int64_t bandwidth, Line* line) {
    const __int128 ours = static_cast<__int128>(times) * line->over;
    if (ours <= static_cast<__int128>(line->times) * bandwidth) return;
    line->times = times;
    line->over = bandwidth;
    line->what.level = static_cast<int8_t>(level);
  }
  // An inner member of the tree sends the whole tensor twice; in a tree of two, each sends it once.
  void WaitForTree(int level, Line* line) const {
    const int64_t times = std::min<int64_t>(2, shape_.fanout[level] - 1);
    Wait(level, 1000 * times, Across(level, topology_.level(level).bandwidth_bytes_per_us), line);
  }
  bool IsInSwitch(int level) const {
    const TopologyLevel& links = topology_.level(level);
    if (!Uses(shape_, level) || links.in_switch_bandwidth_bytes_per_us == 0) return false;
    const bool jagged = level == 0 && !shape_.sharing.empty() && shape_.sharing[0] > 0;
    const int64_t members = jagged ? shape_.sharing[0] : shape_.fanout[level];
    return members >= std::max<int64_t>(links.in_switch_members, 2);
  }

  const Topology& topology_;
  const GroupShape& shape_;
  const int64_t entry_ns_;
  const int index_;
  const TopologyProtocol& protocol_;
};

std::vector<CollectiveTime> GroupTimes::Variants(const Topology& topology, const GroupShape& shape,
                                                 Kind kind, int64_t bytes) {
  std::vector<CollectiveTime> all;
  Maker::ForEach(topology, shape, [&](Kind of, const Lines::Line& line) {
    if (of == kind) all.push_back(At(shape, line, bytes));
  });
  return all;
}

GroupTimes::GroupTimes(const Topology& topology, const GroupShape& shape)
    : shape_(shape), direct_(topology, SaturatingAdd(EntryNs(topology, shape), shape.latency_ns)) {
  Maker::ForEach(topology, shape, [this](Kind kind, const Lines::Line& line) {
    Lines& lines = kind == Kind::kAllReduce ? all_reduce_
                   : kind == Kind::kBlocks  ? blocks_
                                            : to_all_;
    lines.Add(line);
  });
  for (Lines* lines : {&to_all_, &blocks_, &all_reduce_}) {
    lines->Seal();
    least_start_ns_ = std::min(least_start_ns_, lines->first().start);
    for (size_t i = 0; i < lines->size(); ++i) {
      least_latency_ns_ = std::min(least_latency_ns_, (*lines)[i].what.hops_ns);
    }
  }
}

CollectiveTime GroupTimes::At(const GroupShape& shape, const Lines::Line& line, int64_t bytes) {
  CollectiveTime time = line.what;
  time.links_ns = MulDivCeil(bytes, line.times, line.over);
  return WithSharing(shape, time);
}

CollectiveTime GroupTimes::WithSharing(const GroupShape& shape, CollectiveTime time) {
  if (time.level > 0) time.sharing = shape.sharing[time.level - 1];
  return time;
}

CollectiveTime GroupTimes::Least(const Lines& lines, int64_t bytes) const {
  return At(shape_, lines.At(bytes), bytes);
}

CollectiveTime GroupTimes::Direct(int64_t bytes, int64_t messages) const {
  if (messages == shape_.size - 1) return Least(to_all_, bytes);
  BytesByLevel by_level = {bytes};
  for (const int64_t sharing : shape_.sharing) {
    const bool crosses = sharing > 0 && messages > 0;
    by_level.push_back(
        crosses ? MulDivCeil(bytes, std::min(messages, shape_.size - sharing), messages) : 0);
  }
  return WithSharing(shape_, direct_.Of(by_level));
}

}  // namespace meshift
