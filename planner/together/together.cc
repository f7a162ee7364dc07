#include "planner/together/together.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "planner/plan/workspace.h"
#include "planner/together/busiest_bound.h"
#include "planner/together/candidates.h"
#include "planner/together/link_sums.h"
#include "planner/together/links.h"

namespace meshift {
namespace {

using Int128 = __int128;

constexpr int64_t kMoveWork = 1024;
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
                                     PlanOneFn plan_one, int64_t max_workspace) {
  MESHIFT_RETURN_IF_ERROR(CheckMoves(moves));
  DistinctMeshes meshes;
  for (const TensorMove& move : moves) {
    meshes.Add(move.from.mesh());
    meshes.Add(move.to.mesh());
  }
  if (!budget.Charge(Links::Work(meshes.list(), options.topology)) ||
      !budget.Charge(kMoveWork, std::ssize(moves))) {
    return budget.Refusal("planning");
  }
  const Links links(meshes.list(), options.topology);
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
      if (plan.ok() && plan->total().workspace_bytes <= max_workspace) {
        candidate.plan = WithBound(*plan, candidates[i][0].plan->lower_bound());
        continue;
      }
      is_done = false;
      Refuse(candidate, &candidates[i]);
    }
    if (!is_done) continue;
    for (size_t i = 0; i < moves.size(); ++i) set.plans.push_back(*choice.Of(i).plan);
    const LinkTime busiest = choice.sums().Busiest();
    set.busiest = busiest.link;
    set.busiest_ns = busiest.ns;
  }
  set.bound_ns = bound.Ns();
  return set;
}

}  // namespace meshift
