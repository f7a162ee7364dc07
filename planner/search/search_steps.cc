// The steps that the search goes on by from a state.
#include "base/checked_math.h"
#include "planner/search/search_run.h"

namespace meshift {

void SearchRun::Expand(int from, const View& view) {
  if (problem_.num_dims() > 2) space_.LookCloser();  // of two, there are few states
  space_.bounds().Start(view.lists);
  Local(from, view);
  if (!model_.HasRoomBeside(view.state)) return;  // Finish() has what is left
  if (view.state.stage() == problem_.reduce_stage()) Reduce(from, view);
  Move(from, view);
}

void SearchRun::Local(int from, const View& view) {
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

void SearchRun::Reduce(int from, const View& view) {
  if (view.reducible == 0) return;
  if (rules_.single_sourced && !rules_.exact && view.replicated != 0) return;
  DimMask averaged = 0;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (HasDim(view.reducible, d) && view.state.op(d) == ReduceOp::kAvg)
      averaged |= DimMask{1} << d;
  }
  const auto without = [&](DimMask dims) {
    uint64_t code = view.partial_code;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (HasDim(dims, d)) code &= ~(uint64_t{255} << (8 * d));
    }
    return code;
  };
  const int64_t item_bytes = problem_.item_bytes(view.state.stage());
  const int64_t bytes = SaturatingMul(space_.MaxItems(view.lists), item_bytes);
  const auto allows = [&](DimMask dims) {
    const DimMask must = dims & view.reducible;
    if (must == 0 || (rules_.at_once && dims != view.reducible)) return false;
    // An average is divided once, in the last reduction.
    return (dims & averaged) == 0 || must == view.reducible;
  };
  const DimMask all = view.reducible | view.along;
  for (DimMask dims = all; dims != 0; dims = (dims - 1) & all) {
    if (!allows(dims)) continue;
    const State next = space_.WithLists(without(dims), view.lists, view.state.stage());
    const int64_t n = model_.GroupSize(dims);
    const int64_t sent = MulDivCeil(bytes, 2 * (n - 1), n);
    const int64_t least = SaturatingAdd(model_.StartNs(dims), model_.TransferNs(sent));
    OfferTo(from, StepOp::kAllReduce, next, view.lists, least);
  }
  if (!rules_.scatters) return;
  space_.ForEachExtension(
      view.lists, all, {.hops = HopsLeft(nodes_[from].cost), .also = view.reducible},
      [&](const Lists&, DimMask left, const StepBounds::Product& product) {
        const DimMask dims = all & ~left;
        if (!allows(dims)) return;
        const State next = State::FromCode(without(dims) | product.code, view.state.stage());
        Offer(from, StepOp::kReduceScatter, next, product.longest,
              space_.bounds().LeastScatterNs(view.state.stage(), product),
              space_.LeastRest(next, product.wanted, product.across, view.reducible & ~dims));
      });
}

// As Move(), over the states that there are.
void SearchRun::MoveAhead(int from, const View& view) {
  const int64_t cost_ns = nodes_[from].cost.ns;
  const int64_t reached_ns = SaturatingAdd(cost_ns, space_.least_collective_ns());
  const View& target = space_.target();
  StepBounds& bounds = space_.bounds();
  const bool has_cuts = view.cut == target.cut;
  const int64_t item_bytes = problem_.item_bytes(view.state.stage());
  for (SearchAhead::Spot& spot : ahead_->spots()) {
    const int64_t rest_ns = std::max(spot.rest_ns, spot.least_ns);
    if (SaturatingAdd(reached_ns, rest_ns) > bound_ns_ || spot.state == view.state) continue;
    // A box has no more in common with one before than lists that nest leave, and no message brings
    // more; but a gather takes no messages.
    const int64_t common = space_.MostCommon(view.lists, spot.lists);
    const int64_t gotten = spot.items - common;
    int64_t gotten_ns = model_.TransferNs(SaturatingMul(gotten, item_bytes));
    if (gotten > 0 && (spot.cut == view.cut || (spot.cut & ~view.cut) != 0)) {
      const int64_t messages = common > 0 ? CeilDiv(gotten, common) : 0;
      gotten_ns = SaturatingAdd(gotten_ns, SaturatingMul(messages, model_.MessageNs()));
    }
    if (SaturatingAdd(SaturatingAdd(reached_ns, gotten_ns), rest_ns) > bound_ns_) continue;
    const bool is_near =
        space_.exchanges_anywhere() || spot.is_near || (!has_cuts && spot.cut == target.cut);
    const StepBounds::Product& product = bounds.Compare(spot.lists);
    if (product.from == 0) continue;  // a slice
    const bool is_permutation = space_.IsPermutation(view.lists, spot.lists);
    const bool trades = spot.cut == view.cut && (!is_permutation || has_cuts);
    const auto offer = [&](StepOp op) {
      const int64_t least = bounds.LeastMoveNs(op, view.state.stage(), product);
      const int64_t next_ns = SaturatingAdd(cost_ns, least);
      if (SaturatingAdd(next_ns, std::max(rest_ns, spot.least_ns)) > bound_ns_) return;
      const Rest rest = space_.LeastRest(spot.state, product.wanted, product.across, 0);
      if (SaturatingAdd(next_ns, rest.close_ns) > bound_ns_) return;
      if (spot.least_ns < 0) spot.least_ns = LeastAhead(spot.state, next_ns);
      if (SaturatingAdd(next_ns, spot.least_ns) > bound_ns_) return;
      Offer(from, op, spot.state, spot.items, least, rest);
    };
    if (product.to == 0) offer(StepOp::kAllGather);
    const bool leads = is_near && (product.from != product.to || is_permutation);
    if (leads || (trades && is_permutation) ||
        (product.to == 0 && space_.Pads(view.state, spot.state, product))) {
      offer(StepOp::kExchange);
    }
    if (trades && !is_permutation) offer(StepOp::kAllToAll);
    if (is_permutation) offer(StepOp::kPermute);
  }
}

// all_gather, all_to_all, permute and exchange.
void SearchRun::Move(int from, const View& view) {
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
  if (LooksAhead(view)) return MoveAhead(from, view);
  // Whether all that an all_to_all leads to may be before a step to the target.
  const bool anywhere = space_.exchanges_anywhere();
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
      if (!anywhere && !meets_target) return;
      op = StepOp::kExchange;
    }
    Offer(from, op, next, product.longest, least, rest);
  };
  if (!anywhere) ExchangeNearTarget(view, limits, offer);
  space_.ForEachPrefix(view.lists, [&](const Lists& lists) {
    const StepBounds::Product& product = bounds.Compare(lists);
    offer(StepOp::kAllGather, lists, product);
    const State next = State::FromCode(view.partial_code | product.code, view.state.stage());
    if (!anywhere && space_.Pads(view.state, next, product)) {
      offer(StepOp::kExchange, lists, product);
    }
  });
  limits.places_all = !anywhere;
  limits.copied = model_.CopyParts(SearchSpace::kCopyParts);
  space_.ForEachExtension(
      {}, anywhere ? view.cut | view.replicated : view.cut, limits,
      [&](const Lists& lists, DimMask, const StepBounds::Product& product) {
        if (product.from == 0) return;  // a slice, or nothing
        offer(product.from == product.to ? StepOp::kAllToAll : StepOp::kExchange, lists, product);
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
void SearchRun::ExchangeNearTarget(const View& view, const SearchSpace::Limits& limits,
                                   const Fn& offer) {
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

}  // namespace meshift
