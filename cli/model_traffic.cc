#include "cli/model_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/checked_math.h"
#include "cli/text.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/topology.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/cost.h"
#include "planner/plan/crossing.h"
#include "planner/plan/expanded_plan.h"
#include "planner/plan/rank_bytes.h"
#include "planner/plan/workspace.h"

namespace meshift::cli {
namespace {

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

// Bytes by rank, then level.
class TrafficCounter {
 public:
  TrafficCounter(const Plan& first, const Topology& topology) : topology_(topology) {
    for (const DeviceMesh& mesh : first.meshes()) {
      const std::vector<int64_t> ranks = mesh.Ranks();
      ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
    }
    std::sort(ranks_.begin(), ranks_.end());
    ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
    bytes_.assign(ranks_.size() * topology.NumLevels(), 0);
    sent_.assign(ranks_.size(), 0);
  }

  void Add(const Plan& plan, int64_t count) {
    for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
      const Step& step = plan.steps()[i];
      if (step.bytes_sent == 0) continue;
      if (IsCrossing(step)) {
        const Sharding& before = i == 0 ? plan.from() : plan.steps()[i - 1].after;
        const Crossing crossing = Crossing::Of(before, step.after, topology_);
        for (size_t r = 0; r < ranks_.size(); ++r) {
          for (int level = 0; level < topology_.NumLevels(); ++level) {
            const int64_t bytes =
                SaturatingBytes(before.dtype(), crossing.SentBy(ranks_[r], level));
            Add(r, level, bytes, count);
            AddSent(r, bytes, count);
          }
        }
        continue;
      }
      AddOnOneMesh(plan, i, count);
    }
  }

  ModelTraffic Sum() const {
    ModelTraffic traffic;
    traffic.ranks = static_cast<int64_t>(ranks_.size());
    for (int level = 0; level < topology_.NumLevels(); ++level) {
      traffic.levels.push_back({topology_.level(level).name, 0, {ranks_[0], 0}});
    }
    traffic.busiest.rank = ranks_[0];
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const int64_t sent = sent_[r];
      for (int level = 0; level < topology_.NumLevels(); ++level) {
        const int64_t bytes = bytes_[r * topology_.NumLevels() + level];
        LevelTraffic& of_level = traffic.levels[level];
        of_level.total = SaturatingAdd(of_level.total, bytes);
        if (bytes > of_level.busiest.bytes) of_level.busiest = {ranks_[r], bytes};
      }
      traffic.total = SaturatingAdd(traffic.total, sent);
      if (sent > traffic.busiest.bytes) traffic.busiest = {ranks_[r], sent};
    }
    return traffic;
  }

 private:
  void AddOnOneMesh(const Plan& plan, int i, int64_t count) {
    const Step& step = plan.steps()[i];
    const Sharding& before = i == 0 ? plan.from() : plan.steps()[i - 1].after;
    const Algorithm algorithm = TimePartsOf(before, step, topology_).algorithm;
    const bool in_order = step.reduce_order == ReduceOrder::kAscending;
    for (std::vector<int64_t>& group : step.after.mesh().Groups(step.mesh_dims)) {
      const GroupPlaces places(std::move(group), topology_);
      const LevelSplit split(places, topology_);
      for (size_t member = 0; member < places.ranks().size(); ++member) {
        const int64_t rank = places.ranks()[member];
        const size_t r = std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin();
        const int64_t bytes = BytesSent(plan, i, rank);
        AddSent(r, bytes, count);
        const auto add = [&](int level, int64_t across) { Add(r, level, across, count); };
        if (!IsReduction(step.op) && OpOnCuts(step.op) != StepOp::kAllGather) {
          ForEachMessage(plan, i, rank, [&](int64_t to, int64_t of_message) {
            add(topology_.LevelBetween(rank, to), of_message);
          });
        } else if (in_order) {
          // Contributions go to the rank that adds them up; an all_reduce then gathers the results,
          // of the same number of bytes. Reductions in blocks are counted the same way, although
          // some of their messages stay inside a domain.
          const int64_t gathered = step.op == StepOp::kAllReduce ? bytes / 2 : 0;
          split.OfMessages(member, bytes - gathered, add);
          split.OfRing(member, gathered, add);
        } else if (algorithm == Algorithm::kTree || algorithm == Algorithm::kInSwitch) {
          split.OfTree(member, bytes, algorithm == Algorithm::kInSwitch, add);
        } else {
          split.OfRing(member, bytes, add);
        }
      }
    }
  }

  void Add(size_t r, int level, int64_t bytes, int64_t count) {
    int64_t& sum = bytes_[r * topology_.NumLevels() + level];
    sum = SaturatingAdd(sum, SaturatingMul(bytes, count));
  }
  void AddSent(size_t r, int64_t bytes, int64_t count) {
    sent_[r] = SaturatingAdd(sent_[r], SaturatingMul(bytes, count));
  }

  const Topology& topology_;
  std::vector<int64_t> ranks_;
  std::vector<int64_t> bytes_;  // across the links of each level
  std::vector<int64_t> sent_;   // by rank
};

}  // namespace

ModelTraffic TrafficOf(const ModelPlan& model) {
  const Plan& first = model.rows[0].plan;
  TrafficCounter counter(first, first.options().topology);
  for (const ModelRow& row : model.rows) counter.Add(row.plan, row.count);
  return counter.Sum();
}

std::string RenderTraffic(const ModelTraffic& traffic) {
  std::string text = fmt::format("per rank: sent {} on average, {} by the busiest, rank {}\n",
                                 BytesText(traffic.total / traffic.ranks),
                                 BytesText(traffic.busiest.bytes), traffic.busiest.rank);
  for (const LevelTraffic& level : traffic.levels) {
    text += fmt::format("over {}: {} in all", level.name, BytesText(level.total));
    if (level.total > 0) {
      text += fmt::format(", {} by the busiest, rank {}", BytesText(level.busiest.bytes),
                          level.busiest.rank);
    }
    text += "\n";
  }
  return text;
}

}  // namespace meshift::cli
