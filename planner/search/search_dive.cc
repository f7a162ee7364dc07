// Plans that bound a search: found in no more time than it takes to go on from a state or two, and
// as a rule within a few percent of the best, so that most of what waits is given up. Nothing else
// is made of them: which of equal plans is found stays as it is.
//
// Where many steps wait (BoundByDive): what is replicated is sliced; what is partial is scattered,
// first where that needs no packing; a move leads to the cuts of the target, with the mesh dims
// that it replicates behind them along the outermost tensor dim, where pieces need no packing; a
// gather makes the target of that. On large mesh dims (BoundFirst): the source is sliced and
// reduced in two ways, and goes on by the step and the gather that look best from there
// (search_ahead.h).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/checked_math.h"
#include "planner/search/search_run.h"

namespace meshift {

std::optional<SearchRun::Reached> SearchRun::Behind(const Reached& before, StepOp op,
                                                    uint64_t partial_code, const Lists& lists) {
  const State& from = before.view.state;
  const State to = space_.WithLists(partial_code, lists, from.stage());
  if (!space_.Admits(to, space_.MaxItems(lists)) || !model_.Allows(op, from, to) ||
      !model_.HasRoom(op, from, to) ||
      (op == StepOp::kExchange && model_.IsChosenGather(from, to))) {
    return std::nullopt;
  }
  const Traffic traffic = model_.Measure(op, from, to);
  const int64_t ns = SaturatingAdd(before.ns, traffic.est_ns);
  if (ns >= bound_ns_ || !model_.Fits(op, from, to, traffic)) return std::nullopt;
  return Reached{space_.Look(to), ns};
}

// The mesh dims that cut the outermost tensor dim evenly, or, if none does, all; the rest along
// whichever tensor dim is best.
std::optional<SearchRun::Reached> SearchRun::BehindScatter(const Reached& before) {
  const View& view = before.view;
  const int64_t longest = space_.Longest(view.lists, space_.outermost());
  DimMask dims = 0;
  bool all_at_once = rules_.at_once;
  for (DimMask some = view.reducible; some != 0; some = (some - 1) & view.reducible) {
    const int64_t n = model_.GroupSize(some);
    if (longest % n == 0 && n > model_.GroupSize(dims)) dims = some;
  }
  for (int d = 0; d < problem_.num_dims(); ++d) {
    all_at_once |= HasDim(view.reducible, d) && view.state.op(d) == ReduceOp::kAvg;
  }
  if (dims == 0 || all_at_once) dims = view.reducible;
  uint64_t partial_code = view.partial_code;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (HasDim(dims, d)) partial_code &= ~(uint64_t{255} << (8 * d));
  }
  std::optional<Reached> best;
  for (int i = 0; i < space_.num_lists(); ++i) {
    const std::optional<Reached> next = Behind(before, StepOp::kReduceScatter, partial_code,
                                               space_.CutTowardsTarget(view.lists, dims, i));
    if (next && (!best || next->ns < best->ns)) best = next;
  }
  return best;
}

std::optional<SearchRun::Reached> SearchRun::BehindMove(const Reached& before, const Lists& lists) {
  const View& view = before.view;
  if (view.lists == lists) return before;
  space_.bounds().Start(view.lists);
  const StepBounds::Product& product = space_.bounds().Compare(lists);
  const View next = space_.Look(space_.WithLists(view.partial_code, lists, view.state.stage()));
  const std::optional<StepOp> op = space_.Classify(view, next, product.from, product.to);
  if (!op) return std::nullopt;
  return Behind(before, *op, view.partial_code, lists);
}

void SearchRun::BoundByGather(const Reached& before) {
  const View& target = space_.target();
  const std::optional<Reached> spread = BehindMove(
      before, space_.CutTowardsTarget(target.lists, target.replicated, space_.outermost()));
  if (!spread) return;
  if (const auto reached = BehindMove(*spread, target.lists)) bound_ns_ = reached->ns;
  if (spread->view.cut == target.cut) return;
  // Where a gather packs or pads, an exchange may be cheaper.
  const auto reached = Behind(*spread, StepOp::kExchange, target.partial_code, target.lists);
  if (reached) bound_ns_ = reached->ns;
}

void SearchRun::BoundByDive() {
  if (space_.has_casts() || space_.masks_target() || space_.num_lists() == 0) return;
  Reached at{space_.Look(problem_.source())};
  if (at.view.replicated != 0) {
    if (at.view.reducible == 0) BoundByGather(at);
    const std::optional<Reached> sliced =
        Behind(at, StepOp::kSlice, at.view.partial_code,
               space_.CutTowardsTarget(at.view.lists, at.view.replicated, space_.outermost()));
    if (!sliced) return;
    at = *sliced;
  }
  while (at.view.reducible != 0) {
    const std::optional<Reached> scattered =
        rules_.scatters ? BehindScatter(at) : std::optional<Reached>();
    if (!scattered) return;
    at = *scattered;
  }
  BoundByGather(at);
}

void SearchRun::BoundAhead(const State& state, int64_t ns) {
  const SearchAhead::Way way = ahead_->Of(state, bound_ns_ - ns).way;
  if (way.last == nullptr || SaturatingAdd(ns, way.ns) >= bound_ns_) return;
  State before = state;
  const auto add = [&](StepOp op, const State& after) {
    if (!model_.Allows(op, before, after)) return false;
    const Traffic traffic = model_.Measure(op, before, after);
    ns = SaturatingAdd(ns, traffic.est_ns);
    if (!model_.Fits(op, before, after, traffic)) return false;
    before = after;
    return true;
  };
  if (!add(way.op, (way.middle != nullptr ? way.middle : way.last)->state)) return;
  if (way.middle != nullptr && !add(StepOp::kAllGather, way.last->state)) return;
  if (!(before == problem_.target()) && !add(StepOp::kSlice, problem_.target())) return;
  bound_ns_ = std::min(bound_ns_, ns);
}

void SearchRun::LookAhead() {
  looked_ahead_ = true;
  if (!SearchAhead::Pays(problem_, model_, space_)) return;
  ahead_ = std::make_unique<SearchAhead>(problem_, model_, space_, bound_ns_);
  if (ahead_->all_even()) BoundFirst({space_.Look(problem_.source())});
}

void SearchRun::BoundFirst(const Reached& before) {
  const View& view = before.view;
  if (view.reducible == 0) BoundAhead(view.state, before.ns);
  const bool slices =
      view.replicated != 0 && (view.reducible == 0 ? view.state == problem_.source()
                                                   : rules_.single_sourced && !rules_.exact);
  if (!slices && view.reducible == 0) return;
  const auto go_on = [&](StepOp op, uint64_t partial_code, const Lists& lists) {
    if (const auto next = Behind(before, op, partial_code, lists)) BoundFirst(*next);
  };
  const uint64_t partial_code =
      slices ? view.partial_code : space_.target().partial_code & view.partial_code;
  const DimMask dims = slices ? view.replicated : view.reducible;
  if (!slices) go_on(StepOp::kAllReduce, partial_code, view.lists);
  if (!slices && !rules_.scatters) return;
  const StepOp op = slices ? StepOp::kSlice : StepOp::kReduceScatter;
  const Lists towards = space_.CutTowardsTarget(view.lists, dims);
  const Lists outermost = space_.CutOutermost(view.lists, dims);
  go_on(op, partial_code, towards);
  if (outermost != towards) go_on(op, partial_code, outermost);
}

}  // namespace meshift
