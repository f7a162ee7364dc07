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
#include "planner/together/collective_starts.h"
#include "planner/together/link_sums.h"
#include "planner/together/links.h"

namespace meshift {
namespace {

using Int128 = __int128;

constexpr int64_t kMoveWork = 1024;
constexpr int kSweeps = 3;
// The order of candidates in one pass over the moves.
enum class Goal : uint8_t {
  kTime,     // the objective, then the bytes sent
  kSent,     // the bytes sent, then the objective
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
    for (const Goal start : {Goal::kTime, Goal::kSent, Goal::kSquares, Goal::kAlone}) {
      for (const size_t move : order) {
        if (!Take(move, start)) return false;
      }
      if (start == Goal::kSquares && !Sweep(order, start)) return false;
      if (!Sweep(order, Goal::kTime)) return false;
      const Key key = {TimeWith({}), Sent()};
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
        case Goal::kTime:
          key = {TimeWith(candidate), candidate.sent};
          break;
        case Goal::kSent:
          key = {candidate.sent, TimeWith(candidate)};
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
  int64_t TimeWith(const Candidate& candidate) {
    return SaturatingAdd(sums_.TimeWith(candidate.loads), starts_.MostWith(candidate.starts));
  }
  Int128 Sent() const {
    Int128 sent = 0;
    for (size_t move = 0; move < chosen_.size(); ++move) {
      sent += candidates_[move][chosen_[move]].sent;
    }
    return sent;
  }
  bool Change(size_t move, bool add) {
    const Candidate& candidate = candidates_[move][chosen_[move]];
    if (!budget_.Charge(4, std::ssize(candidate.loads))) return false;
    if (add) {
      sums_.Add(candidate.loads);
      starts_.Add(candidate.starts);
    } else {
      sums_.Remove(candidate.loads);
      starts_.Remove(candidate.starts);
    }
    return true;
  }

  WorkBudget& budget_;
  std::vector<std::vector<Candidate>>& candidates_;
  LinkSums sums_;
  StartSums starts_;
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

// The candidates' plans, with the terms of the objective. REQUIRES: they have plans.
PlanSet SetOf(size_t size, const Links& links,
              absl::FunctionRef<const Candidate&(size_t move)> candidate_of) {
  PlanSet set;
  LinkSums sums(links);
  StartSums starts;
  for (size_t i = 0; i < size; ++i) {
    const Candidate& candidate = candidate_of(i);
    set.plans.push_back(*candidate.plan);
    sums.Add(candidate.loads);
    starts.Add(candidate.starts);
  }
  const LinkTime busiest = sums.Busiest();
  set.busiest = busiest.link;
  set.busiest_ns = busiest.ns;
  set.starts_ns = starts.Most();
  set.copies_ns = sums.CopiesNs();
  return set;
}

int64_t ObjectiveNs(const PlanSet& set) {
  return SaturatingAdd(set.busiest_ns, SaturatingAdd(set.starts_ns, set.copies_ns));
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

  CollectiveKinds kinds;
  CandidateMaker maker(links, options, budget, kinds);
  BusiestBound bound(links, options, budget);
  std::vector<std::vector<Candidate>> candidates(moves.size());
  Sources sources{
      .most = std::clamp(kMostSourcesInAll / std::ssize(moves), kLeastSources, kMostSources),
      // MakePlan counts more of one tensor: hops and messages.
      .alone = moves.size() == 1 && moves[0].count == 1};
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
        maker.SetPlan(moves[i], WithBound(*plan, candidates[i][0].plan->lower_bound()), &candidate);
        if (budget.exhausted()) return budget.Refusal("planning");
        continue;
      }
      is_done = false;
      Refuse(candidate, &candidates[i]);
    }
    if (!is_done) continue;
    set = SetOf(moves.size(), links, [&](size_t i) -> const Candidate& { return choice.Of(i); });
  }
  // Copies were estimated in the choice.
  PlanSet alone =
      SetOf(moves.size(), links, [&](size_t i) -> const Candidate& { return candidates[i][0]; });
  if (ObjectiveNs(alone) < ObjectiveNs(set)) set = std::move(alone);
  set.bound_ns = bound.Ns();
  return set;
}

}  // namespace meshift
