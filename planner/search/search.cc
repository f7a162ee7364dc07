#include "planner/search/search.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/checked_math.h"
#include "planner/search/search_run.h"

namespace meshift {
namespace {

// States that are gone on from before it is looked at what domains lack: most searches end before.
constexpr int kFew = 2;
// So many steps wait for their turn before a path is put together that bounds them, and before one
// is looked for; the part of the bound that is too little to matter.
constexpr size_t kSome = 64;
constexpr size_t kMany = 256;
constexpr int64_t kClose = 64;
// What a step that waits, and one that is priced, count for beside a list that is looked at, by
// the time that they take; and as much of it as is done before all states are listed
// (last_steps.h).
constexpr int64_t kOfferWork = 32;
constexpr int64_t kPriceWork = 2048;
// What a step that is put among those that wait counts for besides: its memory.
constexpr int64_t kWaitWork = 64;
constexpr int64_t kLong = int64_t{1} << 22;
// By what part of its time a path must be shorter than those that are known, where the search takes
// long (Settle); at first.
constexpr int64_t kNearly = 64;

}  // namespace

bool SearchRun::MayPay(int from, StepOp op, const State& to, int64_t items, int64_t least_ns,
                       int64_t rest_ns) {
  const int64_t reached = SaturatingAdd(nodes_[from].cost.ns, least_ns);
  if (SaturatingAdd(reached, rest_ns) > bound_ns_) return false;
  if (!space_.Admits(to, items)) return false;
  if (op == StepOp::kExchange && model_.IsChosenGather(nodes_[from].state, to)) return false;
  const int known = nodes_.Find(to);
  if (known >= 0 && nodes_[known].cost.ns < reached) return false;
  return model_.Allows(op, nodes_[from].state, to) && model_.HasRoom(op, nodes_[from].state, to);
}

void SearchRun::Offer(int from, StepOp op, const State& to, int64_t items, int64_t least_ns,
                      const Rest& rest, OpenEntry::Kind kind) {
  work_ += kOfferWork;
  if (!problem_.Charge(kOfferWork)) return;
  if (!MayPay(from, op, to, items, least_ns, rest.close_ns)) return;
  const PathCost cost = nodes_[from].cost;
  const int64_t reached = SaturatingAdd(cost.ns, least_ns);
  if (SaturatingAdd(reached, LeastAhead(to, reached)) > bound_ns_) return;
  const int64_t ns = SaturatingAdd(reached, rest.ns);
  if (!problem_.Charge(kWaitWork)) return;
  open_.push({.estimate = {ns, cost.bytes, cost.steps + 1},
              .state = to,
              .node = from,
              .kind = kind,
              .op = op,
              .least_ns = least_ns,
              .rest_ns = rest.ns,
              .cost_ns = cost.ns});
}

void SearchRun::OfferTo(int from, StepOp op, const State& to, const Lists& lists,
                        int64_t least_ns) {
  Offer(from, op, to, space_.MaxItems(lists), least_ns,
        space_.LeastRest(to, lists, ReducibleOf(to)));
}

int SearchRun::Take(int from, StepOp op, const State& to, int64_t rest_ns) {
  const PathCost cost = nodes_[from].cost;
  if (const int known = nodes_.Find(to); known >= 0) {
    const SearchNode& node = nodes_[known];
    const bool is_same = node.before == from && node.op == op;
    if (is_same && node.cost == cost + CostOf(node.traffic)) return -1;
  }
  work_ += kPriceWork;
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
    bound_ns_ = std::min(bound_ns_, next.ns - next.ns / part_);
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

void SearchRun::BoundBySlice(const State& state, int64_t ns) {
  if (!space_.IsBeforeSlice(state)) return;
  const Traffic slice = model_.Measure(StepOp::kSlice, state, problem_.target());
  if (!model_.Fits(StepOp::kSlice, state, problem_.target(), slice)) return;
  bound_ns_ = std::min(bound_ns_, SaturatingAdd(ns, slice.est_ns));
}

int SearchRun::TakeTo(int from, StepOp op, const State& to, const Lists& lists) {
  const Rest rest = space_.LeastRest(to, lists, ReducibleOf(to));
  const bool may_pay = MayPay(from, op, to, space_.MaxItems(lists), 0, rest.close_ns);
  return may_pay ? Take(from, op, to, rest.ns) : -1;
}

int64_t SearchRun::LeastAcrossDomains(const State& state) {
  const int64_t ns = domains_->TransferNs(state);
  if (ns == 0) return 0;
  return SaturatingAdd(space_.Starts(1, space_.Across(space_.Look(state))).close_ns, ns);
}

Rest SearchRun::RestBeyondFinish(bool sliced, const View& view) {
  const int64_t least_finish = space_.least_finish_ns();
  if (space_.IsFinished(view.state)) return {least_finish, least_finish};
  // A local step, or two collectives.
  const int64_t local = space_.LeastLocalNs(view);
  const bool may_be_local =
      space_.has_casts() || space_.changes_partials() || (view.replicated != 0 && !sliced);
  if (view.reducible != 0) {
    const int64_t other = std::max(local, model_.CopyNs(0));
    Rest rest = space_.LeastReductionRest(space_.Wanted(view.lists), space_.Across(view.lists),
                                          view.reducible, local, other);
    if (domains_) {
      rest.close_ns = std::max(rest.close_ns, SaturatingAdd(LeastAcrossDomains(view.state), other));
    }
    return rest;
  }
  Rest one = space_.LeastRest(view.state, view.lists, view.reducible);
  if (domains_) one.close_ns = std::max(one.close_ns, LeastAcrossDomains(view.state));
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

Rest SearchRun::RestBehind(StepOp op, const View& view, int64_t reached_ns) {
  if (view.state == problem_.target()) return {};
  Rest least = RestBeyondFinish(op == StepOp::kSlice, view);
  for (const FinishStep& finish : LookForFinishes(view, reached_ns)) {
    least = {std::min(least.ns, finish.Ns()), std::min(least.close_ns, finish.Ns())};
  }
  return least;
}

// Collectives that lead to states that local steps finish.
const SearchRun::FinishSteps& SearchRun::LookForFinishes(const View& view, int64_t reached_ns) {
  const int64_t left_ns = bound_ns_ - reached_ns;
  for (const Finishes& known : finishes_) {
    if (known.of == view.state && left_ns <= known.left_ns) return known.steps;
  }
  Finishes& found = finishes_[next_finishes_];
  next_finishes_ = (next_finishes_ + 1) % kRemembered;
  found.of = view.state;
  found.left_ns = left_ns;
  FinishSteps& finishes = found.steps;
  finishes.clear();
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
      finishes.push_back({*op, &last, product.longest, space_.least_collective_ns(), rest});
      continue;
    }
    const auto add = [&](StepOp step) {
      finishes.push_back({step, &last, product.longest,
                          bounds.LeastMoveNs(step, view.state.stage(), product), rest});
    };
    add(*op);
    // Where nothing is packed, or nothing padded, an exchange may be cheaper.
    if (*op == StepOp::kAllGather || *op == StepOp::kPermute) add(StepOp::kExchange);
  }
  return finishes;
}

// Prices the one that may be the cheapest, which bounds all others.
void SearchRun::Finish(int from, const View& view) {
  if (nodes_[from].finishes_known) return;
  nodes_[from].finishes_known = true;
  const FinishSteps& finishes = LookForFinishes(view, nodes_[from].cost.ns);
  const auto end = finishes.end();
  auto best = end;
  for (auto it = finishes.begin(); it != end; ++it) {
    if (best != end && best->Ns() <= it->Ns()) continue;
    if (MayPay(from, it->op, it->last->state, it->items, 0, it->Ns())) best = it;
  }
  if (best == end) return;
  Take(from, best->op, best->last->state, best->rest_ns);
  for (auto it = finishes.begin(); it != end; ++it) {
    if (it == best) continue;
    Offer(from, it->op, it->last->state, it->items, it->step_ns, {it->rest_ns, it->rest_ns},
          OpenEntry::Kind::kBoundedStep);
  }
}

// A path to the target, which bounds the rest: what is replicated is sliced and all is reduced at
// once, towards the target as far as that goes.
void SearchRun::Dive(int from) {
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
bool SearchRun::Advance(OpenEntry entry) {
  using Kind = OpenEntry::Kind;
  SearchNode& node = nodes_[entry.node];
  if (entry.kind == Kind::kStep || entry.kind == Kind::kBoundedStep) {
    const int known = nodes_.Find(entry.state);
    const int64_t reached = SaturatingAdd(entry.cost_ns, entry.least_ns);
    if (known >= 0 && nodes_[known].cost.ns < reached) return true;
    if (last_steps_ && SaturatingAdd(reached, last_steps_->LeastNs(entry.state)) > bound_ns_) {
      return true;
    }
    if (domains_ && SaturatingAdd(reached, LeastAcrossDomains(entry.state)) > bound_ns_) {
      return true;
    }
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
    if (ahead_ && ahead_->all_even()) BoundAhead(entry.state, cost.ns);
    if (SaturatingAdd(cost.ns, LeastAhead(entry.state, cost.ns)) > bound_ns_) return true;
    const Rest rest = RestBeyondFinish(sliced, view);
    if (SaturatingAdd(cost.ns, rest.close_ns) > bound_ns_) return true;
    entry.estimate.ns = std::max(entry.estimate.ns, SaturatingAdd(cost.ns, rest.ns));
    if (entry.estimate.ns <= bound_ns_) open_.push(entry);
    return true;
  }
  if (!looked_ahead_) LookAhead();
  if (++gone_on_ == kFew && DomainBounds::Pays(problem_, model_, space_)) {
    domains_ = std::make_unique<DomainBounds>(problem_, model_, space_);
    if (!domains_->MaySayMore()) domains_ = nullptr;
  }
  const int64_t left_ns = bound_ns_ - entry.cost_ns;
  if (ahead_ && !ahead_->MayGoOn(view, left_ns)) return true;
  if (last_steps_ && last_steps_->LeastNs(entry.state) > left_ns) return true;
  node.done = true;
  if (Work() > kLong && !looked_at_last_steps_) ListLastSteps();
  Expand(entry.node, view);
  return true;
}

void SearchRun::ListLastSteps() {
  looked_at_last_steps_ = true;
  if (!LastSteps::Knows(problem_, space_)) return;
  const bool towards_target = space_.towards_target();
  space_.SetTowardsTarget(false);
  last_steps_ = std::make_unique<LastSteps>(problem_, model_, space_);
  space_.SetTowardsTarget(towards_target);
}

void SearchRun::Start() {
  bool is_new = false;
  const int source = nodes_.FindOrAdd(problem_.source(), &is_new);
  open_.push({.estimate = {},
              .state = problem_.source(),
              .node = source,
              .kind = OpenEntry::Kind::kReached});
  BoundBySlice(problem_.source(), 0);
  if (space_.Look(problem_.source()).reducible != 0 && !space_.masks_target()) Dive(source);
}

void SearchRun::Settle() {
  patience_ += kPatience / 2;
  part_ = part_ == INT64_MAX ? kNearly : std::max<int64_t>(part_ / 2, 1);
  int64_t known_ns = best_ ? best_->ns : INT64_MAX;
  if (towards_target_) known_ns = std::min(known_ns, towards_target_->cost.ns);
  if (known_ns < INT64_MAX) bound_ns_ = std::min(bound_ns_, known_ns - known_ns / part_);
}

bool SearchRun::Continue(size_t many) {
  while (!open_.empty() && problem_.Charge(1)) {
    if (Work() > patience_) Settle();
    const OpenEntry entry = open_.top();
    if ((best_ && *best_ < entry.estimate) || entry.estimate.ns > bound_ns_) break;
    if (open_.size() > many && bound_ns_ - entry.estimate.ns > bound_ns_ / kClose) return false;
    open_.pop();
    if (nodes_[entry.node].cost.ns != entry.cost_ns) continue;  // a cheaper way was found
    if (!Advance(entry)) break;
  }
  return true;
}

std::optional<Path> SearchRun::Run() {
  Start();
  if (!Continue(kSome)) BoundByDive();
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
    if (best_) towards_target_ = {*best_, BestPath()};
    space_.SetTowardsTarget(false);
    nodes_ = std::move(nodes);
    open_ = std::move(open);
    best_ = best;
    Continue(SIZE_MAX);
  }
  if (towards_target_ && (!best_ || towards_target_->cost < *best_)) {
    return std::move(towards_target_->path);  // the search has settled for it
  }
  if (!best_) return std::nullopt;
  return BestPath();
}

Path SearchRun::BestPath() {
  Path path;
  const int source = nodes_.Find(problem_.source());
  for (int i = nodes_.Find(problem_.target()); i != source; i = nodes_[i].before) {
    path.moves.push_back({nodes_[i].op, nodes_[i].state, nodes_[i].traffic});
  }
  std::reverse(path.moves.begin(), path.moves.end());
  return path;
}

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
                                 const TransitionRules& rules, int64_t bound_ns, int64_t* work) {
  if (problem.source() == problem.target()) return Path{};
  SearchRun run(problem, model, rules, bound_ns);
  std::optional<Path> path = run.Run();
  if (work != nullptr) *work += run.Work();
  return path;
}

DimMask LeastAcross(const Problem& problem, const CostModel& model, const TransitionRules& rules) {
  SearchSpace space(problem, model, rules);
  return space.Across(space.Look(problem.source()));
}

}  // namespace meshift
