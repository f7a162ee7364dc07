#include "planner/search/search_space.h"

#include <algorithm>
#include <array>
#include <climits>

#include "base/checked_math.h"
#include "planner/graph/geometry.h"
#include "planner/search/on_the_way.h"

namespace meshift {
namespace {

// Work of a list of cuts that is looked at, one unit more for every so many that there are, since
// caches then have none of them; and of a product of lists.
constexpr int64_t kGoWork = 2;
constexpr int64_t kListsPerWork = 8192;
constexpr int64_t kNextWork = 1;

}  // namespace

SearchSpace::SearchSpace(const Problem& problem, const CostModel& model,
                         const TransitionRules& rules)
    : problem_(problem),
      model_(model),
      rules_(rules),
      table_(problem),
      bounds_(problem, model, table_),
      least_items_((problem.candidate_dims().size() + 1) << problem.num_dims()),
      least_reduction_ns_(size_t{1} << problem.num_dims(), -1),
      hop_ns_(model.LeastHopNs()) {
  if (model.groups()) CountGroups();
  for (int k : problem.candidate_dims()) {
    if (k == problem.largest_dim()) largest_ = num_lists_;
    list_of_[k] = static_cast<int8_t>(num_lists_);
    tensor_dims_[num_lists_++] = k;
  }
  while (outermost_ + 1 < num_lists_ && problem.extent(tensor_dims_[outermost_]) == 1) ++outermost_;
  for (int k = 0; k < problem.tensor_rank(); ++k) total_elements_ *= problem.extent(k);
  may_pad_ = problem.HasRagged();
  for (int k : problem.candidate_dims()) {
    may_pad_ |= problem.extent(k) % problem.mesh().NumRanks() != 0;
  }
  may_have_many_pieces_ = may_pad_ && problem.mesh().NumRanks() > kMaxUnlikePieces;
  may_pad_ &= total_elements_ > 0;
  uncut_ = bounds_.empty().longest;
  exchanges_anywhere_ = ExchangesLeadAnywhere(problem);
  const State& source = problem.source();
  const State& target = problem.target();
  max_items_ = std::max(problem.MaxItems(source), problem.MaxItems(target));
  max_bytes_ = problem.MaxValueBytes();
  for (int d = 0; d < problem.num_dims(); ++d) {
    masks_target_ |= target.IsPartial(d) && !source.IsPartial(d);
    changes_partials_ |= target.IsPartial(d) != source.IsPartial(d);
    if (target.IsReplicate(d)) wanting_ *= problem.size(d);
    if (problem.StaysPartial(d)) classes_ *= problem.size(d);
  }
  least_collective_ns_ = Starts(1, 0).ns;
  // The last local step makes the target; a cast reads the wider value, or writes it.
  least_finish_ns_ = model.CopyNs(problem.MaxBytes(target) / (has_casts() ? 2 : 1));
  target_ = LookAnew(target);
  looked_ = target_;
  finished_states_ = LocallyFinished(problem);
  for (const State& state : finished_states_) finished_.push_back(Look(state));
  std::sort(finished_states_.begin(), finished_states_.end());
  SetTowardsTarget(false);
}

void SearchSpace::SetTowardsTarget(bool towards_target) {
  towards_target_ = towards_target;
  for (int i = 0; i < num_lists_; ++i) {
    const bool any = !towards_target || i == 0 || tensor_dims_[i] == problem_.largest_dim();
    may_cut_[i] = table_.dims(target_.lists[i]) | (any ? ~(towards_target ? target_.cut : 0) : 0);
  }
}

Lists SearchSpace::CutTowardsTarget(Lists lists, DimMask dims, int spare) {
  for (int i = 0; i < num_lists_; ++i) {
    const List wanted = target_.lists[i];
    while (true) {
      List next = wanted;
      while (table_.size(next) > table_.size(lists[i]) + 1) next = table_.Parent(next);
      if (table_.size(next) != table_.size(lists[i]) + 1 || table_.Parent(next) != lists[i] ||
          !HasDim(dims, table_.last(next))) {
        break;
      }
      lists[i] = next;
      dims &= ~(DimMask{1} << table_.last(next));
    }
  }
  for (DimMask left = dims; left != 0; left &= left - 1) {
    lists[spare] = table_.Append(lists[spare], __builtin_ctz(left));
  }
  return lists;
}

void SearchSpace::CountGroups() {
  const auto end = DimMask{1} << problem_.num_dims();
  groups_.assign(end, kNoGroups);
  for (DimMask dims = end; dims-- > 0;) {
    if (dims == 0 || model_.groups()->test(dims)) groups_[dims] = dims == 0 ? 0 : 1;
    // A part of what a group has.
    for (DimMask bit = 1; bit < end && groups_[dims] == kNoGroups; bit <<= 1) {
      if ((dims & bit) == 0 && groups_[dims | bit] == 1) groups_[dims] = 1;
    }
  }
  for (DimMask dims = 1; dims < end; ++dims) {
    for (DimMask part = (dims - 1) & dims; part != 0; part = (part - 1) & dims) {
      if (groups_[part] != 1 || groups_[dims & ~part] == kNoGroups) continue;
      groups_[dims] = std::min(groups_[dims], 1 + groups_[dims & ~part]);
    }
  }
}

bool SearchSpace::Admits(const State& state, int64_t items) const {
  if (items > max_items_) return false;
  if (SaturatingMul(items, problem_.item_bytes(state.stage())) > max_bytes_) return false;
  if (may_have_many_pieces_ && !MayBeOnTheWay(problem_, state)) return false;
  return problem_.from().dtype() != DType::kF4E2M1 || problem_.IsAligned(state);
}

View SearchSpace::LookAnew(const State& state) {
  View view;
  view.state = state;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    const DimMask bit = DimMask{1} << d;
    if (state.IsReplicate(d)) {
      view.replicated |= bit;
    } else if (state.IsShard(d)) {
      view.cut |= bit;
    } else {
      view.partial |= bit;
      if (problem_.IsReducible(state, d)) view.reducible |= bit;
      if (problem_.MayReduceAlong(state, d)) view.along |= bit;
      view.partial_code |= state.code() & uint64_t{255} << (8 * d);
    }
  }
  DimMask left = view.cut;
  for (int place = 0; left != 0; ++place) {
    for (DimMask dims = left; dims != 0; dims &= dims - 1) {
      const int d = __builtin_ctz(dims);
      if (state.place(d) != place) continue;
      List& list = view.lists[list_of_[state.tensor_dim(d)]];
      list = table_.Append(list, d, state.cut_sizes(d));
      left &= ~(DimMask{1} << d);
    }
  }
  return view;
}

int64_t SearchSpace::MaxItems(const Lists& lists) {
  int64_t items = uncut_;
  for (int i = 0; i < num_lists_; ++i) items *= Along(lists[i], i).longest;
  return items;
}

CutTable::Samples SearchSpace::Wanted(const Lists& lists) {
  Samples all = bounds_.empty().wanted;
  for (int i = 0; i < num_lists_; ++i) {
    const Samples& wanted = Along(lists[i], i).wanted;
    for (int s = 0; s < table_.num_samples(); ++s) all[s] *= wanted[s];
  }
  return all;
}

// The first of n pieces of E items has E/n at least, and so has its product over tensor dims. Any
// other has E/n - (n-1), however it is cut out of them: of m pieces, the product is thus at least
// that of the E, over m, less a part of it.
const SearchSpace::Least& SearchSpace::LeastItemsAnew(int i, DimMask pool) {
  Least& least = least_items_[(static_cast<size_t>(i) << problem_.num_dims()) + pool];
  constexpr int64_t kWhole = 1 << 10;
  const int64_t m = model_.GroupSize(pool);
  int64_t items = 1;
  int64_t lost = 0;  // parts of kWhole
  bool even = true;
  for (int j = i; j < num_lists_; ++j) {
    const int64_t extent = problem_.extent(tensor_dims_[j]);
    items = SaturatingMul(items, extent);
    even &= extent % m == 0;
    lost = SaturatingAdd(
        lost, extent == 0 ? kWhole : CeilDiv(SaturatingMul(m * (m - 1), kWhole), extent));
  }
  least.first = problem_.HasRagged() ? 0 : CeilDiv(items, m);
  least.any = problem_.HasRagged() ? 0 : items / m;
  if (!even) least.any = lost >= kWhole ? 0 : least.any / kWhole * (kWhole - lost);
  return least;
}

DimMask SearchSpace::Across(const Lists& lists) const {
  DimMask across = 0;
  for (int i = 0; i < num_lists_; ++i) across |= table_.Across(lists[i], tensor_dims_[i]);
  return across;
}

int64_t SearchSpace::LeastReductionNs(DimMask reducible) {
  // As in the lower bound of a plan (lower_bound_task.cc): messages per element, over all ranks.
  if (masks_target_ || reducible == 0) return 0;
  int64_t& least = least_reduction_ns_[reducible];
  if (least >= 0) return least;
  const __int128 messages = static_cast<__int128>(total_elements_) *
                            (wanting_ + bounds_.GroupSize(reducible) - 2) * classes_;
  least = TransferNs(
      static_cast<int64_t>(std::min<__int128>(messages / problem_.mesh().NumRanks(), INT64_MAX)));
  return least;
}

// Let x be the largest box behind the last reduction, share_ at least. Before a reduction of g
// contributions each, the largest box has as many x as contributions are left, and a rank gets what
// (g-1)/g of them hold: (n-1) x in all reductions of n. Nobody keeps more than x, nor more of what
// the target gives it than it had and got by other steps, so it lacks the rest; the sum does not
// fall with x. A mask, which may give a box more room, adds a factor to n, which is more.
Rest SearchSpace::LeastReductionRest(const Samples& wanted, DimMask across, DimMask reducible,
                                     int64_t local_ns, int64_t other_ns) {
  if (masks_target_) across = 0;
  across |= reducible;
  const int64_t bytes_ns = LeastReductionNs(reducible);
  const Rest first = Starts(1, across) + Rest{bytes_ns, bytes_ns};
  Rest rest = first + Rest{other_ns, other_ns};
  if (!counts_shares_) return rest;
  // What a rank lacks comes by another collective than a reduction, or is masked.
  int64_t more_ns = local_ns;
  if (!bounds_.HasTarget(wanted)) {
    more_ns += Starts(2, across).close_ns - Starts(1, across).close_ns;
    if (!rules_.at_once) {
      const int64_t shares = Shares(bounds_.GroupSize(reducible) - 1);
      const int64_t mask_ns = SaturatingAdd(2 * model_.CopyNs(0), TransferNs(shares));
      more_ns = std::min(more_ns, std::max(mask_ns, local_ns));
    }
  }
  const int64_t items = SaturatingAdd(Missing(wanted, reducible), Added(reducible));
  const int64_t close_ns = SaturatingAdd(Starts(1, across).close_ns, TransferNs(items));
  rest.close_ns = std::max(rest.close_ns, SaturatingAdd(close_ns, std::max(more_ns, other_ns)));
  return rest;
}

Rest SearchSpace::LeastRest(const State& state, const Samples& wanted, DimMask across,
                            DimMask reducible) {
  if (reducible != 0) return LeastReductionRest(wanted, across, reducible);
  // Masks make of a part what is partial: of it nothing need be there, and a masked value may come
  // from any member: no bound on what is moved.
  const int64_t missing = masks_target_ ? 0 : bounds_.MissingOfTarget(wanted, INT64_MAX);
  if (missing == 0 && IsFinished(state)) {
    const int64_t ns = state == problem_.target() ? 0 : least_finish_ns_;
    return {ns, ns};
  }
  const int64_t bytes_ns = TransferNs(missing);
  const bool copies = copied_parts_ > 0 && missing > 0;
  return Starts(1, masks_target_ ? 0 : across) +
         Rest{bytes_ns, copies ? TransferNs(Missing(wanted, 0)) : bytes_ns};
}

// Let a rank lack some of what the target gives it, and have w of it. The collective that brings
// the last of it copies w too, or is a permutation, which brings all, or gathers pieces that lie
// one behind the other: those of the outermost tensor dim that is longer than 1, cut evenly. What
// such a gather brings is known from the box that it makes, in which the target's is. Steps before
// bring what they add to w, which takes no less than to copy it.
//
// Where there are such gathers alone, what they bring is bounded too. Pieces that one joined are
// joined again, or cut again, which leaves no more than there was before: so all n that ever come
// together are alike, and n divides the tensor dim. They are a box of which the rank has had one
// n-th, and the target's box is no longer along the tensor dims that are not gathered: it lacks no
// more than the rest of the largest value that may be. Who lacks more gets some of it by another
// collective, and the last such copies w, or brings it.
void SearchSpace::LookCloser() {
  if (looks_closer_) return;
  looks_closer_ = true;
  if (problem_.HasRagged() || masks_target_) return;
  counts_shares_ = true;
  least_added_.assign(size_t{1} << problem_.num_dims(), -1);
  share_ = SaturatingAdd(Shares(1), 1);
  int k = 0;
  while (k < problem_.tensor_rank() && problem_.extent(k) == 1) ++k;
  if (k == problem_.tensor_rank()) return;
  const int64_t extent = problem_.extent(k);
  const auto all = (DimMask{1} << problem_.num_dims()) - 1;
  // Pieces may be of length 1, or are cut evenly by any mesh dims.
  if (extent <= bounds_.GroupSize(all) || extent % bounds_.GroupSize(all) == 0) return;
  outer_extent_ = extent;
  copied_parts_ = model_.CopyParts(kCopyParts);
  least_gather_.fill(INT64_MAX);
  DimMask even = 0;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    const int64_t n = problem_.size(d);
    if (extent % n != 0) continue;
    even |= DimMask{1} << d;
    for (DimMask cut = 0; cut <= all; ++cut) {
      if (HasDim(cut, d)) continue;
      const int64_t longest = CeilDiv(extent, bounds_.GroupSize(cut));
      if (longest % n != 0) continue;
      for (int s = 0; s < table_.num_samples(); ++s) {
        const int64_t length = table_.Target(k)[s];
        if (length == 0 || longest < length) continue;
        const int64_t items = SaturatingMul(bounds_.target()[s] / length, longest - longest / n);
        least_gather_[s] = std::min(least_gather_[s], items);
      }
    }
  }
  int64_t most_joined = 1;  // pieces, by one such gather after another
  for (DimMask dims = even; dims != 0; dims = (dims - 1) & even) {
    const int64_t n = bounds_.GroupSize(dims);
    if (n > most_joined && extent % n == 0) most_joined = n;
  }
  most_gathered_ = max_items_ - CeilDiv(max_items_, most_joined);
  BoundCopies();
  for (int64_t& items : least_gather_) items = std::max(items, share_ - 1);
}

// Where no gather copies nothing (LookCloser), of a box behind a collective what was there is
// copied, and the rest is brought: by one that is not the last, all of it is copied at least. What
// is not moved by the last one is copied there, or lies beside a box that is: it is half as large
// at least. The last of n pieces of E items has E/n - (n-1)^2/n, those cut out of it less twice
// that at most, and boxes a part of it less.
void SearchSpace::BoundCopies() {
  int64_t most = 1;
  int64_t ranks = 1;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    most = std::max(most, problem_.size(d));
    ranks *= problem_.size(d);
    if (outer_extent_ % problem_.size(d) == 0) return;
  }
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < num_lists_; ++i) {
    shortest = std::min(shortest, problem_.extent(tensor_dims_[i]));
  }
  const int64_t lost = MulDivCeil(2 * (most - 1) * (most - 1), ranks, most);
  if (lost > shortest / 3 || copied_parts_ > kCopyParts / 2) return;
  const int64_t box = std::max<int64_t>(MulDivCeil(share_ - 1, shortest - lost, shortest) - 1, 0);
  least_copied_ns_ = std::max<int64_t>(TransferNs(box / kCopyParts * copied_parts_) - 1, 0);
}

// As many shares as a rank gets (LeastReductionRest). A reduce_scatter copies the value too, unless
// it cuts along the outermost tensor dim that is longer than 1, and evenly; an all_reduce brings
// almost twice as much, and the last one may leave a rank more shares of what the target gives it.
int64_t SearchSpace::AddedAnew(DimMask reducible) {
  int64_t& least = least_added_[reducible];
  least = INT64_MAX;
  const int64_t wanted =
      *std::max_element(bounds_.target().begin(), bounds_.target().begin() + table_.num_samples());
  for (DimMask dims = reducible; dims != 0; dims = (dims - 1) & reducible) {
    const DimMask left = reducible & ~dims;
    const int64_t n = bounds_.GroupSize(dims);
    const int64_t gotten = Shares((n - 1) * bounds_.GroupSize(left));
    const int64_t before = Shares(bounds_.GroupSize(reducible));
    const int64_t left_over =
        left == 0 ? std::min(wanted, before + 1) - std::min(wanted, Shares(1)) : 0;
    int64_t items = gotten;
    if (outer_extent_ % n != 0 && !model_.ordered()) {
      items = std::min(gotten + before / kCopyParts * copied_parts_,
                       std::max(2 * gotten - left_over, gotten));
    }
    least = std::min(least, SaturatingAdd(items, left == 0 ? 0 : Added(left)));
  }
  return least;
}

int64_t SearchSpace::LeastLocalNs(const View& view) {
  if (!rules_.single_sourced || rules_.exact || view.reducible == 0 || view.replicated == 0) {
    return 0;
  }
  int64_t copies = 1;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (HasDim(view.replicated, d)) copies *= problem_.size(d);
  }
  const int64_t sliced = MaxItems(view.lists) / copies * problem_.least_item_bytes();
  return std::min(model_.CopyNs(sliced), least_collective_ns_);
}

bool SearchSpace::IsPermutation(const Lists& before, const Lists& after) const {
  for (int i = 0; i < num_lists_; ++i) {
    List a = before[i];
    List b = after[i];
    if (table_.size(a) != table_.size(b)) return false;
    for (; a != b; a = table_.Parent(a), b = table_.Parent(b)) {
      if (!IsAlike(a, table_.last(b), table_.sizes(b))) return false;
    }
  }
  return true;
}

std::optional<StepOp> SearchSpace::Classify(const View& before, const View& after, DimMask from,
                                            DimMask to) const {
  if (before.partial_code == after.partial_code) {
    if (from == 0) return std::nullopt;  // a slice, or nothing
    if (to == 0) return StepOp::kAllGather;
    if (IsPermutation(before.lists, after.lists)) return StepOp::kPermute;
    return from == to ? StepOp::kAllToAll : StepOp::kExchange;
  }
  // The cuts that were there stay outermost; those added are the reduced dims.
  const DimMask reduced = before.partial & ~after.partial;
  if ((after.partial & ~before.partial) != 0 || from != 0) return std::nullopt;
  if (before.state.stage() != problem_.reduce_stage()) return std::nullopt;
  const DimMask must = reduced & before.reducible;
  if (must == 0 || (reduced & ~(before.reducible | before.along)) != 0) return std::nullopt;
  if (rules_.at_once && reduced != before.reducible) return std::nullopt;
  uint64_t rest = before.partial_code;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (!HasDim(reduced, d)) continue;
    if (before.state.op(d) == ReduceOp::kAvg && must != before.reducible) return std::nullopt;
    rest &= ~(uint64_t{255} << (8 * d));
  }
  if (rest != after.partial_code) return std::nullopt;
  if (rules_.single_sourced && !rules_.exact && before.replicated != 0) return std::nullopt;
  if (to == 0) return StepOp::kAllReduce;
  if (to == reduced && rules_.scatters) return StepOp::kReduceScatter;
  return std::nullopt;
}

// One copy for all callers, whose branches are then met often enough to be foreseen.
void SearchSpace::ForEachExtension(const Lists& base, DimMask pool, const Limits& limits,
                                   ExtensionFn leaf) {
  struct Recursion {
    SearchSpace& space;
    const Lists& base;
    const Limits& limits;
    ExtensionFn leaf;
    const DimMask all;
    Lists lists;
    std::array<StepBounds::Product, kMaxTensorRank + 1> products;  // of the tensor dims before

    // Leaves what is written before it is read as it is.
    Recursion(SearchSpace& s, const Lists& b, DimMask pool, const Limits& l, ExtensionFn f)
        : space(s), base(b), limits(l), leaf(f), all(pool), lists(b) {
      products[0] = space.bounds_.empty();
    }
    // Whether lists that go on with this one are within the limit of what is missing. The first
    // sample lacks least: it comes last.
    bool MayHold(int i, List list) const {
      if (limits.missing == INT64_MAX) return true;
      const Samples& target = space.bounds_.target();
      const Samples& rest = space.bounds_.TargetFrom(i + 1);
      const Samples& before = products[i].wanted;
      const Samples& wanted = space.Along(list, i).wanted;
      for (int s = space.table_.num_samples(); s-- > 0;) {
        if (target[s] - before[s] * wanted[s] * rest[s] > limits.missing) return false;
      }
      return true;
    }
    // Of items that are kept, those that take no time.
    int64_t Saved(int64_t kept) const { return kept - kept / kCopyParts * limits.copied; }
    // Whether mesh dims may be left over: the first sample's box is as large as that makes it.
    bool MayLeave(DimMask left) const {
      if (left == 0) return true;
      if (limits.places_all || limits.moved == INT64_MAX) return !limits.places_all;
      const int64_t after = products[0].after[0] * space.LeastItems(0, all & ~left).first;
      const int64_t before = products[0].kept[0] * space.bounds_.BeforeFrom(0)[0];
      return after - Saved(before) <= limits.moved;
    }
    bool MayPay(int i, DimMask pool) const {
      const Samples& target = space.bounds_.target();
      const Samples& wanted = space.bounds_.TargetFrom(i + 1);
      const Samples& before = space.bounds_.BeforeFrom(i + 1);
      const Least& least = space.LeastItems(i + 1, pool);
      const StepBounds::Product& product = products[i + 1];
      for (int s = space.table_.num_samples(); s-- > 0;) {
        const int64_t missing = target[s] - product.wanted[s] * wanted[s];
        const int64_t after = product.after[s] * (s == 0 ? least.first : least.any);
        const int64_t moved = after - Saved(product.kept[s] * before[s]);
        if (moved > limits.moved) return false;
        if (missing + std::max<int64_t>(moved, 0) > limits.together) return false;
      }
      return true;
    }
    bool MayHop(int i) const {
      const StepBounds::Product& product = products[i + 1];
      const DimMask rest = product.across | (limits.also & ~product.to);
      return space.bounds_.Hops(product.from | product.to) + space.bounds_.Hops(rest) <=
             limits.hops;
    }
    void Next(int i, DimMask pool) {
      ++space.num_looked_at_;
      if (!space.problem_.Charge(kNextWork)) return;
      const StepBounds::Product& product = products[i + 1];
      if (limits.moves && !space.MayBeOver(product.from | product.to)) return;
      if (limits.hops != INT_MAX && !MayHop(i)) return;
      if (i + 1 == space.num_lists_) {
        leaf(lists, pool, product);
      } else if (limits.moved == INT64_MAX || MayPay(i, pool)) {
        Go(i + 1, base[i + 1], pool);
      }
    }
    void Go(int i, List list, DimMask pool) {
      ++space.num_looked_at_;
      const int64_t work = kGoWork + space.table_.num_lists() / kListsPerWork;
      if (!space.problem_.Charge(work)) return;
      lists[i] = list;
      List model = CutTable::kNoCuts;  // where the cut that comes next is like that list's last
      bool ends = i + 1 < space.num_lists_ || MayLeave(pool);
      if (limits.alike != nullptr) {
        model = (*limits.alike)[i];
        const int size = space.table_.size(list);
        ends = space.table_.size(model) == size;
        while (space.table_.size(model) > size + 1) model = space.table_.Parent(model);
      }
      if (ends) {
        if (!MayHold(i, list)) return;
        space.bounds_.Multiply(products[i], i, space.bounds_.Of(i, list), &products[i + 1]);
        Next(i, pool);
        if (limits.alike != nullptr) return;
      }
      for (DimMask left = pool & space.may_cut_[i]; left != 0; left &= left - 1) {
        const int d = __builtin_ctz(left);
        space.ForEachSizes(list, d, i, [&](CutSizes sizes) {
          if (model != CutTable::kNoCuts && !space.IsAlike(model, d, sizes)) return;
          Go(i, space.table_.Append(list, d, sizes), pool & ~(DimMask{1} << d));
          lists[i] = list;
        });
      }
    }
  };
  if (num_lists_ == 0) return;
  Recursion(*this, base, pool, limits, leaf).Go(0, base[0], pool);
}

}  // namespace meshift
