#include "planner/cost/group_shape.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "base/checked_math.h"

namespace meshift {
namespace {

// The largest domain whose ranks are enumerated if no mode divides it: groups may begin at any
// rank.
constexpr int64_t kMaxPlaces = 65536;

// Counts of a group's members in ascending order of rank. Ranks form units (domains of some level,
// or single ranks), and units form wholes (domains of a higher level, or one for all ranks). A Run
// counts the units with members in each whole.
struct Run {
  int64_t first_unit = 0, last_unit = 0;
  int64_t first_whole = 0, last_whole = 0;
  int64_t in_first = 1, in_last = 1;  // units in these wholes
  int64_t most = 0;                   // the most units in a whole between them
  int64_t fewest = INT64_MAX;         // the fewest
  int64_t wholes = 1;                 // with members

  bool IsInOne() const { return first_whole == last_whole; }
  int64_t Most() const { return std::max({in_first, in_last, most}); }
  int64_t Fewest() const { return std::min({in_first, in_last, fewest}); }
  void Count(int64_t units) {
    most = std::max(most, units);
    fewest = std::min(fewest, units);
  }
  Run ShiftedBy(int64_t units, int64_t wholes) const {
    Run run = *this;
    run.first_unit += units;
    run.last_unit += units;
    run.first_whole += wholes;
    run.last_whole += wholes;
    return run;
  }
};

// REQUIRES: all of `b` comes after `a`.
Run Join(const Run& a, const Run& b) {
  Run run;
  run.first_unit = a.first_unit;
  run.first_whole = a.first_whole;
  run.last_unit = b.last_unit;
  run.last_whole = b.last_whole;
  run.in_first = a.in_first;
  run.in_last = b.in_last;
  run.most = std::max(a.most, b.most);
  run.fewest = std::min(a.fewest, b.fewest);
  run.wholes = a.wholes + b.wholes - (a.last_whole == b.first_whole ? 1 : 0);
  if (a.last_whole == b.first_whole) {
    const int64_t joined = a.in_last + b.in_first - (a.last_unit == b.first_unit ? 1 : 0);
    if (a.IsInOne()) run.in_first = joined;
    if (b.IsInOne()) run.in_last = joined;
    if (!a.IsInOne() && !b.IsInOne()) run.Count(joined);
    return run;
  }
  if (!a.IsInOne()) run.Count(a.in_last);
  if (!b.IsInOne()) run.Count(b.in_first);
  return run;
}

// The run of these ranks, for units of `unit` ranks and wholes of `whole` ranks (0: all ranks).
Run RunOf(absl::Span<const int64_t> ascending, int64_t unit, int64_t whole) {
  const auto at = [&](int64_t rank) {
    return Run().ShiftedBy(rank / unit, whole == 0 ? 0 : rank / whole);
  };
  Run run = at(ascending.front());
  for (size_t i = 1; i < ascending.size(); ++i) run = Join(run, at(ascending[i]));
  return run;
}

// The runs of all groups given in closed form, by the position of the first member in its whole (in
// its unit, if all ranks are one whole).
class Runs {
 public:
  // `unit`, `whole`: as for RunOf().
  Runs(const RankGroups& groups, int64_t unit, int64_t whole, WorkBudget* budget)
      : unit_(unit), whole_(whole), period_(whole > 0 ? whole : unit) {
    Layout::Modes modes = groups.modes;
    Reduce(&modes);
    const int64_t places = modes.empty() ? 1 : period_ / step_;
    if ((places > 1 && period_ > kMaxPlaces) ||
        (budget != nullptr && !budget->Charge(2 * Log2Ceil(groups.size) + 4, places))) {
      SetFarApart(groups.size);
      return;
    }
    runs_.resize(places);
    for (int64_t place = 0; place < places; ++place) {
      runs_[place] = Run().ShiftedBy(place / unit_, 0);
    }
    for (const Layout::Mode& mode : modes) Repeat(mode);
  }

  // The period of the positions, in ranks; 1 if the position does not matter.
  int64_t period() const { return runs_.size() == 1 ? 1 : period_; }
  // The counts of the group whose first member is rank `first`.
  bool Crosses(int64_t first) const { return !At(first).IsInOne(); }
  int64_t Most(int64_t first) const { return SaturatingMul(times_, At(first).Most()); }
  int64_t Fewest(int64_t first) const { return SaturatingMul(times_, At(first).Fewest()); }
  int64_t Wholes(int64_t first) const { return At(first).wholes; }

 private:
  using RunList = absl::InlinedVector<Run, 1>;  // usually all groups have the same run

  const Run& At(int64_t first) const {
    return runs_[static_cast<size_t>(first / step_) % runs_.size()];
  }

  // Simplifies the modes. `step_` ranks count as one if that divides strides, units and wholes. A
  // block of members counts as one (of `times_` units, if units are ranks) if no boundary of units
  // (if units are ranks: of wholes) separates it.
  void Reduce(Layout::Modes* modes) {
    while (!modes->empty()) {
      int64_t step = unit_ > 1 ? unit_ : whole_;
      for (const Layout::Mode& mode : *modes) step = std::gcd(step, mode.stride);
      step_ *= step;
      for (Layout::Mode& mode : *modes) mode.stride /= step;
      if (unit_ > 1) unit_ /= step;
      whole_ /= step;
      Layout::Mode& first = modes->front();
      const int64_t block = std::gcd(first.size, unit_ > 1 ? unit_ : whole_);
      if (first.stride > 1 || (block == 1 && first.size > 1)) return;
      if (unit_ == 1) times_ *= block;
      first = {first.size / block, block};
      if (first.size == 1) modes->erase(modes->begin());
    }
  }

  // Joins each run with mode.size - 1 copies, each mode.stride after the one before, by doubling.
  void Repeat(const Layout::Mode& mode) {
    const RunList one = runs_;
    int64_t size = 1;
    for (int bit = std::bit_width(static_cast<uint64_t>(mode.size)) - 1; bit-- > 0;) {
      runs_ = JoinAll(runs_, runs_, size * mode.stride);
      size *= 2;
      if ((mode.size >> bit & 1) == 0) continue;
      runs_ = JoinAll(runs_, one, size * mode.stride);
      ++size;
    }
  }
  RunList JoinAll(const RunList& a, const RunList& b, int64_t distance) const {
    const auto places = static_cast<int64_t>(a.size());
    RunList joined(a.size());
    for (int64_t place = 0; place < places; ++place) {
      const int64_t times = (place + distance) / places;
      const int64_t units = times * (places / unit_);
      joined[place] =
          Join(a[place], b[(place + distance) % places].ShiftedBy(units, whole_ == 0 ? 0 : times));
    }
    return joined;
  }

  // An approximation, the worst of each count: Most() has as many members as fit in one whole;
  // Fewest() and Wholes() have one member in each.
  void SetFarApart(int64_t size) {
    Run run;
    run.last_whole = whole_ > 0 ? 1 : 0;
    run.most = whole_ > 0 ? std::min(size, whole_ / unit_) : size;
    run.wholes = whole_ > 0 ? size : 1;
    runs_ = {run};
    times_ = 1;
  }

  int64_t unit_;
  int64_t whole_;
  const int64_t period_;  // in ranks
  int64_t step_ = 1;
  int64_t times_ = 1;  // members that one unit of a run represents
  RunList runs_;       // by position
};

// The ranks in a unit of `level`: in a domain of the level below, or 1.
int64_t UnitOf(const Topology& topology, int level) {
  return level == 0 ? 1 : topology.level(level - 1).domain_size;
}

// A group on one level.
struct OnLevel {
  int64_t most = 1;      // the most units with members in one whole
  int64_t wholes = 1;    // with members
  bool crosses = false;  // members are in several domains of the level below
  int64_t fewest = 0;    // the fewest members in one of these
};

void TakeWorse(const Topology& topology, absl::Span<const OnLevel> group, GroupShape* shape) {
  int64_t ns = 0;
  int64_t beyond_ns = 0;
  int64_t ring_ns = 0;
  int64_t units = shape->size;
  for (size_t level = 0; level < group.size(); ++level) {
    const int64_t hop_ns = topology.level(static_cast<int>(level)).latency_ns;
    ns += hop_ns * Log2Ceil(group[level].most);
    const int64_t wholes = std::min(units, group[level].wholes);
    ring_ns = SaturatingAdd(ring_ns, SaturatingMul(hop_ns, units - wholes));
    units = wholes;
    if (level > 0) beyond_ns += hop_ns * Log2Ceil(group[level].most);
    shape->fanout[level] = std::max(shape->fanout[level], group[level].most);
    if (!group[level].crosses) continue;
    int64_t& fewest = shape->sharing[level - 1];
    fewest = fewest == 0 ? group[level].fewest : std::min(fewest, group[level].fewest);
  }
  shape->latency_ns = std::max(shape->latency_ns, ns);
  shape->beyond_ns = std::max(shape->beyond_ns, beyond_ns);
  shape->ring_ns = std::max(shape->ring_ns, ring_ns);
}

// Ranks modulo `period` at which a group of the partition begins.
std::vector<bool> Firsts(const Layout::Modes& modes, int64_t num_ranks, int64_t period) {
  std::vector<bool> firsts(period, false);
  firsts[0] = true;
  const auto add = [&](int64_t size, int64_t stride) {
    const auto spread = [&](const std::vector<bool>& at, int64_t distance) {
      std::vector<bool> both = firsts;
      for (int64_t i = 0; i < period; ++i) {
        if (at[i]) both[(i + distance) % period] = true;
      }
      firsts = std::move(both);
    };
    // By doubling: from the first `done` multiples to up to twice that number.
    for (int64_t done = 1; done < size;) {
      const int64_t more = std::min(done, size - done);
      spread(firsts, more * stride);
      done += more;
    }
  };
  int64_t next = 1;
  for (const Layout::Mode& mode : modes) {
    if (mode.stride > next) add(mode.stride / next, next);
    next = mode.size * mode.stride;
  }
  if (num_ranks > next) add(num_ranks / next, next);
  return firsts;
}

}  // namespace

int64_t TreeNs(const Topology& topology, absl::Span<const int64_t> ranks, int levels) {
  int64_t ns = 0;
  for (int level = 0; level < levels; ++level) {
    const Run run = RunOf(ranks, UnitOf(topology, level), topology.level(level).domain_size);
    ns += topology.level(level).latency_ns * Log2Ceil(run.Most());
  }
  return ns;
}

GroupShape ShapeOf(const Topology& topology, int64_t num_ranks, const RankGroups& groups,
                   WorkBudget* budget) {
  const int levels = topology.NumLevels();
  GroupShape shape{.size = groups.size, .sharing = {}, .fanout = {}};
  if (levels == 1) {
    shape.latency_ns = topology.level(0).latency_ns * Log2Ceil(groups.size);
    shape.ring_ns = SaturatingMul(topology.level(0).latency_ns, groups.size - 1);
    shape.fanout.assign(1, groups.size);
    return shape;
  }
  shape.sharing.assign(levels - 1, 0);
  shape.fanout.assign(levels, 1);
  if (budget != nullptr && budget->exhausted()) return shape;
  absl::InlinedVector<OnLevel, 4> group(levels);
  if (!groups.ranks.empty()) {
    if (budget != nullptr && !budget->Charge(Log2Ceil(num_ranks) / 2 + 2 * levels, num_ranks)) {
      return shape;
    }
    for (std::vector<int64_t> ranks : groups.ranks) {
      std::sort(ranks.begin(), ranks.end());
      for (int level = 0; level < levels; ++level) {
        const int64_t unit = UnitOf(topology, level);
        const Run run = RunOf(ranks, unit, topology.level(level).domain_size);
        group[level].most = run.Most();
        group[level].wholes = run.wholes;
        group[level].crosses = ranks.front() / unit != ranks.back() / unit && level > 0;
        if (group[level].crosses) group[level].fewest = RunOf(ranks, 1, unit).Fewest();
      }
      TakeWorse(topology, group, &shape);
    }
    return shape;
  }
  absl::InlinedVector<Runs, 3> hops;
  absl::InlinedVector<Runs, 3> members;  // of the levels but the first
  int64_t period = 1;
  // No group crosses a domain that has all ranks.
  for (int level = 0; level < levels && UnitOf(topology, level) < num_ranks; ++level) {
    const int64_t whole = topology.level(level).domain_size;
    hops.emplace_back(groups, UnitOf(topology, level), whole < num_ranks ? whole : 0, budget);
    if (level > 0) members.emplace_back(groups, 1, UnitOf(topology, level), budget);
    period = std::max(period, hops.back().period());
    if (level > 0) period = std::max(period, members.back().period());
  }
  if (budget != nullptr && !budget->Charge(Log2Ceil(num_ranks) / 4 + 4 * levels, period))
    return shape;
  std::vector<bool> firsts;  // unused if all groups have the same runs
  if (period > 1) firsts = Firsts(groups.modes, num_ranks, period);
  for (int64_t first = 0; first < period; ++first) {
    if (period > 1 && !firsts[first]) continue;
    for (size_t level = 0; level < hops.size(); ++level) {
      group[level].most = hops[level].Most(first);
      group[level].wholes = hops[level].Wholes(first);
      if (level == 0) continue;
      group[level].crosses = members[level - 1].Crosses(first);
      group[level].fewest = members[level - 1].Fewest(first);
    }
    TakeWorse(topology, group, &shape);
  }
  return shape;
}

}  // namespace meshift
