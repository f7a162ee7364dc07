#include "planner/search/search.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/checked_math.h"
#include "planner/search/best_first.h"
#include "planner/search/heuristic.h"
#include "planner/search/layouts.h"
#include "planner/search/successors.h"
#include "planner/search/ties.h"

namespace meshift {
namespace {

// Work (base/work_budget.h) of a queued step: mostly its memory.
constexpr int64_t kEnqueueWork = 32;
// Work before the search accepts a suboptimal path, and between two later limits: about a second.
constexpr int64_t kPatience = 120'000'000;
// From then on a path must be shorter than the incumbent by this fraction (1/64) of its time.
constexpr int64_t kFirstGapDivisor = 64;
// On fewer mesh dims the search ends sooner than the greedy walk would.
constexpr int kIncumbentDims = 3;

// The cost of a path. `order` breaks ties between queued nodes of equal estimate: the node that is
// reached sooner comes first, so that all equally cheap ways to a node are known before it is
// expanded. The target comes last.
struct Cost {
  int64_t ns = 0;
  int64_t bytes = 0;  // that the worst rank of each step sends, added up
  int64_t order = 0;
  friend auto operator<=>(const Cost&, const Cost&) = default;  // NOLINT(modernize-use-nullptr)
};

class CheapestSearch {
 public:
  CheapestSearch(const Problem& problem, const CostModel& model, const TransitionRules& rules,
                 int64_t bound_ns)
      : problem_(problem),
        model_(model),
        rules_(rules),
        successors_(problem, model, rules),
        layouts_(successors_.layouts()),
        heuristic_(problem, model, successors_),
        ties_(problem, model),
        open_(problem.source(), Cost{}),
        bound_ns_(bound_ns),
        next_work_limit_(Work() + kPatience) {}

  std::optional<Path> Run() {
    if (problem_.num_dims() >= kIncumbentDims) FindIncumbent();
    open_.Run(
        problem_.target(), [&](const Cost& estimate) { return IsDone(estimate); },
        [&](int node) { Expand(node); },
        [&](const Step& step) {
          // A cheaper way to its state may have been found since the step was queued.
          const int known = open_.Find(step.to);
          const int64_t reached_ns = step.estimate.ns - step.rest_ns;
          if (known < 0 || reached_ns <= open_.node(known).cost.ns) Price(step);
        });
    // The target was popped, or the search ended with the incumbent, if it has one.
    const int target = open_.Find(problem_.target());
    if (target < 0) return std::nullopt;
    Path path;
    for (const Node& node : open_.PathTo(target)) {
      path.moves.push_back({node.op, node.state});
    }
    return path;
  }

 private:
  using Node = BestFirst<Cost>::Node;
  using Step = BestFirst<Cost>::Step;

  int64_t Work() const { return problem_.budget() == nullptr ? 0 : problem_.budget()->done(); }

  bool IsDone(const Cost& estimate) {
    if (!problem_.Charge(1)) return true;
    if (Work() > next_work_limit_) TightenBound();
    return estimate.ns > bound_ns_;
  }

  // Called after every kPatience of work. Takes the greedy walk from each node reached since the
  // last call that has nothing to reduce. From then on only paths count that are shorter than the
  // incumbent by 1 / gap_divisor_ of its time; each call makes that fraction four times larger.
  void TightenBound() {
    next_work_limit_ += kPatience;
    for (const int end = open_.num_nodes(); MayWalk() && walked_ < end; ++walked_) {
      if (layouts_.Decode(open_.node(walked_).state).reducible == 0) Finish(walked_);
    }
    gap_divisor_ = gap_divisor_ == 0 ? kFirstGapDivisor : std::max<int64_t>(gap_divisor_ / 4, 1);
    const int target = open_.Find(problem_.target());
    if (target >= 0) Bound(open_.node(target).cost.ns);
  }
  void Bound(int64_t known_ns) {
    bound_ns_ =
        std::min(bound_ns_, gap_divisor_ == 0 ? known_ns : known_ns - known_ns / gap_divisor_);
  }

  void Expand(int index) {
    const Node node = open_.node(index);
    const DecodedState view = layouts_.Decode(node.state);
    const bool was_sliced = node.before >= 0 && node.op == StepOp::kSlice;
    // The items that a rank receives by the step and by the steps after it must fit into the
    // remaining time.
    const int64_t left_ns = bound_ns_ - node.cost.ns - model_.LeastHopNs();
    const int64_t most_items =
        bound_ns_ == INT64_MAX
            ? INT64_MAX
            : std::max<int64_t>(model_.MaxBytes(left_ns), 0) / problem_.least_item_bytes();
    // A collective to an unfinished state needs another one after it, which the bound excludes. Or
    // the workspace cannot hold another value beside this one.
    const bool is_whole = view.reducible == 0 && !successors_.masks_target();
    const bool only_last =
        (is_whole && SaturatingMul(2, heuristic_.LeastStartNs()) > bound_ns_ - node.cost.ns) ||
        !model_.HasRoomBeside(view.state);
    successors_.ForEach(view, {most_items, only_last}, [&](const Successor& next) {
      if (next.op == StepOp::kSlice && was_sliced) return;  // one slice does both
      const int64_t step_ns =
          layouts_.bounds().LeastNs(next.op, view.state.stage(), next.dims, next.product);
      const int64_t reached_ns = SaturatingAdd(node.cost.ns, step_ns);
      if (reached_ns > bound_ns_) return;
      const int64_t rest_ns = heuristic_.LeastNs(next, bound_ns_ - reached_ns);
      const int64_t ns = SaturatingAdd(reached_ns, rest_ns);
      if (ns > bound_ns_ || !model_.HasRoom(next.op, view.state, next.state)) return;
      const int known = open_.Find(next.state);
      if (known >= 0 && open_.node(known).cost.ns < reached_ns) return;
      if (!problem_.Charge(kEnqueueWork)) return;
      open_.Push({index, next.op, next.state, {ns, node.cost.bytes}, rest_ns});
    });
  }

  // The node that the step leads to; -1: no path with this step is the best.
  int Price(const Step& step) {
    const Node& from = open_.node(step.from);
    const Traffic traffic = model_.Measure(step.op, from.state, step.to);
    if (!model_.Fits(step.op, from.state, step.to, traffic)) return -1;
    const Cost cost = {SaturatingAdd(from.cost.ns, traffic.est_ns),
                       SaturatingAdd(from.cost.bytes, traffic.bytes_sent)};
    const int64_t ns = SaturatingAdd(cost.ns, step.rest_ns);
    if (ns > bound_ns_) return -1;
    if (step.to == problem_.target()) Bound(cost.ns);
    return open_.Reach(step, cost, {ns, cost.bytes, cost.ns},
                       [&](int known) { return IsBefore(step, known); });
  }
  // Breaks a tie: whether the path by this step is better than the known path to the node.
  bool IsBefore(const Step& step, int known) {
    LegsTo(step.from, &legs_);
    legs_.push_back({step.op, open_.node(step.from).state, step.to});
    LegsTo(known, &other_legs_);
    size_t common = 0;
    const size_t end = std::min(legs_.size(), other_legs_.size());
    while (common < end && legs_[common] == other_legs_[common]) ++common;
    return ties_.IsBefore(absl::MakeSpan(legs_).subspan(common),
                          absl::MakeSpan(other_legs_).subspan(common));
  }
  void LegsTo(int index, std::vector<Leg>* legs) const {
    legs->clear();
    for (int at = index; open_.node(at).before >= 0; at = open_.node(at).before) {
      const Node& node = open_.node(at);
      legs->push_back({node.op, open_.node(node.before).state, node.state});
    }
    std::reverse(legs->begin(), legs->end());
  }

  // Finds paths by a greedy walk; each path to the target lowers bound_ns_. The walk slices on
  // replicated mesh dims and reduces all that must be reduced, both towards the target's cuts where
  // possible. Then it moves to the target (Finish). If nothing must be reduced, it also omits the
  // slice.
  void FindIncumbent();
  bool MayWalk() const {
    return !successors_.masks_target() && layouts_.num_lists() > problem_.num_unit_dims();
  }
  // Each but Finish() returns the node that it leads to; -1: a step is not allowed, its path is too
  // slow, or a known path to the node is cheaper.
  int Walk(int from, StepOp op, uint64_t partial_code, const Lists& lists);
  int GreedyMoveTo(int from, const Lists& lists);
  int Slice(int from);
  int CastTo(int from, int stage);
  void Finish(int from);

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules& rules_;
  Successors successors_;
  Layouts& layouts_;
  Heuristic heuristic_;
  Ties ties_;
  std::vector<Leg> legs_;  // of IsBefore()
  std::vector<Leg> other_legs_;
  BestFirst<Cost> open_;
  int64_t bound_ns_;
  int64_t next_work_limit_ = 0;  // work at which TightenBound() is called next
  int64_t gap_divisor_ = 0;      // see TightenBound(); 0: it was not called yet
  int walked_ = 0;               // nodes from which TightenBound() has taken the greedy walk
};

int CheapestSearch::Walk(int from, StepOp op, uint64_t partial_code, const Lists& lists) {
  if (from < 0) return -1;
  const State before = open_.node(from).state;
  const int stage = before.stage() + (op == StepOp::kCast ? 1 : 0);
  const State next = layouts_.StateOf(partial_code, lists, stage);
  if (next == before) return from;
  if (!successors_.value_rule().MayHold(next) || !model_.Allows(op, before, next)) return -1;
  return Price({from, op, next, {}, heuristic_.LeastNs(layouts_.Decode(next))});
}

int CheapestSearch::CastTo(int from, int stage) {
  while (from >= 0 && open_.node(from).state.stage() < stage) {
    const DecodedState view = layouts_.Decode(open_.node(from).state);
    from = Walk(from, StepOp::kCast, view.partial_code, view.lists);
  }
  return from;
}

int CheapestSearch::Slice(int from) {
  if (from < 0) return -1;
  const DecodedState view = layouts_.Decode(open_.node(from).state);
  return Walk(from, StepOp::kSlice, view.partial_code,
              layouts_.CutTowardsTarget(view.lists, view.replicated, layouts_.outermost()));
}

// By the one step that leads to `lists`. If cuts are only removed, all_gather and exchange are
// both tried.
int CheapestSearch::GreedyMoveTo(int from, const Lists& lists) {
  if (from < 0) return -1;
  const DecodedState view = layouts_.Decode(open_.node(from).state);
  const Layouts::Changes changes = layouts_.Between(view.lists, lists);
  const auto walk = [&](StepOp op) { return Walk(from, op, view.partial_code, lists); };
  const bool relabels = layouts_.MayRelabel(view.lists) && layouts_.Contains(view.lists, lists);
  if (changes.from == 0 || relabels) return walk(StepOp::kSlice);
  if (changes.to == 0) return std::max(walk(StepOp::kAllGather), walk(StepOp::kExchange));
  if (layouts_.IsPermutation(view.lists, lists)) return walk(StepOp::kPermute);
  return walk(changes.from == changes.to ? StepOp::kAllToAll : StepOp::kExchange);
}

// Goes to the target's cuts directly. Also goes to the target's cuts extended by all mesh dims that
// are replicated there, from where one or two gathers lead to the target.
void CheapestSearch::Finish(int from) {
  const DecodedState& target = layouts_.target();
  const int last = target.state.stage();
  const bool narrows =
      from >= 0 && problem_.item_bytes(last) < problem_.item_bytes(open_.node(from).state.stage());
  if (narrows) from = CastTo(from, last);
  CastTo(GreedyMoveTo(from, target.lists), last);
  const int spare = layouts_.outermost();
  Lists cut = layouts_.CutTowardsTarget(target.lists, target.replicated, spare);
  const int spread = GreedyMoveTo(from, cut);
  while (cut[spare] != target.lists[spare]) {
    CastTo(GreedyMoveTo(GreedyMoveTo(spread, cut), target.lists), last);
    cut[spare] = layouts_.table().Parent(cut[spare]);
  }
}

void CheapestSearch::FindIncumbent() {
  if (!MayWalk()) return;
  constexpr int kSource = 0;
  const DecodedState source = layouts_.Decode(problem_.source());
  if (source.reducible == 0) {
    Finish(kSource);
    if (source.replicated != 0) Finish(Slice(kSource));
    return;
  }
  const int sliced = Slice(CastTo(kSource, problem_.reduce_stage()));
  if (sliced < 0) return;
  const DecodedState view = layouts_.Decode(open_.node(sliced).state);
  const Lists scattered =
      layouts_.CutTowardsTarget(view.lists, view.reducible, layouts_.outermost());
  const uint64_t reduced = layouts_.target().partial_code;
  const bool scatters = rules_.scatters && (view.reducible & ~layouts_.DimsOf(scattered)) == 0;
  Finish(scatters ? Walk(sliced, StepOp::kReduceScatter, reduced, scattered)
                  : Walk(sliced, StepOp::kAllReduce, reduced, view.lists));
}

}  // namespace

PathCost CostOf(const Problem& problem, const CostModel& model, const Path& path) {
  PathCost cost;
  Ties ties(problem, model);
  State before = problem.source();
  for (const Move& move : path.moves) {
    const Leg leg{move.op, before, move.after};
    cost = cost + CostOf(model.Measure(move.op, before, move.after), ties.TotalBytes(leg));
    before = move.after;
  }
  return cost;
}

std::optional<Path> FindCheapest(const Problem& problem, const CostModel& model,
                                 const TransitionRules& rules, int64_t bound_ns) {
  if (problem.source() == problem.target()) return Path{};
  return CheapestSearch(problem, model, rules, bound_ns).Run();
}

DimMask LeastAcross(const Problem& problem, const CostModel& model, const TransitionRules& rules) {
  Successors successors(problem, model, rules);
  return Heuristic(problem, model, successors)
      .Across(successors.layouts().Decode(problem.source()));
}

}  // namespace meshift
