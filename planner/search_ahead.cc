#include "planner/search_ahead.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>

#include "base/checked_math.h"
#include "planner/cut_table.h"

namespace meshift {
namespace {

// States that are listed at most.
constexpr size_t kMost = 128;
// As many as a search looks at as a rule.
constexpr size_t kSomeRests = 48;

// Messages of so many steps that double pieces `doublings` times together, at least: steps that all
// double alike take the fewest.
int64_t LeastMessagesAlike(int steps, int doublings) {
  if (steps == 0) return 0;
  return (int64_t{1} << doublings / steps) * (steps + doublings % steps) - steps;
}

}  // namespace

bool SearchAhead::Pays(const Problem& problem, const CostModel& model, const SearchSpace& space) {
  if (problem.num_dims() > 4 || problem.num_stages() > 1 || problem.HasRagged()) return false;
  if (space.num_lists() == 0 || space.masks_target()) return false;
  int64_t most = 1;
  for (int d = 0; d < problem.num_dims(); ++d) most = std::max(most, problem.size(d));
  return SaturatingMul(most - 1, model.MessageNs()) > model.LeastCollectiveNs();
}

SearchAhead::SearchAhead(const Problem& problem, const CostModel& model, SearchSpace& space)
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
  rests_.reserve(kSomeRests);
  FindGoals();
}

void SearchAhead::FindGoals() {
  const auto add = [&](const View& view, const View& last, int64_t items, int64_t ns) {
    Goal& goal = goals_.emplace_back();
    goal.view = view;
    goal.last = &last;
    goal.is_finished = view.state == last.state;
    goal.ns = ns;
    goal.gather_ns = ns;
    goal.items = items;
    goal.is_even = IsEven(view);
    goal.together_ns = LeastTogetherNs(SaturatingMul(items, item_bytes_));
  };
  for (const View& last : space_.finished()) {
    const int64_t last_items = space_.MaxItems(last.lists);
    if (!space_.Admits(last.state, last_items)) continue;
    const size_t first = goals_.size();
    add(last, last, last_items, last.state == problem_.target() ? 0 : space_.least_finish_ns());
    space_.bounds().Start(last.lists);
    space_.ForEachExtension(last.lists, last.replicated, {},
                            [&](const Lists&, DimMask left, const StepBounds::Product& product) {
                              if (left == last.replicated || goals_.size() > kMost) return;
                              const State state = State::FromCode(last.partial_code | product.code,
                                                                  last.state.stage());
                              if (!space_.Admits(state, product.longest)) return;
                              add(space_.Look(state), last, product.longest, INT64_MAX);
                            });
    if (goals_.size() > kMost) {  // nothing is known, then
      goals_.clear();
      return;
    }
    // Those that fewer mesh dims cut come first: gathers lead from others to them.
    std::stable_sort(goals_.begin() + first, goals_.end(), [](const Goal& a, const Goal& b) {
      return __builtin_popcount(a.view.cut) < __builtin_popcount(b.view.cut);
    });
    for (size_t i = first + 1; i < goals_.size(); ++i) {
      Goal& goal = goals_[i];
      bounds_.Start(goal.view.lists);
      for (size_t j = first; j < i; ++j) {
        const Goal& next = goals_[j];
        const int64_t least = SaturatingAdd(
            next.ns, SaturatingAdd(space_.least_collective_ns(),
                                   TransferNs(std::max<int64_t>(next.items - goal.items, 0))));
        if (least >= goal.ns || !BeginsWith(goal.view.lists, next.view.lists)) continue;
        if (next.view.cut == goal.view.cut) continue;
        const int64_t ns =
            SaturatingAdd(next.ns, bounds_.LeastMoveNs(StepOp::kAllGather, last.state.stage(),
                                                       bounds_.Compare(next.view.lists)));
        if (j == first) goal.gather_ns = ns;
        goal.ns = std::min(goal.ns, ns);
      }
    }
  }
  std::stable_sort(goals_.begin(), goals_.end(),
                   [](const Goal& a, const Goal& b) { return a.ns < b.ns; });
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
            .wanted = bounds_.empty().wanted},
           source, bound_ns);
}

void SearchAhead::AddSpots(int list, DimMask pool, const Part& part, const Lists& source,
                           int64_t bound_ns) {
  const View& target = space_.target();
  if (list == space_.num_lists()) {
    const auto collective_ns = [this](int64_t items) {
      return items == 0 ? 0 : SaturatingAdd(space_.least_collective_ns(), TransferNs(items));
    };
    const int64_t gotten = part.items - space_.MostCommon(source, part.lists);
    const int64_t rest_ns = collective_ns(bounds_.MissingOfTarget(part.wanted, INT64_MAX));
    if (SaturatingAdd(collective_ns(gotten), rest_ns) > bound_ns) return;
    spots_.push_back({.state = State::FromCode(part.code, target.state.stage()),
                      .lists = part.lists,
                      .cut = part.cut,
                      .items = part.items,
                      .is_near = part.begins_like_target || part.begins_target,
                      .rest_ns = rest_ns});
    return;
  }
  CutTable& table = space_.table();
  const int k = bounds_.tensor_dim(list);
  const auto go_on = [&](const auto& self, CutTable::List cuts, DimMask left) -> void {
    const CutTable::Pieces& pieces = table.Along(cuts, k);
    const CutTable::List common = table.Common(cuts, target.lists[list]);
    Part next = part;
    next.lists[list] = cuts;
    next.cut |= table.dims(cuts);
    next.code |= table.Code(cuts, k);
    next.items *= pieces.longest;
    for (int s = 0; s < table.num_samples(); ++s) next.wanted[s] *= pieces.wanted[s];
    next.begins_like_target &= common == target.lists[list];
    next.begins_target &= common == cuts;
    AddSpots(list + 1, left, next, source, bound_ns);
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

// Two collectives or more, between which every mesh dim cuts. Such a step makes of f pieces one, at
// every rank: by f - 1 messages, in a group that is no smaller, and the rank at the first
// coordinates copies what it keeps. Steps that make no more of them are permutes.
int64_t SearchAhead::LeastMixNs(const View& from, const View& to, DimMask across) {
  CutTable& table = space_.table();
  int64_t pieces = 1;
  for (int i = 0; i < space_.num_lists(); ++i) {
    const int k = bounds_.tensor_dim(i);
    pieces *= CeilDiv(table.Along(to.lists[i], k).longest, table.Along(from.lists[i], k).longest);
  }
  for (const Mix& mix : mixes_) {
    if (mix.pieces == pieces && mix.across == across) return mix.ns;
  }
  const int doublings = Log2Ceil(pieces);
  int64_t least = INT64_MAX;
  for (int joins = std::min(doublings, 1); joins <= doublings; ++joins) {
    const int number = std::max(joins, 2);
    int64_t ns = SaturatingMul(number, model_.LeastCollectiveNs());
    ns = SaturatingAdd(ns, SaturatingMul(std::max(number, doublings), space_.hop_ns()));
    ns = std::max(ns, space_.Starts(number, across).close_ns);
    ns = SaturatingAdd(ns, SaturatingMul(joins, model_.CopyNs(0)));
    if (ns >= least) break;
    const int64_t alike = SaturatingMul(LeastMessagesAlike(joins, doublings), model_.MessageNs());
    if (SaturatingAdd(ns, alike) >= least) continue;
    const int64_t messages = joins == 0 ? 0 : LeastMessages(joins, doublings);
    least = std::min(least, SaturatingAdd(ns, SaturatingMul(messages, model_.MessageNs())));
  }
  mixes_.push_back({pieces, across, least});
  return least;
}

// Along a tensor dim, mesh dims make way for others: a step doubles pieces as often as their sizes
// say, and of all tensor dims one at least has its pieces made shorter.
int64_t SearchAhead::LeastMessages(int joins, int doublings) {
  if (doublings <= 0) return 0;
  if (joins == 0) return INT64_MAX;
  if (doublings_ == 0) {
    uint64_t sums = 1;  // of some mesh dims
    for (int d = 0; d < problem_.num_dims(); ++d) sums |= sums << Log2Ceil(problem_.size(d));
    uint64_t along_one = 0;
    for (uint64_t left = sums; left != 0; left &= left - 1) {
      along_one |= sums >> __builtin_ctzll(left);
    }
    doublings_ = along_one;
    for (int i = 2; i < space_.num_lists(); ++i) {
      uint64_t more = 0;
      for (uint64_t left = along_one; left != 0; left &= left - 1) {
        more |= doublings_ << __builtin_ctzll(left);
      }
      doublings_ = more;
    }
    doublings_ &= ~uint64_t{1};
  }
  if (std::ssize(messages_) < joins) messages_.resize(joins);
  if (messages_[joins - 1][doublings] > 0) return messages_[joins - 1][doublings];
  int64_t least = INT64_MAX;
  const int most = CeilDiv(doublings, joins);  // or more, in one step
  for (uint64_t left = doublings_ >> most << most; left != 0; left &= left - 1) {
    const int made = __builtin_ctzll(left);
    const int64_t messages = (int64_t{1} << std::min(made, kMaxDoublings)) - 1;
    if (messages >= least) break;
    const int64_t others = LeastMessagesAlike(joins - 1, std::max(doublings - made, 0));
    if (messages + others >= least) continue;
    least = std::min(least, SaturatingAdd(messages, LeastMessages(joins - 1, doublings - made)));
  }
  messages_[joins - 1][doublings] = least;
  return least;
}

// Of paths to a goal whose last step is no gather. That is the only step; or a slice, behind which
// there was as much more as the mesh dim that it cuts by has ranks; or another collective.
int64_t SearchAhead::LeastNsTo(const Goal& goal, const View& view, int64_t items,
                               const StepBounds::Product& product) {
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
  int64_t joined_ns = moved_ns;
  if (goal.items > items) {
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
  if (all_even_ && view.replicated == 0 && goal.view.replicated == 0) {
    least = std::max(least, SaturatingAdd(LeastMixNs(view, goal.view, across), moved_ns));
    least = std::min(least, SaturatingAdd(starts, wide_ns));
  }
  return goal.is_finished ? least : std::min(least, SaturatingAdd(local, wide_ns));
}

SearchAhead::Rest SearchAhead::Look(const View& view) {
  if (view.reducible != 0 || view.partial_code != space_.target().partial_code) return {};
  if (goals_.empty() || view.state == problem_.target()) return {};
  const int64_t items = space_.MaxItems(view.lists);
  bounds_.Start(view.lists);
  Rest rest;
  rest.least_ns = INT64_MAX;
  const int64_t step_ns = std::min(space_.least_collective_ns(), model_.CopyNs(0));
  for (const Goal& goal : goals_) {
    if (rest.way.last != nullptr && SaturatingAdd(goal.ns, step_ns) >= rest.least_ns) break;
    if (goal.view.state == view.state) {
      rest.least_ns = std::min(rest.least_ns, goal.ns);
      continue;
    }
    const StepBounds::Product& product = bounds_.Compare(goal.view.lists);
    const Step step = LeastStep(view, goal.view, product);
    const int64_t ns = SaturatingAdd(goal.gather_ns, step.ns);
    // Exchanges lead to the target and what is before one step to it.
    const bool is_edge =
        step.op != StepOp::kExchange || goal.is_finished || goal.last->state == problem_.target();
    if (is_edge && ns < rest.way.ns) {
      rest.way = {step.op, goal.is_finished ? nullptr : &goal.view, goal.last, ns};
    }
    rest.least_ns = std::min({rest.least_ns, SaturatingAdd(goal.ns, step.ns),
                              SaturatingAdd(goal.ns, LeastNsTo(goal, view, items, product))});
  }
  return rest;
}

}  // namespace meshift
