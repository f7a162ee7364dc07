#include "planner/search/search_ahead.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>

#include "base/checked_math.h"
#include "planner/search/cut_table.h"

namespace meshift {
namespace {

// States that are listed at most.
constexpr size_t kMost = 128;
// As many as a search looks at as a rule.
constexpr size_t kSomeRests = 48;
constexpr size_t kSomeGoals = 16;

}  // namespace

bool SearchAhead::Pays(const Problem& problem, const CostModel& model, const SearchSpace& space) {
  if (problem.num_dims() > 4 || problem.num_stages() > 1 || problem.HasRagged()) return false;
  if (space.num_lists() == 0 || space.masks_target()) return false;
  int64_t most = 1;
  for (int d = 0; d < problem.num_dims(); ++d) most = std::max(most, problem.size(d));
  return SaturatingMul(most - 1, model.MessageNs()) > model.LeastCollectiveNs();
}

SearchAhead::SearchAhead(const Problem& problem, const CostModel& model, SearchSpace& space,
                         int64_t bound_ns)
    : problem_(problem),
      model_(model),
      space_(space),
      bounds_(problem, model, space.table()),
      item_bytes_(problem.item_bytes(problem.target().stage())) {
  least_size_ = problem.size(0);
  for (int d = 0; d < problem.num_dims(); ++d) {
    least_size_ = std::min(least_size_, problem.size(d));
  }
  all_even_ = true;
  const int64_t ranks = bounds_.GroupSize((DimMask{1} << problem.num_dims()) - 1);
  for (int k : problem.candidate_dims()) {
    all_even_ &= problem.extent(k) > 0 && problem.extent(k) % ranks == 0;
  }
  all_even_ &= std::has_single_bit(static_cast<uint64_t>(ranks));
  if (all_even_) {
    whole_bytes_ = item_bytes_;
    for (int k = 0; k < problem.tensor_rank(); ++k) {
      whole_bytes_ = SaturatingMul(whole_bytes_, problem.extent(k));
    }
    if (whole_bytes_ == INT64_MAX) whole_bytes_ = 0;
  }
  least_step_ns_ = std::min(space_.least_collective_ns(), model_.CopyNs(0));
  rests_.reserve(kSomeRests);
  goals_.reserve(kSomeGoals);
  order_.reserve(kSomeGoals);
  FindGoals(bound_ns);
}

void SearchAhead::FindGoals(int64_t bound_ns) {
  const auto add = [&](const View& view, const View& last, int64_t items, int64_t ns) {
    order_.push_back(static_cast<int>(goals_.size()));
    Goal& goal = goals_.emplace_back();
    goal.view = view;
    goal.number = order_.back();
    goal.last = &last;
    goal.is_finished = view.state == last.state;
    goal.ns = ns;
    goal.gather_ns = ns;
    goal.items = items;
    goal.is_even = all_even_ || IsEven(view);
  };
  for (const View& last : space_.finished()) {
    const int64_t last_items = space_.MaxItems(last.lists);
    if (!space_.Admits(last.state, last_items)) continue;
    const size_t first = goals_.size();
    const int64_t finish_ns = last.state == problem_.target() ? 0 : space_.least_finish_ns();
    add(last, last, last_items, finish_ns);
    const int64_t left_ns = bound_ns - SaturatingAdd(finish_ns, space_.least_collective_ns());
    // No gather is from longer pieces than those of one cut more.
    if (all_even_ && TransferNs(last_items - last_items / least_size_) > left_ns) continue;
    space_.bounds().Start(last.lists);
    space_.ForEachExtension(last.lists, last.replicated, {},
                            [&](const Lists&, DimMask left, const StepBounds::Product& product) {
                              if (left == last.replicated || goals_.size() > kMost) return;
                              if (TransferNs(last_items - product.longest) > left_ns) return;
                              const State state = State::FromCode(last.partial_code | product.code,
                                                                  last.state.stage());
                              if (!space_.Admits(state, product.longest)) return;
                              add(space_.Look(state), last, product.longest, INT64_MAX);
                            });
    if (goals_.size() > kMost) {  // nothing is known, then
      goals_.clear();
      order_.clear();
      return;
    }
    // Those that fewer mesh dims cut come first: gathers lead from others to them.
    std::sort(order_.begin() + first, order_.end(), [this](int a, int b) {
      return std::pair(__builtin_popcount(goals_[a].view.cut), a) <
             std::pair(__builtin_popcount(goals_[b].view.cut), b);
    });
    for (size_t i = first + 1; i < order_.size(); ++i) {
      Goal& goal = goals_[order_[i]];
      goal.number = static_cast<int>(i);
      bounds_.Start(goal.view.lists);
      for (size_t j = first; j < i; ++j) {
        const Goal& next = goals_[order_[j]];
        const int64_t least = SaturatingAdd(
            next.ns, SaturatingAdd(space_.least_collective_ns(),
                                   TransferNs(std::max<int64_t>(next.items - goal.items, 0))));
        if (least >= goal.ns || least > bound_ns) continue;
        if (!BeginsWith(goal.view.lists, next.view.lists)) continue;
        if (next.view.cut == goal.view.cut) continue;
        const int64_t ns =
            SaturatingAdd(next.ns, bounds_.LeastMoveNs(StepOp::kAllGather, last.state.stage(),
                                                       bounds_.Compare(next.view.lists)));
        if (j == first) goal.gather_ns = ns;
        goal.ns = std::min(goal.ns, ns);
      }
    }
  }
  std::sort(order_.begin(), order_.end(), [this](int a, int b) {
    return std::pair(goals_[a].ns, goals_[a].number) < std::pair(goals_[b].ns, goals_[b].number);
  });
}

bool SearchAhead::BeginsWith(const Lists& lists, const Lists& beginning) const {
  for (int i = 0; i < space_.num_lists(); ++i) {
    if (space_.table().Common(lists[i], beginning[i]) != beginning[i]) return false;
  }
  return true;
}

// A state whose tensor dims from some list on are not cut yet.
struct SearchAhead::Part {
  Lists lists = {};
  DimMask cut = 0;
  uint64_t code = 0;
  int64_t items = 1;
  int64_t common = 1;  // at most, with a box of the source
  CutTable::Samples wanted = {};
  bool begins_like_target = true;  // or begins what the target's lists go on
  bool begins_target = true;
};

void SearchAhead::FindSpots(int64_t bound_ns) {
  found_spots_ = true;
  const View& target = space_.target();
  const DimMask pool = ((DimMask{1} << problem_.num_dims()) - 1) & ~target.partial;
  // Of k mesh dims out of n, every order of them, cut off by where the next tensor dim begins.
  int64_t number = 0;
  int64_t orders = 1;
  const int n = __builtin_popcount(pool);
  for (int k = 0; k <= n; ++k) {
    number += orders;
    orders = orders * (n - k) * (k + space_.num_lists()) / (k + 1);
  }
  if (number > static_cast<int64_t>(kMost)) return;
  lists_spots_ = true;
  spots_.reserve(static_cast<size_t>(number));
  const Lists source = space_.Look(problem_.source()).lists;
  AddSpots(0, pool,
           {.code = target.partial_code,
            .items = bounds_.empty().longest,
            .common = bounds_.empty().longest,
            .wanted = bounds_.empty().wanted},
           source, bound_ns);
}

void SearchAhead::AddSpots(int list, DimMask pool, const Part& part, const Lists& source,
                           int64_t bound_ns) {
  const View& target = space_.target();
  CutTable& table = space_.table();
  const int k = bounds_.tensor_dim(list);
  const bool is_last = list + 1 == space_.num_lists();
  const int64_t source_longest = table.Along(source[list], k).longest;
  const CutTable::Samples& others = bounds_.TargetFrom(list + 1);
  const auto go_on = [&](const auto& self, CutTable::List cuts, DimMask left) -> void {
    const CutTable::Pieces& pieces = table.Along(cuts, k);
    // What follows leaves no more of the target.
    CutTable::Samples wanted = {};
    int64_t missing = 0;
    for (int s = 0; s < table.num_samples(); ++s) {
      wanted[s] = part.wanted[s] * pieces.wanted[s];
      missing = std::max(missing, bounds_.target()[s] - wanted[s] * others[s]);
    }
    const int64_t rest_ns = CollectiveNs(missing);
    if (rest_ns > bound_ns) return;
    const CutTable::List shared = table.Common(cuts, target.lists[list]);
    const int64_t items = part.items * pieces.longest;
    const int64_t common = part.common * std::min(pieces.longest, source_longest);
    const bool begins_like_target = part.begins_like_target && shared == target.lists[list];
    const bool begins_target = part.begins_target && shared == cuts;
    const DimMask cut = part.cut | table.dims(cuts);
    const uint64_t code = part.code | table.Code(cuts, k);
    if (!is_last) {
      Part next{part.lists, cut, code, items, common, wanted, begins_like_target, begins_target};
      next.lists[list] = cuts;
      AddSpots(list + 1, left, next, source, bound_ns);
    } else if (SaturatingAdd(CollectiveNs(items - common), rest_ns) <= bound_ns) {
      Spot& spot = spots_.emplace_back();
      spot.state = State::FromCode(code, target.state.stage());
      spot.lists = part.lists;
      spot.lists[list] = cuts;
      spot.cut = cut;
      spot.items = items;
      spot.is_near = begins_like_target || begins_target;
      spot.rest_ns = rest_ns;
    }
    for (DimMask rest = left; rest != 0; rest &= rest - 1) {
      const int d = __builtin_ctz(rest);
      self(self, table.Append(cuts, d), left & ~(DimMask{1} << d));
    }
  };
  go_on(go_on, CutTable::kNoCuts, pool);
}

bool SearchAhead::IsEven(const View& view) {
  for (int i = 0; i < space_.num_lists(); ++i) {
    const int64_t pieces = bounds_.GroupSize(space_.table().dims(view.lists[i]));
    const int64_t extent = problem_.extent(bounds_.tensor_dim(i));
    if (extent == 0 || extent % pieces != 0) return false;
  }
  return true;
}

SearchAhead::Step SearchAhead::LeastStep(const View& from, const View& to,
                                         const StepBounds::Product& product) const {
  const int stage = from.state.stage();
  if (product.from == 0) {
    if (product.to == 0 || (product.to & ~from.replicated) != 0) return {};
    return {StepOp::kSlice, model_.CopyNs(SaturatingMul(product.longest, item_bytes_))};
  }
  Step step = {StepOp::kExchange, bounds_.LeastMoveNs(StepOp::kExchange, stage, product)};
  const auto add = [&](StepOp op) {
    const int64_t ns = bounds_.LeastMoveNs(op, stage, product);
    if (ns <= step.ns) step = {op, ns};
  };
  if (product.to == 0) {
    add(StepOp::kAllGather);
  } else if (space_.IsPermutation(from.lists, to.lists)) {
    add(StepOp::kPermute);
  } else if (product.from == product.to) {
    step.op = StepOp::kAllToAll;
  }
  return step;
}

// Of a last step that is an all_to_all, an exchange or a permute, but not the only one, where all
// pieces are alike. Let t be the box of what it leads to, x that before it, v that of the view. The
// rank at the first coordinates keeps o <= x of x in the last step, which is copied, and gets the
// rest of t by (t - o) / x messages at least; it got x - v before. In bytes over the links' rate,
// and copies at that or a higher one, this is least where o is as large as can be: t - v are
// brought, x copied, and there are t / x - 1 messages. A permute, which copies nothing, brings all
// of t and x - v before, x being t. x is a share for some set of mesh dims.
int64_t SearchAhead::LeastTogetherNs(int64_t bytes) const {
  const int64_t copy_ns = LeastBytesNs(bytes);
  const int64_t message_ns = model_.MessageNs();
  if (whole_bytes_ == 0) return 0;
  int64_t least = copy_ns;
  for (DimMask cut = 0; cut < DimMask{1} << problem_.num_dims(); ++cut) {
    const int64_t before = whole_bytes_ / bounds_.GroupSize(cut);
    if (before == 0 || before >= bytes) continue;
    const int64_t messages = SaturatingMul(CeilDiv(bytes, before) - 1, message_ns);
    least = std::min(least, SaturatingAdd(LeastBytesNs(before), messages));
  }
  return least;
}

// Of paths to a goal whose last step is no gather. That is the only step; or a slice, behind which
// there was as much more as the mesh dim that it cuts by has ranks; or another collective. Where it
// is at least `limit_ns`, that or more.
int64_t SearchAhead::LeastNsTo(const View& view, int64_t items, const StepBounds::Product& product,
                               int64_t limit_ns, Goal* to) {
  Goal& goal = *to;
  DimMask across = 0;
  if (goal.is_even) {
    for (int i = 0; i < space_.num_lists(); ++i) {
      const CutTable& table = space_.table();
      across |= table.dims(view.lists[i]) & ~table.dims(goal.view.lists[i]);
    }
  }
  const int64_t moved = bounds_.Moved(product);
  const int64_t moved_ns = TransferNs(moved);
  const int64_t starts = space_.Starts(2, across).close_ns;
  const int64_t local = std::min(space_.Starts(1, across).close_ns + model_.CopyNs(0), starts);
  const bool may_be_local = view.replicated != 0 || !goal.is_finished;
  if (SaturatingAdd(may_be_local ? local : starts, moved_ns) >= limit_ns) return limit_ns;
  int64_t joined_ns = moved_ns;
  if (goal.items > items) {
    if (goal.together_ns < 0) {
      goal.together_ns = LeastTogetherNs(SaturatingMul(goal.items, item_bytes_));
    }
    joined_ns =
        std::max(joined_ns, SaturatingAdd(TransferNs(goal.items - items) - 1, goal.together_ns));
  }
  int64_t least = SaturatingAdd(view.replicated != 0 ? local : starts, joined_ns);
  // Where on the way not all mesh dims cut that do at the end.
  int64_t wide_ns = moved_ns;
  if (goal.is_even) {
    const int64_t wide = SaturatingMul(least_size_, goal.items);
    wide_ns = std::max(wide_ns, TransferNs(std::max<int64_t>(wide - items, 0)));
  }
  const int64_t wider_ns = SaturatingAdd(goal.is_finished ? starts : local, wide_ns);
  if (IsFull(view) && IsFull(goal.view) && least < std::min(wider_ns, limit_ns)) {
    if (!joins_) joins_.emplace(problem_, model_, bounds_, space_);
    if (goal.joins.empty()) goal.joins = joins_->To(goal.view.lists);
    const int64_t mix_ns = joins_->LeastNs(view.lists, goal.view.lists, goal.joins);
    return std::min(std::max(least, SaturatingAdd(mix_ns, moved_ns)), wider_ns);
  }
  return goal.is_finished ? least : std::min(least, wider_ns);
}

bool SearchAhead::Knows(const View& view) const {
  return view.reducible == 0 && view.partial_code == space_.target().partial_code &&
         !goals_.empty() && !(view.state == problem_.target());
}

SearchAhead::Rest SearchAhead::Look(const View& view, int64_t left_ns) {
  if (!Knows(view)) return {.left_ns = left_ns};
  const int64_t items = space_.MaxItems(view.lists);
  bounds_.Start(view.lists);
  Rest rest;
  const int64_t too_long_ns = SaturatingAdd(left_ns, 1);
  rest.least_ns = too_long_ns;
  rest.left_ns = left_ns;
  for (const int i : order_) {
    Goal& goal = goals_[i];
    const int64_t some_ns = SaturatingAdd(goal.ns, least_step_ns_);
    if (some_ns >= (rest.way.last != nullptr ? rest.least_ns : too_long_ns)) break;
    if (goal.view.state == view.state) {
      rest.least_ns = std::min(rest.least_ns, goal.ns);
      continue;
    }
    if (SaturatingAdd(goal.ns, GrowthNs(items, goal)) >= std::min(rest.way.ns, too_long_ns)) {
      continue;
    }
    const StepBounds::Product& product = bounds_.Compare(goal.view.lists);
    const Step step = LeastStep(view, goal.view, product);
    const int64_t ns = SaturatingAdd(goal.gather_ns, step.ns);
    const bool is_edge = step.op != StepOp::kExchange || space_.exchanges_anywhere() ||
                         goal.is_finished || goal.last->state == problem_.target();
    if (is_edge && ns < rest.way.ns) {
      rest.way = {step.op, goal.is_finished ? nullptr : &goal.view, goal.last, ns};
    }
    rest.least_ns = std::min(rest.least_ns, SaturatingAdd(goal.ns, step.ns));
    const int64_t more_ns = LeastNsTo(view, items, product, rest.least_ns - goal.ns, &goal);
    rest.least_ns = std::min(rest.least_ns, SaturatingAdd(goal.ns, more_ns));
  }
  return rest;
}

bool SearchAhead::MayGoOn(const View& view, int64_t left_ns) {
  if (!Knows(view)) return true;
  const int64_t items = space_.MaxItems(view.lists);
  bounds_.Start(view.lists);
  for (const int i : order_) {
    Goal& goal = goals_[i];
    if (SaturatingAdd(goal.ns, least_step_ns_) > left_ns) break;
    if (goal.view.state == view.state) {
      if (goal.is_finished) return true;
      continue;
    }
    if (SaturatingAdd(goal.ns, GrowthNs(items, goal)) > left_ns) continue;
    const StepBounds::Product& product = bounds_.Compare(goal.view.lists);
    const int64_t goal_left_ns = left_ns - goal.ns;
    const int64_t limit_ns = SaturatingAdd(goal_left_ns, 1);
    if (LeastNsTo(view, items, product, limit_ns, &goal) <= goal_left_ns) return true;
    if (goal.is_finished && product.from != 0) continue;
    if (LeastStep(view, goal.view, product).ns <= goal_left_ns) return true;
  }
  return false;
}

}  // namespace meshift
