#include "planner/search.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "planner/search_nodes.h"
#include "planner/search_queue.h"
#include "planner/search_space.h"

namespace meshift {
namespace {

// So many steps wait for their turn before a path is looked for that bounds them; the part of the
// bound that is too little to matter.
constexpr size_t kMany = 256;
constexpr int64_t kClose = 64;

class Search {
 public:
  Search(const Problem& problem, const CostModel& model, const TransitionRules& rules,
         int64_t bound_ns)
      : problem_(problem),
        model_(model),
        rules_(rules),
        space_(problem, model, rules),
        bound_ns_(bound_ns) {}
  std::optional<Path> Run();

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
  // A closer bound on what follows a state that `op` led to, if a path takes `reached_ns` at least
  // to get there.
  Rest RestBehind(StepOp op, const View& view, int64_t reached_ns);
  Rest RestBeyondFinish(bool sliced, const View& view);
  bool Advance(OpenEntry entry);
  void Start();
  // Finds the best path within the bound. False: more than `many` steps came to wait.
  bool Continue(size_t many);
  // A collective that leads to a state that local steps finish, and what these take at least.
  struct FinishStep {
    StepOp op = StepOp::kSlice;
    const View* last = nullptr;
    int64_t items = 0;  // of its largest box
    int64_t step_ns = 0;
    int64_t rest_ns = 0;
    int64_t Ns() const { return SaturatingAdd(step_ns, rest_ns); }
  };
  // Those that may pay behind a path that takes `reached_ns`.
  void LookForFinishes(const View& view, int64_t reached_ns);
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
  template <typename Fn>
  void Exchange(const View& view, const SearchSpace::Limits& limits, const Fn& offer);
  // Whether the view is partial where the target is.
  bool MeetsTarget(const View& view) const {
    return view.partial_code == space_.target().partial_code;
  }
  void Dive(int from);

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules& rules_;
  SearchSpace space_;
  // What exchanges lead to besides: partial otherwise than the target.
  std::vector<View> near_in_partials_;
  bool found_near_ = false;
  absl::InlinedVector<FinishStep, 8> finishes_;  // of LookForFinishes()
  std::optional<State> finishes_of_;             // and of what state they are,
  int64_t finishes_left_ns_ = 0;                 // with so much time left
  int64_t bound_ns_;
  std::optional<PathCost> best_;  // of a path to the target that is known
  SearchNodes nodes_;
  OpenQueue open_;
};

bool Search::MayPay(int from, StepOp op, const State& to, int64_t items, int64_t least_ns,
                    int64_t rest_ns) {
  const int64_t reached = SaturatingAdd(nodes_[from].cost.ns, least_ns);
  if (SaturatingAdd(reached, rest_ns) > bound_ns_) return false;
  if (!space_.Admits(to, items)) return false;
  if (op == StepOp::kExchange && model_.IsChosenGather(nodes_[from].state, to)) return false;
  const int known = nodes_.Find(to);
  if (known >= 0 && nodes_[known].cost.ns < reached) return false;
  return model_.Allows(op, nodes_[from].state, to) && model_.HasRoom(op, nodes_[from].state, to);
}

void Search::Offer(int from, StepOp op, const State& to, int64_t items, int64_t least_ns,
                   const Rest& rest, OpenEntry::Kind kind) {
  if (!MayPay(from, op, to, items, least_ns, rest.close_ns)) return;
  const PathCost cost = nodes_[from].cost;
  const int64_t ns = SaturatingAdd(SaturatingAdd(cost.ns, least_ns), rest.ns);
  open_.push({.estimate = {ns, cost.bytes, cost.steps + 1},
              .state = to,
              .node = from,
              .kind = kind,
              .op = op,
              .least_ns = least_ns,
              .rest_ns = rest.ns,
              .cost_ns = cost.ns});
}

void Search::OfferTo(int from, StepOp op, const State& to, const Lists& lists, int64_t least_ns) {
  Offer(from, op, to, space_.MaxItems(lists), least_ns,
        space_.LeastRest(to, lists, ReducibleOf(to)));
}

int Search::Take(int from, StepOp op, const State& to, int64_t rest_ns) {
  const PathCost cost = nodes_[from].cost;
  if (const int known = nodes_.Find(to); known >= 0) {
    const SearchNode& node = nodes_[known];
    const bool is_same = node.before == from && node.op == op;
    if (is_same && node.cost == cost + CostOf(node.traffic)) return -1;
  }
  const Traffic traffic = model_.Measure(op, nodes_[from].state, to);
  if (!model_.Fits(op, nodes_[from].state, to, traffic)) return -1;
  const PathCost next = cost + CostOf(traffic);
  const PathCost estimate{SaturatingAdd(next.ns, rest_ns), next.bytes, next.steps};
  if (estimate.ns > bound_ns_ || (best_ && *best_ < estimate)) return -1;
  bool is_new = false;
  const int index = nodes_.FindOrAdd(to, &is_new);
  SearchNode& node = nodes_[index];
  if (!is_new) {
    if (node.cost < next) return -1;
    // Of equal paths, one whose last step is of the kind that comes first.
    if (node.cost == next && (node.done || node.op <= op)) return -1;
  }
  node = {.state = to,
          .cost = next,
          .before = from,
          .op = op,
          .done = false,
          .finishes_known = false,
          .traffic = traffic};
  if (to == problem_.target()) {
    best_ = next;
    bound_ns_ = std::min(bound_ns_, next.ns);
  }
  BoundBySlice(to, next.ns);
  open_.push({.estimate = estimate,
              .state = to,
              .node = index,
              .kind = OpenEntry::Kind::kReached,
              .op = op,
              .cost_ns = next.ns});
  return index;
}

void Search::BoundBySlice(const State& state, int64_t ns) {
  if (!space_.IsBeforeSlice(state)) return;
  const Traffic slice = model_.Measure(StepOp::kSlice, state, problem_.target());
  if (!model_.Fits(StepOp::kSlice, state, problem_.target(), slice)) return;
  bound_ns_ = std::min(bound_ns_, SaturatingAdd(ns, slice.est_ns));
}

int Search::TakeTo(int from, StepOp op, const State& to, const Lists& lists) {
  const Rest rest = space_.LeastRest(to, lists, ReducibleOf(to));
  const bool may_pay = MayPay(from, op, to, space_.MaxItems(lists), 0, rest.close_ns);
  return may_pay ? Take(from, op, to, rest.ns) : -1;
}

Rest Search::RestBeyondFinish(bool sliced, const View& view) {
  const int64_t least_finish = space_.least_finish_ns();
  if (space_.IsFinished(view.state)) return {least_finish, least_finish};
  // A local step, or two collectives.
  const int64_t local = space_.LeastLocalNs(view);
  const bool may_be_local =
      space_.has_casts() || space_.changes_partials() || (view.replicated != 0 && !sliced);
  if (view.reducible != 0) {
    return space_.LeastReductionRest(space_.Wanted(view.lists), space_.Across(view.lists),
                                     view.reducible, local, std::max(local, model_.CopyNs(0)));
  }
  const Rest one = space_.LeastRest(view.state, view.lists, view.reducible);
  const DimMask across = space_.Across(view);
  const Rest first = space_.Starts(1, across);
  const Rest both = space_.Starts(2, across);
  const int64_t second = SaturatingAdd(both.close_ns - first.close_ns, space_.LeastCopiedNs());
  if (may_be_local) {
    const int64_t least = std::max(local, model_.CopyNs(0));
    // Nothing is masked any more where the target is not.
    const bool may_slice = view.replicated != 0 && !sliced;
    const bool is_local = space_.has_casts() || space_.masks_target() || may_slice;
    return one + Rest{least, is_local ? least : std::max(least, second)};
  }
  return one + Rest{std::max(local, both.ns - first.ns), std::max(local, second)};
}

Rest Search::RestBehind(StepOp op, const View& view, int64_t reached_ns) {
  if (view.state == problem_.target()) return {};
  Rest least = RestBeyondFinish(op == StepOp::kSlice, view);
  LookForFinishes(view, reached_ns);
  for (const FinishStep& finish : finishes_) {
    least = {std::min(least.ns, finish.Ns()), std::min(least.close_ns, finish.Ns())};
  }
  return least;
}

// Collectives that lead to states that local steps finish.
void Search::LookForFinishes(const View& view, int64_t reached_ns) {
  const int64_t left_ns = bound_ns_ - reached_ns;
  if (finishes_of_ == view.state && left_ns <= finishes_left_ns_) return;
  finishes_of_ = view.state;
  finishes_left_ns_ = left_ns;
  finishes_.clear();
  // A move to any state but the target brings no fewer items, and a local step comes behind it.
  const bool only_target = view.reducible == 0 && !space_.masks_target() &&
                           SaturatingAdd(space_.LeastRest(view.state, view.lists, 0).ns,
                                         space_.least_finish_ns()) > left_ns;
  StepBounds& bounds = space_.bounds();
  bounds.Start(view.lists);
  for (const View& last : space_.finished()) {
    if (last.state.stage() != view.state.stage() || last.state == view.state) continue;
    if (only_target && last.state != problem_.target()) continue;
    const StepBounds::Product& product = bounds.Compare(last.lists);
    const std::optional<StepOp> op = space_.Classify(view, last, product.from, product.to);
    if (!op) continue;
    const int64_t rest = last.state == problem_.target() ? 0 : space_.least_finish_ns();
    if (IsReduction(*op)) {
      finishes_.push_back({*op, &last, product.longest, space_.least_collective_ns(), rest});
      continue;
    }
    const auto add = [&](StepOp step) {
      finishes_.push_back({step, &last, product.longest,
                           bounds.LeastMoveNs(step, view.state.stage(), product), rest});
    };
    add(*op);
    // Where nothing is packed, or nothing padded, an exchange may be cheaper.
    if (*op == StepOp::kAllGather || *op == StepOp::kPermute) add(StepOp::kExchange);
  }
}

// Prices the one that may be the cheapest, which bounds all others.
void Search::Finish(int from, const View& view) {
  if (nodes_[from].finishes_known) return;
  nodes_[from].finishes_known = true;
  LookForFinishes(view, nodes_[from].cost.ns);
  const auto end = finishes_.end();
  auto best = end;
  for (auto it = finishes_.begin(); it != end; ++it) {
    if (best != end && best->Ns() <= it->Ns()) continue;
    if (MayPay(from, it->op, it->last->state, it->items, 0, it->Ns())) best = it;
  }
  if (best == end) return;
  Take(from, best->op, best->last->state, best->rest_ns);
  for (auto it = finishes_.begin(); it != finishes_.end(); ++it) {
    if (it == best) continue;
    Offer(from, it->op, it->last->state, it->items, it->step_ns, {it->rest_ns, it->rest_ns},
          OpenEntry::Kind::kBoundedStep);
  }
}

void Search::Expand(int from, const View& view) {
  if (problem_.num_dims() > 2) space_.LookCloser();  // of two, there are few states
  space_.bounds().Start(view.lists);
  Local(from, view);
  if (!model_.HasRoomBeside(view.state)) return;  // Finish() has what is left
  if (view.state.stage() == problem_.reduce_stage()) Reduce(from, view);
  Move(from, view);
}

void Search::Local(int from, const View& view) {
  if (space_.has_casts() || space_.masks_target() || view.reducible != 0) {
    ForEachCastAndMask(problem_, view.state, rules_, [&](StepOp op, DimMask, const State& next) {
      OfferTo(from, op, next, space_.Look(next).lists, 0);
    });
  }
  // Two slices are one.
  if (view.replicated == 0 || (nodes_[from].before >= 0 && nodes_[from].op == StepOp::kSlice)) {
    return;
  }
  const int64_t least = model_.CopyNs(0);
  int64_t limit = INT64_MAX;
  if (view.reducible == 0 && !space_.masks_target()) {
    if (Left(nodes_[from].cost) < least) return;
    const int64_t start = space_.Starts(1, space_.Across(view)).close_ns;
    limit = std::max<int64_t>(MissingLimit(nodes_[from].cost, least + start), 0);
  }
  const int64_t item_bytes = problem_.item_bytes(view.state.stage());
  space_.ForEachExtension(
      view.lists, view.replicated, {.missing = limit, .moves = false},
      [&](const Lists&, DimMask left, const StepBounds::Product& product) {
        if (left == view.replicated) return;
        const State next = State::FromCode(view.partial_code | product.code, view.state.stage());
        Offer(from, StepOp::kSlice, next, product.longest,
              model_.CopyNs(SaturatingMul(product.longest, item_bytes)),
              space_.LeastRest(next, product.wanted, product.across, view.reducible));
      });
}

void Search::Reduce(int from, const View& view) {
  if (view.reducible == 0) return;
  if (rules_.single_sourced && !rules_.exact && view.replicated != 0) return;
  DimMask averaged = 0;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (Has(view.reducible, d) && view.state.op(d) == ReduceOp::kAvg) averaged |= DimMask{1} << d;
  }
  const auto without = [&](DimMask dims) {
    uint64_t code = view.partial_code;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (Has(dims, d)) code &= ~(uint64_t{255} << (8 * d));
    }
    return code;
  };
  const int64_t item_bytes = problem_.item_bytes(view.state.stage());
  const int64_t bytes = SaturatingMul(space_.MaxItems(view.lists), item_bytes);
  // An average is divided once, in the last reduction.
  const auto allows = [&](DimMask dims) {
    const bool all_at_once = rules_.at_once || (dims & averaged) != 0;
    return dims != 0 && (!all_at_once || dims == view.reducible);
  };
  for (DimMask dims = view.reducible; dims != 0; dims = (dims - 1) & view.reducible) {
    if (!allows(dims)) continue;
    const State next = space_.WithLists(without(dims), view.lists, view.state.stage());
    const int64_t n = model_.GroupSize(dims);
    const int64_t sent = MulDivCeil(bytes, 2 * (n - 1), n);
    const int64_t least = SaturatingAdd(model_.StartNs(dims), model_.TransferNs(sent));
    OfferTo(from, StepOp::kAllReduce, next, view.lists, least);
  }
  if (!rules_.scatters) return;
  space_.ForEachExtension(
      view.lists, view.reducible, {.hops = HopsLeft(nodes_[from].cost), .also = view.reducible},
      [&](const Lists&, DimMask left, const StepBounds::Product& product) {
        const DimMask dims = view.reducible & ~left;
        if (!allows(dims)) return;
        const State next = State::FromCode(without(dims) | product.code, view.state.stage());
        Offer(from, StepOp::kReduceScatter, next, product.longest,
              space_.bounds().LeastScatterNs(view.state.stage(), product),
              space_.LeastRest(next, product.wanted, product.across, view.reducible & ~dims));
      });
}

// all_gather, all_to_all, permute and exchange.
void Search::Move(int from, const View& view) {
  const PathCost cost = nodes_[from].cost;
  StepBounds& bounds = space_.bounds();
  const int64_t starts = space_.Starts(2, space_.Across(view)).close_ns;
  if (SaturatingAdd(cost.ns, starts) > bound_ns_) return;
  SearchSpace::Limits limits;
  limits.moved =
      model_.MaxTransferBytes(Left(cost) - starts - space_.LeastReductionNs(view.reducible)) /
      problem_.item_bytes(view.state.stage());
  if (space_.counts_missing(view.reducible)) {
    limits.missing = MissingLimit(cost, starts) - space_.Added(view.reducible);
    limits.together = limits.missing;
  }
  limits.hops = HopsLeft(cost);
  limits.also = view.reducible;
  // Whether all that an all_to_all leads to may be before a step to the target.
  const bool meets_target = MeetsTarget(view) && view.cut == space_.target().cut;
  const auto offer = [&](StepOp op, const Lists& lists, const StepBounds::Product& product) {
    if ((product.from | product.to) == 0) return;
    const int64_t missing = space_.Missing(product.wanted, view.reducible);
    const int64_t moved = bounds.Moved(product);
    if (moved > limits.moved || SaturatingAdd(missing, moved) > limits.together) return;
    const State next = State::FromCode(view.partial_code | product.code, view.state.stage());
    const Rest rest = space_.LeastRest(next, product.wanted, product.across, view.reducible);
    const int64_t start = model_.StartNs(product.from | product.to);
    if (SaturatingAdd(SaturatingAdd(cost.ns, start), rest.close_ns) > bound_ns_) return;
    const int64_t least = bounds.LeastMoveNs(op, view.state.stage(), product);
    if (SaturatingAdd(SaturatingAdd(cost.ns, least), rest.close_ns) > bound_ns_) return;
    if (op == StepOp::kAllToAll && space_.IsPermutation(view.lists, lists)) {
      if (!meets_target) return;
      op = StepOp::kExchange;
    }
    Offer(from, op, next, product.longest, least, rest);
  };
  Exchange(view, limits, offer);
  space_.ForEachPrefix(view.lists, [&](const Lists& lists) {
    offer(StepOp::kAllGather, lists, bounds.Compare(lists));
  });
  limits.places_all = true;
  space_.ForEachExtension({}, view.cut, limits,
                          [&](const Lists& lists, DimMask, const StepBounds::Product& product) {
                            offer(StepOp::kAllToAll, lists, product);
                          });
  // Permutations: as many cuts of the same sizes, by these dims or replicated ones.
  limits = {.missing = limits.missing, .hops = limits.hops, .also = limits.also};
  limits.alike = &view.lists;
  space_.ForEachExtension({}, view.cut | view.replicated, limits,
                          [&](const Lists& lists, DimMask, const StepBounds::Product& product) {
                            offer(StepOp::kPermute, lists, product);
                          });
}

// To the target and the states before one step to it. An all_to_all costs what an exchange does.
template <typename Fn>
void Search::Exchange(const View& view, const SearchSpace::Limits& limits, const Fn& offer) {
  StepBounds& bounds = space_.bounds();
  const View& target = space_.target();
  const auto offer_exchange = [&](const Lists& lists, const StepBounds::Product& product) {
    if (product.from == product.to && !space_.IsPermutation(view.lists, lists)) return;
    offer(StepOp::kExchange, lists, product);
  };
  const auto offer_extension = [&](const Lists& lists, DimMask,
                                   const StepBounds::Product& product) {
    offer_exchange(lists, product);
  };
  if (MeetsTarget(view)) {
    // Before an all_gather, or the target.
    space_.ForEachExtension(target.lists, target.replicated,
                            {.missing = limits.missing, .hops = limits.hops, .also = limits.also},
                            offer_extension);
    // Before a slice, an all_to_all or a permutation.
    space_.ForEachPrefix(target.lists, [&](const Lists& lists) {
      if (lists != target.lists) offer_exchange(lists, bounds.Compare(lists));
    });
    if (view.cut != target.cut) {
      SearchSpace::Limits all = limits;
      all.places_all = true;
      space_.ForEachExtension({}, target.cut, all, offer_extension);
    }
  }
  if (!space_.changes_partials()) return;
  if (!found_near_) {
    found_near_ = true;
    for (const State& state : NearTargetInPartials(problem_, /*towards_target=*/false)) {
      near_in_partials_.push_back(space_.Look(state));
    }
  }
  for (const View& near : near_in_partials_) {
    if (near.partial_code != view.partial_code) continue;
    offer_exchange(near.lists, bounds.Compare(near.lists));
  }
}

// A path to the target, which bounds the rest: what is replicated is sliced and all is reduced at
// once, towards the target as far as that goes.
void Search::Dive(int from) {
  View view = space_.Look(nodes_[from].state);
  while (view.state.stage() < problem_.reduce_stage()) {
    from = TakeTo(from, StepOp::kCast, view.state.AtStage(view.state.stage() + 1), view.lists);
    if (from < 0) return;
    view = space_.Look(nodes_[from].state);
  }
  if (view.replicated != 0 && rules_.single_sourced && !rules_.exact && space_.num_lists() > 0) {
    Finish(from, view);
    const Lists lists = space_.CutTowardsTarget(view.lists, view.replicated);
    const State next = space_.WithLists(view.partial_code, lists, view.state.stage());
    from = TakeTo(from, StepOp::kSlice, next, lists);
    if (from < 0) return;
    view = space_.Look(next);
  }
  Finish(from, view);
  if (view.reducible == 0 || space_.num_lists() == 0 || !rules_.scatters) return;
  const Lists lists = space_.CutTowardsTarget(view.lists, view.reducible);
  const State next =
      space_.WithLists(space_.target().partial_code & view.partial_code, lists, view.state.stage());
  from = TakeTo(from, StepOp::kReduceScatter, next, lists);
  if (from >= 0) Finish(from, space_.Look(next));
}

// False at the target.
bool Search::Advance(OpenEntry entry) {
  using Kind = OpenEntry::Kind;
  SearchNode& node = nodes_[entry.node];
  if (entry.kind == Kind::kStep || entry.kind == Kind::kBoundedStep) {
    const int known = nodes_.Find(entry.state);
    const int64_t reached = SaturatingAdd(entry.cost_ns, entry.least_ns);
    if (known >= 0 && nodes_[known].cost.ns < reached) return true;
    if (entry.kind == Kind::kStep) {
      const Rest rest = RestBehind(entry.op, space_.Look(entry.state), reached);
      if (SaturatingAdd(reached, rest.close_ns) > bound_ns_) return true;
      if (rest.ns > entry.rest_ns) {
        entry.estimate.ns = SaturatingAdd(entry.estimate.ns, rest.ns - entry.rest_ns);
        entry.rest_ns = rest.ns;
        entry.kind = Kind::kBoundedStep;
        if (entry.estimate.ns <= bound_ns_) open_.push(entry);
        return true;
      }
    }
    Take(entry.node, entry.op, entry.state, entry.rest_ns);
    return true;
  }
  if (node.done || entry.state == problem_.target()) return !(entry.state == problem_.target());
  const View view = space_.Look(entry.state);
  if (entry.kind == Kind::kReached) {
    const bool sliced = node.before >= 0 && node.op == StepOp::kSlice;
    const PathCost cost = node.cost;
    Finish(entry.node, view);
    entry.kind = Kind::kFinished;
    const Rest rest = RestBeyondFinish(sliced, view);
    if (SaturatingAdd(cost.ns, rest.close_ns) > bound_ns_) return true;
    entry.estimate.ns = std::max(entry.estimate.ns, SaturatingAdd(cost.ns, rest.ns));
    if (entry.estimate.ns <= bound_ns_) open_.push(entry);
    return true;
  }
  node.done = true;
  Expand(entry.node, view);
  return true;
}

void Search::Start() {
  bool is_new = false;
  const int source = nodes_.FindOrAdd(problem_.source(), &is_new);
  open_.push({.estimate = {},
              .state = problem_.source(),
              .node = source,
              .kind = OpenEntry::Kind::kReached});
  BoundBySlice(problem_.source(), 0);
  if (space_.Look(problem_.source()).reducible != 0 && !space_.masks_target()) Dive(source);
}

bool Search::Continue(size_t many) {
  while (!open_.empty()) {
    const OpenEntry entry = open_.top();
    if ((best_ && *best_ < entry.estimate) || entry.estimate.ns > bound_ns_) break;
    if (open_.size() > many && bound_ns_ - entry.estimate.ns > bound_ns_ / kClose) return false;
    open_.pop();
    if (nodes_[entry.node].cost.ns != entry.cost_ns) continue;  // a cheaper way was found
    if (!Advance(entry)) break;
  }
  return true;
}

std::optional<Path> Search::Run() {
  Start();
  if (!Continue(kMany)) {
    // Most of these steps may pay only because the best path so far is far from the best of all.
    // One over cuts that the target has is as a rule near it: it is looked for apart, and bounds
    // what waits here.
    SearchNodes nodes = std::move(nodes_);
    OpenQueue open = std::move(open_);
    nodes_ = SearchNodes();
    open_ = OpenQueue();
    std::optional<PathCost> best = std::exchange(best_, std::nullopt);
    space_.SetTowardsTarget(true);
    Start();
    Continue(SIZE_MAX);
    space_.SetTowardsTarget(false);
    nodes_ = std::move(nodes);
    open_ = std::move(open);
    best_ = best;
    Continue(SIZE_MAX);
  }
  if (!best_) return std::nullopt;
  Path path;
  const int source = nodes_.Find(problem_.source());
  for (int i = nodes_.Find(problem_.target()); i != source; i = nodes_[i].before) {
    path.moves.push_back({nodes_[i].op, nodes_[i].state, nodes_[i].traffic});
  }
  std::reverse(path.moves.begin(), path.moves.end());
  return path;
}

}  // namespace

PathCost CostOf(const Problem& problem, const CostModel& model, const Path& path) {
  PathCost cost;
  State before = problem.source();
  for (const Move& move : path.moves) {
    cost = cost + CostOf(model.Measure(move.op, before, move.after));
    before = move.after;
  }
  return cost;
}

std::optional<Path> FindCheapest(const Problem& problem, const CostModel& model,
                                 const TransitionRules& rules, int64_t bound_ns) {
  if (problem.source() == problem.target()) return Path{};
  return Search(problem, model, rules, bound_ns).Run();
}

DimMask LeastAcross(const Problem& problem, const CostModel& model, const TransitionRules& rules) {
  SearchSpace space(problem, model, rules);
  return space.Across(space.Look(problem.source()));
}

}  // namespace meshift
