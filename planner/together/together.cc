#include "planner/together/together.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "planner/plan/workspace.h"
#include "planner/together/busiest_bound.h"
#include "planner/together/candidates.h"
#include "planner/together/links.h"

namespace meshift {
namespace {

using Int128 = __int128;

constexpr int64_t kMoveWork = 1024;
constexpr int64_t kLinkWork = 8;
constexpr int kSweeps = 3;
// The order of candidates in one pass over the moves.
enum class Goal : uint8_t {
  kBusiest,  // the time of the busiest link, then the bytes sent
  kSent,     // the bytes sent, then the time of the busiest link
  kSquares,  // the sum over all links of the square of their times
  kAlone,    // the plan of the tensor alone
};
// The replicas that are tried of one move, of all together, and at least of one.
constexpr int64_t kMostSources = 64;
constexpr int64_t kMostSourcesInAll = 16384;
constexpr int64_t kLeastSources = 4;

// The sums of bytes by link, and the largest sum of each level.
class LinkSums {
 public:
  // `most`: at least the bytes of all loads together, for the unit of SquaresWith().
  LinkSums(const Links& links, Int128 most)
      : links_(links), places_(2 * int64_t{links.num_ranks()}) {
    trees_.assign(links.num_levels(), std::vector<Int128>(2 * places_, 0));
    while (most >> shift_ >= Int128{1} << 32) ++shift_;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int level = 0; level < links.num_levels(); ++level) {
      least = std::min(least, BandwidthOf(level));
    }
    for (int level = 0; level < links.num_levels(); ++level) {
      weights_.push_back(std::max<int64_t>(MulDivFloor(1 << 16, least, BandwidthOf(level)), 1));
    }
  }

  void Add(const std::vector<LinkLoad>& loads) { Change(loads, 1); }
  void Remove(const std::vector<LinkLoad>& loads) { Change(loads, -1); }
  // The time of the busiest link with these loads too, in ns.
  int64_t TimeWith(const std::vector<LinkLoad>& loads) const {
    int64_t ns = 0;
    size_t next = 0;
    for (int level = 0; level < links_.num_levels(); ++level) {
      const std::vector<Int128>& tree = trees_[level];
      Int128 most = tree[1];
      for (; next < loads.size() && loads[next].level == level; ++next) {
        most = std::max(most, tree[places_ + loads[next].place] + loads[next].bytes);
      }
      ns = std::max(ns, TimeOf(level, most));
    }
    return ns;
  }
  // By how much these loads raise the sum of the squares of all links' times, in some unit.
  Int128 SquaresWith(const std::vector<LinkLoad>& loads) const {
    Int128 raise = 0;
    for (const LinkLoad& load : loads) {
      const int64_t weight = weights_[load.level];
      const Int128 more = (Int128{load.bytes} >> shift_) * weight;
      const Int128 sum = (trees_[load.level][places_ + load.place] >> shift_) * weight;
      raise += more * (2 * sum + more);  // below 2^48 each
    }
    return raise;
  }
  // Sets the fields of the set but its plans and bound.
  void SetBusiest(PlanSet* set) const {
    set->busiest.rank = links_.ranks()[0];
    for (int32_t place = 0; place < places_; ++place) {
      for (int level = 0; level < links_.num_levels(); ++level) {
        const int64_t ns = TimeOf(level, trees_[level][places_ + place]);
        if (ns <= set->busiest_ns) continue;
        set->busiest_ns = ns;
        set->busiest = {links_.ranks()[place / 2], level, place % 2 == kReceived};
      }
    }
  }

 private:
  int64_t BandwidthOf(int level) const {
    return links_.topology().level(level).bandwidth_bytes_per_us;
  }
  int64_t TimeOf(int level, Int128 bytes) const {
    const int64_t bandwidth = BandwidthOf(level);
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    if (bytes <= kMost) return MulDivCeil(static_cast<int64_t>(bytes), 1000, bandwidth);
    const Int128 ns = (bytes * 1000 + bandwidth - 1) / bandwidth;
    return ns > kMost ? kMost : static_cast<int64_t>(ns);
  }
  void Change(const std::vector<LinkLoad>& loads, int sign) {
    for (const LinkLoad& load : loads) {
      std::vector<Int128>& tree = trees_[load.level];
      int64_t node = places_ + load.place;
      tree[node] += sign * Int128{load.bytes};
      for (node /= 2; node > 0; node /= 2) {
        const Int128 most = std::max(tree[2 * node], tree[2 * node + 1]);
        if (tree[node] == most) break;
        tree[node] = most;
      }
    }
  }

  const Links& links_;
  const int64_t places_;
  // By level: a tournament tree over the places; leaf places_ + p is place p, node 1 the root.
  std::vector<std::vector<Int128>> trees_;
  int shift_ = 0;
  std::vector<int64_t> weights_;  // by level, at most 2^16
};

// At least the bytes of all loads, whichever candidates are chosen.
Int128 MostBytes(const std::vector<std::vector<Candidate>>& candidates) {
  Int128 sum = 0;
  for (const std::vector<Candidate>& of_move : candidates) {
    int64_t most = 0;
    for (const Candidate& candidate : of_move) {
      for (const LinkLoad& load : candidate.loads) most = std::max(most, load.bytes);
    }
    sum += most;  // of one link
  }
  return sum;
}

// The choice of one candidate for each move.
class Choice {
 public:
  Choice(const Links& links, WorkBudget& budget, std::vector<std::vector<Candidate>>& candidates)
      : budget_(budget),
        candidates_(candidates),
        sums_(links, MostBytes(candidates)),
        chosen_(candidates.size()) {}

  // Chooses for all moves, in this order, the best of several starts. False: the budget is
  // exhausted. Call it once.
  bool ChooseAll(const std::vector<size_t>& order) {
    using Key = std::tuple<int64_t, Int128>;
    std::optional<Key> least;
    std::vector<size_t> best;
    for (const Goal start : {Goal::kBusiest, Goal::kSent, Goal::kSquares, Goal::kAlone}) {
      for (const size_t move : order) {
        if (!Take(move, start)) return false;
      }
      if (start == Goal::kSquares && !Sweep(order, start)) return false;
      if (!Sweep(order, Goal::kBusiest)) return false;
      const Key key = {sums_.TimeWith({}), Sent()};
      if (!least || key < *least) {
        least = key;
        best = chosen_;
      }
      for (const size_t move : order) {
        if (!Change(move, /*add=*/false)) return false;
      }
    }
    chosen_ = best;
    for (const size_t move : order) {
      if (!Change(move, /*add=*/true)) return false;
    }
    return true;
  }
  Candidate& Of(size_t move) { return candidates_[move][chosen_[move]]; }
  const LinkSums& sums() const { return sums_; }

 private:
  // Gives the move, which has no candidate, the best one.
  bool Take(size_t move, Goal goal) {
    size_t best = 0;
    std::optional<std::tuple<Int128, Int128>> least;
    for (size_t c = 0; c < candidates_[move].size(); ++c) {
      const Candidate& candidate = candidates_[move][c];
      if (candidate.refused) continue;
      if (!budget_.Charge(std::ssize(candidate.loads) / 2 + 4)) return false;
      std::tuple<Int128, Int128> key;
      switch (goal) {
        case Goal::kBusiest:
          key = {sums_.TimeWith(candidate.loads), candidate.sent};
          break;
        case Goal::kSent:
          key = {candidate.sent, sums_.TimeWith(candidate.loads)};
          break;
        case Goal::kSquares:
          key = {sums_.SquaresWith(candidate.loads), candidate.sent};
          break;
        case Goal::kAlone:
          key = {0, static_cast<Int128>(c)};
          break;
      }
      if (least && key >= *least) continue;
      least = key;
      best = c;
    }
    chosen_[move] = best;
    return Change(move, /*add=*/true);
  }
  bool Sweep(const std::vector<size_t>& order, Goal goal) {
    bool changed = true;
    for (int sweep = 0; sweep < kSweeps && changed; ++sweep) {
      changed = false;
      for (const size_t move : order) {
        if (candidates_[move].size() == 1) continue;
        const size_t before = chosen_[move];
        if (!Change(move, /*add=*/false) || !Take(move, goal)) return false;
        changed |= chosen_[move] != before;
      }
    }
    return true;
  }
  Int128 Sent() const {
    Int128 sent = 0;
    for (size_t move = 0; move < chosen_.size(); ++move) {
      sent += candidates_[move][chosen_[move]].sent;
    }
    return sent;
  }
  bool Change(size_t move, bool add) {
    const std::vector<LinkLoad>& loads = candidates_[move][chosen_[move]].loads;
    if (!budget_.Charge(4, std::ssize(loads))) return false;
    if (add) {
      sums_.Add(loads);
    } else {
      sums_.Remove(loads);
    }
    return true;
  }

  WorkBudget& budget_;
  std::vector<std::vector<Candidate>>& candidates_;
  LinkSums sums_;
  std::vector<size_t> chosen_;  // by move
};

absl::Status CheckMoves(absl::Span<const TensorMove> moves) {
  if (moves.empty()) return InvalidArgument("there are no moves to plan");
  for (size_t i = 0; i < moves.size(); ++i) {
    if (moves[i].count < 1) {
      return InvalidArgument("move {}: count is {}; it must be 1 or more", i, moves[i].count);
    }
  }
  return absl::OkStatus();
}

// In descending order of bytes, then by text, which does not depend on the given order.
std::vector<size_t> OrderOf(absl::Span<const TensorMove> moves, WorkBudget& budget) {
  struct Key {
    int64_t bytes;
    std::string text;
    size_t index;
  };
  std::vector<Key> keys;
  for (size_t i = 0; i < moves.size(); ++i) {
    const TensorMove& move = moves[i];
    const int64_t bytes = SaturatingBytes(move.from.dtype(), NumElements(move.from.shape()));
    std::string text = move.from.ToString() + " " + move.to.ToString();
    budget.Charge(4, std::ssize(text));
    keys.push_back({SaturatingMul(bytes, move.count), std::move(text), i});
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return std::tie(b.bytes, a.text, a.index) < std::tie(a.bytes, b.text, b.index);
  });
  std::vector<size_t> order;
  for (const Key& key : keys) order.push_back(key.index);
  return order;
}

std::vector<DeviceMesh> MeshesOf(absl::Span<const TensorMove> moves) {
  std::vector<DeviceMesh> meshes;
  for (const TensorMove& move : moves) {
    for (const DeviceMesh* mesh : {&move.from.mesh(), &move.to.mesh()}) {
      // Neighbours mostly have equal meshes.
      const auto known = std::find(meshes.rbegin(), meshes.rend(), *mesh);
      if (known == meshes.rend()) meshes.push_back(*mesh);
    }
  }
  return meshes;
}

// `plan` with the lower bound of the plan that the tensor has alone.
Plan WithBound(const Plan& plan, const LowerBound& bound) {
  PlanFields fields = plan.fields();
  fields.lower_bound = bound;
  return Plan::Seal(std::move(fields));
}

// Refuses a candidate of a move; with one replica all of them: their plans differ in it alone.
void Refuse(const Candidate& refused, std::vector<Candidate>* candidates) {
  const bool is_replica = refused.replica >= 0;
  for (Candidate& candidate : *candidates) {
    if (is_replica ? candidate.replica >= 0 : &candidate == &refused) candidate.refused = true;
  }
}

}  // namespace

absl::StatusOr<PlanSet> PlanTogether(absl::Span<const TensorMove> moves,
                                     const PlannerOptions& options, WorkBudget& budget,
                                     PlanOneFn plan_one) {
  MESHIFT_RETURN_IF_ERROR(CheckMoves(moves));
  const std::vector<DeviceMesh> meshes = MeshesOf(moves);
  int64_t ranks = 0;
  for (const DeviceMesh& mesh : meshes) ranks = SaturatingAdd(ranks, mesh.NumRanks());
  if (!budget.Charge(SaturatingMul(kLinkWork, options.topology.NumLevels()), ranks) ||
      !budget.Charge(kMoveWork, std::ssize(moves))) {
    return budget.Refusal("planning");
  }
  const Links links(meshes, options.topology);
  const std::vector<size_t> order = OrderOf(moves, budget);

  CandidateMaker maker(links, options, budget);
  BusiestBound bound(links, options, budget);
  std::vector<std::vector<Candidate>> candidates(moves.size());
  Sources sources{
      .most = std::clamp(kMostSourcesInAll / std::ssize(moves), kLeastSources, kMostSources)};
  for (const size_t i : order) {
    absl::StatusOr<Plan> alone = plan_one(i);
    if (budget.exhausted()) return budget.Refusal("planning");
    if (!alone.ok()) return Annotate(alone.status(), fmt::format("move {}", i));
    MESHIFT_ASSIGN_OR_RETURN(candidates[i], maker.Make(moves[i], *std::move(alone), sources));
    bound.Add(moves[i]);
    ++sources.turn;
  }

  PlanSet set;
  for (bool is_done = false; !is_done;) {
    Choice choice(links, budget, candidates);
    if (!choice.ChooseAll(order)) return budget.Refusal("planning");
    is_done = true;
    for (const size_t i : order) {
      Candidate& candidate = choice.Of(i);
      if (candidate.plan) continue;
      absl::StatusOr<Plan> plan = maker.PlanOf(moves[i], candidate);
      if (budget.exhausted()) return budget.Refusal("planning");
      if (plan.ok()) {
        candidate.plan = WithBound(*plan, candidates[i][0].plan->lower_bound());
        continue;
      }
      is_done = false;
      Refuse(candidate, &candidates[i]);
    }
    if (!is_done) continue;
    for (size_t i = 0; i < moves.size(); ++i) set.plans.push_back(*choice.Of(i).plan);
    choice.sums().SetBusiest(&set);
  }
  set.bound_ns = bound.Ns();
  return set;
}

}  // namespace meshift
