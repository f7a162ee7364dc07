#include "planner/together/link_loads.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/cost.h"
#include "planner/cost/cross_cost.h"
#include "planner/plan/crossing.h"
#include "planner/plan/expanded_plan.h"
#include "planner/plan/rank_bytes.h"
#include "planner/plan/workspace.h"

namespace meshift {
namespace {

using LinkFn = absl::FunctionRef<void(int64_t rank, int level, const LinkBytes& bytes)>;
using RankFn = absl::FunctionRef<void(int64_t rank, int64_t bytes_sent)>;

// The domains in which a group has members, and each member's place in them.
class GroupPlaces {
 public:
  GroupPlaces(std::vector<int64_t> group, const Topology& topology) : ranks_(std::move(group)) {
    std::sort(ranks_.begin(), ranks_.end());
    const size_t n = ranks_.size();
    place_of_.resize(n * (topology.NumLevels() + 1));
    // The first level's units are the members themselves.
    for (size_t i = 0; i < n; ++i) place_of_[i] = {.index = 0, .members = 1, .units = 1};
    for (int level = 0; level < topology.NumLevels(); ++level) {
      // The ranks of a domain are contiguous.
      for (size_t begin = 0, end = 0; begin < n; begin = end) {
        const int64_t domain = topology.DomainOf(level, ranks_[begin]);
        int64_t units = 0;
        for (end = begin; end < n && topology.DomainOf(level, ranks_[end]) == domain; ++end) {
          if (place_of_[level * n + end].index == 0) ++units;
        }
        for (size_t i = begin; i < end; ++i) {
          place_of_[(level + 1) * n + i] = {.index = static_cast<int64_t>(i - begin),
                                            .members = static_cast<int64_t>(end - begin),
                                            .units = units};
        }
      }
    }
  }

  const std::vector<int64_t>& ranks() const { return ranks_; }
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  // The members in the same domain of the level; for level -1, the member alone.
  int64_t Members(int level, size_t member) const { return At(level, member).members; }
  // The domains of the level below that have members in the member's domain.
  int64_t Units(int level, size_t member) const { return At(level, member).units; }
  // The member's share of bytes that all members of its domain send together; the shares add up.
  int64_t ShareOf(int64_t bytes, int level, size_t member) const {
    const Place& place = At(level, member);
    return MulDivFloor(bytes, place.index + 1, place.members) -
           MulDivFloor(bytes, place.index, place.members);
  }

 private:
  struct Place {
    int64_t index = 0;  // among those of its domain
    int64_t members = 0;
    int64_t units = 0;
  };
  const Place& At(int level, size_t member) const {
    return place_of_[(level + 1) * ranks_.size() + member];
  }

  std::vector<int64_t> ranks_;   // ascending
  std::vector<Place> place_of_;  // by level, from -1, then member
};

// Splits the bytes that a member sends by the level whose links they cross. Each function calls
// fn(level, bytes).
class LevelSplit {
 public:
  LevelSplit(const GroupPlaces& places, const Topology& topology)
      : places_(places), topology_(topology) {}

  template <typename Fn>
  void OfRing(size_t member, int64_t bytes, const Fn& fn) const {
    int64_t leave = bytes;  // bytes that leave the domain of the level below
    for (int level = 0; level < topology_.NumLevels(); ++level) {
      const int64_t beyond = places_.Members(level, member) == places_.size()
                                 ? 0
                                 : std::min(leave, places_.ShareOf(bytes, level, member));
      fn(level, leave - beyond);
      leave = beyond;
    }
  }
  // A sum along trees, formed by switches on the levels whose switches can.
  template <typename Fn>
  void OfTree(size_t member, int64_t bytes, bool in_switch, const Fn& fn) const {
    const int64_t n = places_.size();
    const int64_t tensor = MulDivFloor(bytes, n, 2 * (n - 1));
    for (int level = 0; level < topology_.NumLevels(); ++level) {
      const int64_t units = places_.Units(level, member);
      const TopologyLevel& links = topology_.level(level);
      const bool sums = in_switch && links.in_switch_bandwidth_bytes_per_us > 0 &&
                        units >= std::max<int64_t>(links.in_switch_members, 2);
      // A tree through u domains has u - 1 edges, each of which the tensor passes twice.
      const int64_t of_unit = sums ? tensor : MulDivCeil(tensor, 2 * (units - 1), units);
      fn(level, places_.ShareOf(of_unit, level - 1, member));
    }
  }
  // Messages of equal length to all other members.
  template <typename Fn>
  void OfMessages(size_t member, int64_t bytes, const Fn& fn) const {
    int64_t done = 0;
    for (int level = 0; level < topology_.NumLevels(); ++level) {
      const int64_t within =
          MulDivFloor(bytes, places_.Members(level, member) - 1, places_.size() - 1);
      fn(level, within - done);
      done = within;
    }
  }

 private:
  const GroupPlaces& places_;
  const Topology& topology_;
};

const Sharding& Before(const Plan& plan, int step) {
  return step == 0 ? plan.from() : plan.steps()[step - 1].after;
}

// Whether the step sends messages, each from one rank to another.
bool IsMessages(const Step& step) {
  return !IsReduction(step.op) && OpOnCuts(step.op) != StepOp::kAllGather;
}

void ForEachCrossingLoad(const Crossing& crossing, DType dtype, const Topology& topology,
                         LinkFn on_link, RankFn on_rank) {
  for (const int64_t rank : crossing.ranks()) {
    for (int level = 0; level < topology.NumLevels(); ++level) {
      const int64_t bytes = SaturatingBytes(dtype, crossing.SentBy(rank, level));
      if (bytes == 0) continue;
      on_link(rank, level, {.sent = bytes, .counted = bytes});
      on_rank(rank, bytes);
    }
  }
  for (const CrossingMessage& message : crossing.messages()) {
    on_link(message.receiver, topology.LevelBetween(message.sender, message.receiver),
            {.received = SaturatingBytes(dtype, message.elements)});
  }
}

// The loads of a step on one mesh.
class StepLoads {
 public:
  StepLoads(const Plan& plan, int i, const Topology& topology, LinkFn on_link, RankFn on_rank)
      : plan_(plan),
        index_(i),
        step_(plan.steps()[i]),
        topology_(topology),
        parts_(TimePartsOf(plan, i, topology)),
        on_link_(on_link),
        on_rank_(on_rank) {}

  const TimeParts& parts() const { return parts_; }
  void Visit() const {
    if (step_.bytes_sent == 0) return;
    for (std::vector<int64_t>& group : step_.after.mesh().Groups(step_.mesh_dims)) {
      const GroupPlaces places(std::move(group), topology_);
      if (IsMessages(step_)) {
        VisitMessages(places);
      } else if (step_.reduce_order == ReduceOrder::kAscending) {
        VisitInOrder(places);
      } else {
        VisitCollective(places);
      }
    }
  }

 private:
  void VisitMessages(const GroupPlaces& places) const {
    for (const int64_t rank : places.ranks()) {
      int64_t sent = 0;
      ForEachMessage(plan_, index_, rank, [&](int64_t to, int64_t bytes) {
        const int level = topology_.LevelBetween(rank, to);
        on_link_(rank, level, {.sent = bytes, .counted = bytes});
        on_link_(to, level, {.received = bytes});
        sent += bytes;
      });
      on_rank_(rank, sent);
    }
  }
  // Contributions go to the rank that adds them up; an all_reduce then gathers the results, of the
  // same number of bytes. Reductions in blocks are counted the same way, although some of their
  // messages stay inside a domain.
  void VisitInOrder(const GroupPlaces& places) const {
    const LevelSplit split(places, topology_);
    const bool scatters = step_.op != StepOp::kAllReduce;
    for (size_t member = 0; member < places.ranks().size(); ++member) {
      const int64_t rank = places.ranks()[member];
      const int64_t bytes = BytesSent(plan_, index_, rank);
      on_rank_(rank, bytes);
      const int64_t gathered = scatters ? 0 : bytes / 2;
      // A rank of a scatter receives its block from each other member.
      const int64_t received = scatters && !step_.reduce_stages
                                   ? SaturatingMul(places.size() - 1, BlockOf(rank))
                                   : bytes - gathered;
      split.OfMessages(member, bytes - gathered, [&](int level, int64_t across) {
        on_link_(rank, level, {.sent = across, .counted = across});
      });
      split.OfMessages(member, received, [&](int level, int64_t across) {
        on_link_(rank, level, {.received = across});
      });
      split.OfRing(member, gathered, [&](int level, int64_t across) {
        on_link_(rank, level, {.sent = across, .received = across, .counted = across});
      });
    }
  }
  void VisitCollective(const GroupPlaces& places) const {
    const LevelSplit split(places, topology_);
    const bool exact = step_.sizes == StepSizes::kExact;
    const bool same = !exact && step_.op != StepOp::kAllReduce;  // all members send as much
    std::vector<int64_t> counted;
    for (const int64_t rank : places.ranks()) {
      counted.push_back(same && !counted.empty() ? counted[0] : BytesSent(plan_, index_, rank));
      on_rank_(rank, counted.back());
    }
    const int64_t most = *std::max_element(counted.begin(), counted.end());
    for (size_t member = 0; member < counted.size(); ++member) {
      const int64_t rank = places.ranks()[member];
      const int64_t bytes = counted[member];
      const auto add = [&](int level, int64_t across) {
        on_link_(rank, level, {.sent = across, .received = across, .counted = across});
      };
      if (parts_.algorithm == Algorithm::kTree || parts_.algorithm == Algorithm::kInSwitch) {
        split.OfTree(member, bytes, parts_.algorithm == Algorithm::kInSwitch, add);
      } else if (!exact || bytes == most) {
        split.OfRing(member, bytes, add);
      } else {
        // The largest of the counts is that of all blocks except the smallest.
        split.OfRing(member, most, [&](int level, int64_t across) {
          on_link_(rank, level, {.sent = across, .received = across});
        });
        split.OfRing(member, bytes, [&](int level, int64_t across) {
          on_link_(rank, level, {.counted = across});
        });
      }
    }
  }
  int64_t BlockOf(int64_t rank) const {
    return SaturatingBytes(Before(plan_, index_).dtype(), step_.after.LocalBox(rank).NumElements());
  }

  const Plan& plan_;
  const int index_;
  const Step& step_;
  const Topology& topology_;
  const TimeParts parts_;
  const LinkFn on_link_;
  const RankFn on_rank_;
};

// Adds a step's copies to the ranks of a mesh that hold anything of one of two values.
void AddCopies(int64_t ns, const Sharding& before, const Sharding& after, int direction,
               const Links& links, LoadList* list) {
  const DeviceMesh& mesh = before.mesh();
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    const Coordinate at = mesh.CoordinateAt(position);
    if (before.BoxAt(at).IsEmpty() && after.BoxAt(at).IsEmpty()) continue;
    list->Add(links.copy_level(), links.IndexOf(mesh.RankAt(position)), direction, ns);
  }
}

}  // namespace

void ForEachLoad(const Plan& plan, const Topology& topology, LinkFn on_link, RankFn on_rank) {
  for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
    const Step& step = plan.steps()[i];
    if (step.bytes_sent == 0) continue;
    if (IsCrossing(step)) {
      const Sharding& before = Before(plan, i);
      ForEachCrossingLoad(Crossing::Of(before, step.after, topology), before.dtype(), topology,
                          on_link, on_rank);
    } else {
      StepLoads(plan, i, topology, on_link, on_rank).Visit();
    }
  }
}

int64_t BareCopiesNs(const TimeParts& parts, const Topology& topology) {
  const int64_t starts_ns = SaturatingMul(parts.copies, topology.constants().copy_latency_ns);
  return std::max<int64_t>(parts.copies_ns - starts_ns, 0);
}

void AddLoads(const Plan& plan, const Links& links, LoadList* list) {
  const Topology& topology = links.topology();
  const auto on_link = [&](int64_t rank, int level, const LinkBytes& bytes) {
    const int32_t index = links.IndexOf(rank);
    list->Add(level, index, kSent, bytes.sent);
    list->Add(level, index, kReceived, bytes.received);
  };
  const auto on_rank = [](int64_t, int64_t) {};
  int direction = kSent;
  for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
    const Sharding& before = Before(plan, i);
    const Step& step = plan.steps()[i];
    if (IsCrossing(step)) {
      const Crossing crossing = Crossing::Of(before, step.after, topology);
      ForEachCrossingLoad(crossing, before.dtype(), topology, on_link, on_rank);
      const int64_t ns =
          BareCopiesNs(MeasureCrossing(crossing, before, step.after, topology).time, topology);
      AddCopies(ns, before, before, kSent, links, list);
      AddCopies(ns, step.after, step.after, kReceived, links, list);
      direction = kReceived;
    } else {
      const StepLoads loads(plan, i, topology, on_link, on_rank);
      loads.Visit();
      AddCopies(BareCopiesNs(loads.parts(), topology), step.group_size ? before : step.after,
                step.after, direction, links, list);
    }
  }
}

int64_t LoadWork(const Plan& plan) {
  constexpr int64_t kMemberWork = 4;
  constexpr int64_t kMessageWork = 8;
  int64_t work = 0;
  for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
    const Step& step = plan.steps()[i];
    work = SaturatingAdd(work, SaturatingMul(kMemberWork, step.after.mesh().NumRanks()));
    if (IsCrossing(step)) {
      const Sharding& before = Before(plan, i);
      const int64_t ranks = before.mesh().NumRanks() + step.after.mesh().NumRanks();
      work = SaturatingAdd(work, SaturatingMul(kMemberWork, ranks));
      work = SaturatingAdd(
          work, SaturatingMul(kMessageWork, Crossing::CountMessages(before, step.after)));
      continue;
    }
    if (step.bytes_sent == 0) continue;
    const bool all_pairs = IsMessages(step) || step.sizes == StepSizes::kExact ||
                           step.reduce_order == ReduceOrder::kAscending;
    const int64_t ranks = step.after.mesh().NumRanks();
    work =
        SaturatingAdd(work, SaturatingMul(kMemberWork * (all_pairs ? *step.group_size : 4), ranks));
  }
  return work;
}

}  // namespace meshift
