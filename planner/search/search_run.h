// One run of the search (search.h): what it has found, and what waits. Internal to it.
//
//   std::optional<Path> path = SearchRun(problem, model, rules, bound_ns).Run();
//
// search.cc takes what waits in order, bounds and prices it; search_steps.cc has the steps that a
// state is gone on by. The problem, the model and the rules must outlive the run. Not safe for
// concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_SEARCH_RUN_H_
#define MESHIFT_PLANNER_SEARCH_SEARCH_RUN_H_

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "planner/cost/cost.h"
#include "planner/cost/path_cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "planner/plan/plan.h"
#include "planner/search/domain_bounds.h"
#include "planner/search/last_steps.h"
#include "planner/search/search.h"
#include "planner/search/search_ahead.h"
#include "planner/search/search_nodes.h"
#include "planner/search/search_queue.h"
#include "planner/search/search_space.h"

namespace meshift {

class SearchRun {
 public:
  SearchRun(const Problem& problem, const CostModel& model, const TransitionRules& rules,
            int64_t bound_ns)
      : problem_(problem),
        model_(model),
        rules_(rules),
        space_(problem, model, rules),
        bound_ns_(bound_ns) {}
  std::optional<Path> Run();
  // What is done so far: of what it counts, a list of cuts that is looked at counts for one.
  int64_t Work() const { return work_ + space_.num_looked_at(); }

 private:
  // What a step and the rest may take at most, behind `cost`.
  int64_t Left(const PathCost& cost) const { return bound_ns_ - cost.ns; }
  // Hops that two collectives may have together; no limit where it is not known what must go
  // across.
  int HopsLeft(const PathCost& cost) const {
    if (space_.masks_target() || space_.hop_ns() == 0) return INT_MAX;
    const int64_t left = Left(cost) - 2 * model_.LeastCollectiveNs();
    return static_cast<int>(std::min<int64_t>(left / space_.hop_ns(), INT_MAX - 1));
  }
  // Of what may be lacking where steps take `ns` before any byte.
  int64_t MissingLimit(const PathCost& cost, int64_t ns) const {
    return model_.MaxTransferBytes(Left(cost) - ns) / problem_.least_item_bytes();
  }
  // Whether a path with the step from node `from` to `to` may be the best. `items`: of the largest
  // box of `to`; `least_ns`: of the step; `rest_ns`: of what follows.
  bool MayPay(int from, StepOp op, const State& to, int64_t items, int64_t least_ns,
              int64_t rest_ns);
  // Has such a step wait its turn.
  void Offer(int from, StepOp op, const State& to, int64_t items, int64_t least_ns,
             const Rest& rest, OpenEntry::Kind kind = OpenEntry::Kind::kStep);
  void OfferTo(int from, StepOp op, const State& to, const Lists& lists, int64_t least_ns);
  // Prices such a step; the node of `to`, or -1 where no path with it can be the best.
  int Take(int from, StepOp op, const State& to, int64_t rest_ns);
  int TakeTo(int from, StepOp op, const State& to, const Lists& lists);
  // Where a slice leads from a state that takes `ns` to the target: no path takes more.
  void BoundBySlice(const State& state, int64_t ns);
  // Of what is left from a state that takes `ns`, at least.
  int64_t LeastAhead(const State& state, int64_t ns) {
    const int64_t ahead = ahead_ ? ahead_->Of(state, bound_ns_ - ns).least_ns : 0;
    const int64_t least = domains_ ? std::max(ahead, LeastAcrossDomains(state)) : ahead;
    return last_steps_ ? std::max(least, last_steps_->LeastNs(state)) : least;
  }
  // Of what must come from other domains, and the start of a collective. REQUIRES: domains_.
  int64_t LeastAcrossDomains(const State& state);
  // A closer bound on what follows a state that `op` led to, if a path takes `reached_ns` at least
  // to get there.
  Rest RestBehind(StepOp op, const View& view, int64_t reached_ns);
  Rest RestBeyondFinish(bool sliced, const View& view);
  bool Advance(OpenEntry entry);
  void Start();
  // Finds the best path within the bound. False: more than `many` steps came to wait.
  bool Continue(size_t many);
  // So much work is done before the search settles.
  static constexpr int64_t kPatience = int64_t{1} << 26;
  // Where the best path takes long to find: from now on only paths are looked for that are shorter
  // than those that are known by some part; twice that, where half as much work is done again.
  void Settle();
  // REQUIRES: best_.
  Path BestPath();
  // A collective that leads to a state that local steps finish, and what these take at least.
  struct FinishStep {
    StepOp op = StepOp::kSlice;
    const View* last = nullptr;
    int64_t items = 0;  // of its largest box
    int64_t step_ns = 0;
    int64_t rest_ns = 0;
    int64_t Ns() const { return SaturatingAdd(step_ns, rest_ns); }
  };
  using FinishSteps = absl::InlinedVector<FinishStep, 8>;
  // Those that may pay behind a path that takes `reached_ns`. They stay until others are asked for
  // kRemembered times.
  const FinishSteps& LookForFinishes(const View& view, int64_t reached_ns);
  DimMask ReducibleOf(const State& state) const {
    DimMask reducible = 0;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (problem_.IsReducible(state, d)) reducible |= DimMask{1} << d;
    }
    return reducible;
  }
  void Finish(int from, const View& view);
  void Expand(int from, const View& view);
  void Local(int from, const View& view);
  void Reduce(int from, const View& view);
  void Move(int from, const View& view);
  // Whether all states that moves from there lead to are listed.
  bool LooksAhead(const View& view) {
    return ahead_ && view.reducible == 0 && MeetsTarget(view) && !space_.towards_target() &&
           ahead_->ListsSpots(bound_ns_);
  }
  void MoveAhead(int from, const View& view);
  template <typename Fn>
  void ExchangeNearTarget(const View& view, const SearchSpace::Limits& limits, const Fn& offer);
  // Whether the view is partial where the target is.
  bool MeetsTarget(const View& view) const {
    return view.partial_code == space_.target().partial_code;
  }
  void Dive(int from);
  // search_dive.cc: paths that bound the rest, and that nothing else is made of.
  struct Reached {
    View view;
    int64_t ns = 0;  // of the path there
  };
  // Behind one step more; nullopt where it is none that may be taken, or takes too long.
  std::optional<Reached> Behind(const Reached& before, StepOp op, uint64_t partial_code,
                                const Lists& lists);
  std::optional<Reached> BehindScatter(const Reached& before);
  std::optional<Reached> BehindMove(const Reached& before, const Lists& lists);
  void BoundByGather(const Reached& before);
  // Where many steps wait: a path that is near the best as a rule.
  void BoundByDive();
  // Before a state is gone on from: many searches end before.
  void LookAhead();
  // Before many are.
  void ListLastSteps();
  // Where one more collective and a gather lead from a state that takes `ns` to the target.
  void BoundAhead(const State& state, int64_t ns);
  // Likewise, where what is replicated is sliced before, and all is reduced at once.
  void BoundFirst(const Reached& before);

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules& rules_;
  SearchSpace space_;
  bool looked_ahead_ = false;
  std::unique_ptr<SearchAhead> ahead_;     // null: does not pay, or nothing is gone on from yet
  int gone_on_ = 0;                        // states that were gone on from
  std::unique_ptr<DomainBounds> domains_;  // null: does not pay, or these are few
  bool looked_at_last_steps_ = false;
  std::unique_ptr<LastSteps> last_steps_;  // null: nothing is known, or there were few
  // What exchanges lead to besides: partial otherwise than the target.
  std::vector<View> near_in_partials_;
  bool found_near_ = false;
  // What LookForFinishes() found of the last states: as a rule of one that was bounded before its
  // turn, and is gone on from now.
  static constexpr int kRemembered = 8;
  struct Finishes {
    std::optional<State> of;
    int64_t left_ns = 0;  // there was at least so much time left
    FinishSteps steps;
  };
  std::array<Finishes, kRemembered> finishes_;
  int next_finishes_ = 0;
  int64_t bound_ns_;
  std::optional<PathCost> best_;  // of a path to the target that is known
  // The best path over cuts that the target has, where it was looked for apart.
  struct Known {
    PathCost cost;
    Path path;
  };
  std::optional<Known> towards_target_;
  int64_t work_ = 0;  // besides lists
  int64_t patience_ = kPatience;
  int64_t part_ = INT64_MAX;  // of a known path, that others must be shorter by
  SearchNodes nodes_;
  OpenQueue open_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SEARCH_RUN_H_
