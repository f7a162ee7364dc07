// What the search looks at: states as lists of cuts, what they lack of the target, and the least
// time that the steps between them, and from them to the target, can take.
//
//   SearchSpace space(problem, model, rules);
//   View view = space.Look(problem.source());
//   space.Missing(space.Wanted(view.lists), 0);              // items that some rank lacks
//   space.LeastRest(view.state, view.lists, 0).close_ns;     // no path to the target is faster
//   space.bounds().Start(view.lists);
//   space.ForEachExtension(
//       view.lists, view.replicated, limits,
//       [](const Lists& lists, DimMask left, const StepBounds::Product& product) {});
//
// Lists of cuts are put together one cut at a time, and given up as soon as the products so far
// (step_bounds.h) say so, before a state is made of them. All items, bytes and ns are exact or
// rounded so that a bound stays one. The problem, the model and the rules must outlive the space.
// Not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_SEARCH_SPACE_H_
#define MESHIFT_PLANNER_SEARCH_SEARCH_SPACE_H_

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"
#include "planner/plan/plan.h"
#include "planner/search/cut_table.h"
#include "planner/search/step_bounds.h"

namespace meshift {

// A state and what is asked of it often.
struct View {
  State state;
  Lists lists = {};
  uint64_t partial_code = 0;  // the state's, its cuts left out
  DimMask partial = 0;
  DimMask replicated = 0;
  DimMask reducible = 0;  // Problem::IsReducible
  DimMask along = 0;      // Problem::MayReduceAlong
  DimMask cut = 0;
};

// The least time of all that follows a state, by two bounds. The closer one knows how many hops
// there are at least, and says what is left out. What waits its turn does so by the other: which of
// paths that cost the same is found is a matter of that order.
struct Rest {
  int64_t ns = 0;
  int64_t close_ns = 0;  // no less
  friend Rest operator+(const Rest& a, const Rest& b) {
    return {SaturatingAdd(a.ns, b.ns), SaturatingAdd(a.close_ns, b.close_ns)};
  }
};

class SearchSpace {
 public:
  using Samples = CutTable::Samples;

  SearchSpace(const Problem& problem, const CostModel& model, const TransitionRules& rules);

  // --- The problem ---
  const View& target() const { return target_; }
  // The target, and the states from which local steps alone lead to it.
  absl::Span<const View> finished() const { return finished_; }
  bool IsFinished(const State& state) const {
    return std::binary_search(finished_states_.begin(), finished_states_.end(), state);
  }
  // Whether one slice leads from `state` to the target.
  bool IsBeforeSlice(const State& state) const {
    return std::any_of(finished_.begin(), finished_.end(), [&](const View& view) {
      return view.state == state && state != target_.state &&
             state.stage() == target_.state.stage() && view.partial_code == target_.partial_code;
    });
  }
  bool masks_target() const { return masks_target_; }  // a dim is partial in the target alone
  bool changes_partials() const { return changes_partials_; }  // something is reduced, or masked
  bool exchanges_anywhere() const { return exchanges_anywhere_; }  // ExchangesLeadAnywhere
  bool has_casts() const { return problem_.num_stages() > 1; }
  // Whether a value may be on the way; `items`: of its largest box.
  bool Admits(const State& state, int64_t items) const;

  // --- Lists of cuts ---
  int num_lists() const { return num_lists_; }
  CutTable& table() { return table_; }
  StepBounds& bounds() { return bounds_; }
  View Look(const State& state) {
    if (!(state == looked_.state)) looked_ = LookAnew(state);
    return looked_;
  }
  State WithLists(uint64_t partial_code, const Lists& lists, int stage) const {
    uint64_t code = partial_code;
    for (int i = 0; i < num_lists_; ++i) code |= table_.Code(lists[i], tensor_dims_[i]);
    return State::FromCode(code, stage);
  }
  // Of the largest box.
  int64_t MaxItems(const Lists& lists);
  // Items that a box of some lists and one of others have in common at most.
  int64_t MostCommon(const Lists& a, const Lists& b) {
    int64_t items = uncut_;
    for (int i = 0; i < num_lists_; ++i) items *= std::min(Longest(a, i), Longest(b, i));
    return items;
  }
  // Items that the lists leave each sample of what the target gives it.
  Samples Wanted(const Lists& lists);
  bool IsPermutation(const Lists& before, const Lists& after) const;
  // Whether an all_gather from `before`, which bounds() started from, to `after` pads.
  bool Pads(const State& before, const State& after, const StepBounds::Product& product) const {
    return may_pad_ && ((product.facts & StepBounds::kGatherPads) != 0 ||
                        !IsEven(problem_, problem_.Cuts(before), problem_.Cuts(after)));
  }
  // The collective that leads from one state to another of the same stage, if one does
  // (CollectiveBetween of transitions.h). `from`, `to`: the cuts that move, before and after.
  std::optional<StepOp> Classify(const View& before, const View& after, DimMask from,
                                 DimMask to) const;
  // Mesh dims that what is in the target's boxes must come across, from those of these lists.
  DimMask Across(const Lists& lists) const;
  // Those that steps to the target must go across.
  DimMask Across(const View& view) const {
    return (masks_target_ ? 0 : Across(view.lists)) | view.reducible;
  }

  // --- Least times ---
  // Bounds are closer from now on, which pays where states are gone on from.
  void LookCloser();
  int64_t least_collective_ns() const { return least_collective_ns_; }
  // Of so many collectives at least, before any byte, that go across these mesh dims together: no
  // group, and no groups one after the other, are smaller; nor do fewer groups have them all.
  Rest Starts(int collectives, DimMask across) const {
    const auto ns = [&](int number, int hops) {
      return SaturatingAdd(number * model_.LeastCollectiveNs(), SaturatingMul(hops, hop_ns_));
    };
    const int number = groups_.empty() ? collectives : std::max(collectives, groups_[across]);
    if (number == kNoGroups) return {ns(collectives, collectives), kNever};
    return {ns(collectives, collectives), ns(number, std::max(number, bounds_.Hops(across)))};
  }
  // Whether a collective may be over these mesh dims, and more.
  bool MayBeOver(DimMask dims) const { return groups_.empty() || groups_[dims] <= 1; }
  int64_t hop_ns() const { return hop_ns_; }
  int64_t least_finish_ns() const { return least_finish_ns_; }  // local steps that make the target
  // Of the bytes that adding `reducible` sends, if there are any.
  int64_t LeastReductionNs(DimMask reducible);
  // From a state that has `reducible` to add, in items: what some rank must get by other steps than
  // reductions, or copy, which counts as much as takes that time to bring; and what it gets by
  // reductions. `wanted`: of the samples, as in a Product.
  bool counts_missing(DimMask reducible) const {
    return reducible == 0 ? !masks_target_ : counts_shares_;
  }
  int64_t Missing(const Samples& wanted, DimMask reducible) const {
    if (!counts_missing(reducible)) return 0;
    if (reducible != 0) return bounds_.MissingOfTarget(wanted, share_);
    int64_t missing = 0;
    for (int s = 0; s < table_.num_samples(); ++s) {
      int64_t lacks = bounds_.target()[s] - wanted[s];
      if (lacks > 0) {
        const int64_t copied = wanted[s] / kCopyParts * copied_parts_;
        const int64_t gathered = lacks > most_gathered_ ? INT64_MAX : least_gather_[s];
        lacks = std::max(lacks, std::min(SaturatingAdd(lacks, copied), gathered));
      }
      missing = std::max(missing, lacks);
    }
    return missing;
  }
  int64_t Added(DimMask reducible) {
    if (reducible == 0 || !counts_shares_) return 0;
    const int64_t least = least_added_[reducible];
    return least >= 0 ? least : AddedAnew(reducible);
  }
  // Of what a collective but the last copies.
  int64_t LeastCopiedNs() const { return least_copied_ns_; }
  // Of every path to the target from such a state. `across`: mesh dims that must be gone across
  // besides (Across).
  Rest LeastRest(const State& state, const Samples& wanted, DimMask across, DimMask reducible);
  // Likewise, where there is something to add. `local_ns`: of local steps that are needed in any
  // case; `other_ns`: of all that is needed besides one reduction.
  Rest LeastReductionRest(const Samples& wanted, DimMask across, DimMask reducible,
                          int64_t local_ns = 0, int64_t other_ns = 0);
  Rest LeastRest(const State& state, const Lists& lists, DimMask reducible) {
    return LeastRest(state, Wanted(lists), Across(lists), reducible);
  }
  // Of the local step without which the replicated dims of such a state keep it from being reduced.
  int64_t LeastLocalNs(const View& view);

  // `lists` cut by all of these mesh dims: as the target is, as far as that goes; by the rest along
  // the tensor dim of list `spare`.
  // REQUIRES: num_lists() > 0.
  Lists CutTowardsTarget(Lists lists, DimMask dims, int spare);
  // Along the largest one.
  Lists CutTowardsTarget(const Lists& lists, DimMask dims) {
    return CutTowardsTarget(lists, dims, largest_);
  }
  // Likewise; all along the outermost tensor dim.
  Lists CutOutermost(Lists lists, DimMask dims) {
    for (; dims != 0; dims &= dims - 1) lists[0] = table_.Append(lists[0], __builtin_ctz(dims));
    return lists;
  }
  // The list of the outermost tensor dim that is longer than 1, if any is.
  int outermost() const { return outermost_; }
  // Of the pieces of list i's tensor dim.
  int64_t Longest(const Lists& lists, int i) { return Along(lists[i], i).longest; }

  // --- States near others. None is a function of anything but the problem, nor is their order ---
  // Whether only cuts are added that the target has, in any order, and of other mesh dims along the
  // outermost and the largest tensor dim.
  void SetTowardsTarget(bool towards_target);
  bool towards_target() const { return towards_target_; }
  static constexpr int64_t kCopyParts = 1024;
  struct Limits {
    // Items of the target that a rank may lack behind the step.
    int64_t missing = INT64_MAX;
    bool places_all = false;  // only extensions by all of the pool
    // Items that a rank may get by the step, or keep, of which `copied` of kCopyParts count; and
    // that it may get or lack.
    int64_t moved = INT64_MAX;
    int64_t copied = 0;
    int64_t together = INT64_MAX;
    // Hops of the step and of all that follows, of which one goes across `also` in any case.
    int hops = INT_MAX;
    DimMask also = 0;
    bool moves = true;             // by a collective, of whose groups the model may allow some only
    const Lists* alike = nullptr;  // only lists whose cuts make the same pieces as these
  };
  // Calls leaf(lists, left, product) with all lists within the limits that extend `base` by mesh
  // dims out of `pool`, of which `left` are over; the product is of the step from the state of
  // bounds().Start().
  using ExtensionFn =
      absl::FunctionRef<void(const Lists& lists, DimMask left, const StepBounds::Product& product)>;
  void ForEachExtension(const Lists& base, DimMask pool, const Limits& limits, ExtensionFn leaf);
  // Lists that were looked at so far, and states that were made of them, or begun: what a search
  // takes time by.
  int64_t num_looked_at() const { return num_looked_at_; }
  // Calls leaf(kept) with the lists that are left when innermost cuts are taken off, or none.
  template <typename Leaf>
  void ForEachPrefix(const Lists& lists, const Leaf& leaf);

 private:
  using List = CutTable::List;

  View LookAnew(const State& state);
  void CountGroups();
  void BoundCopies();
  int64_t AddedAnew(DimMask reducible);
  // Items of so many boxes, on average, of a value that all ranks hold parts of.
  int64_t Shares(int64_t number) const {
    int64_t items = 0;
    const int64_t ranks = problem_.mesh().NumRanks();
    if (CheckedMul(total_elements_, number * classes_, &items)) return items / ranks;
    const __int128 many = static_cast<__int128>(total_elements_) * number * classes_ / ranks;
    return static_cast<int64_t>(std::min<__int128>(many, INT64_MAX / 8));
  }
  const CutTable::Pieces& Along(List list, int i) { return table_.Along(list, tensor_dims_[i]); }
  int64_t TransferNs(int64_t items) const {
    return model_.TransferNs(SaturatingMul(items, problem_.least_item_bytes()));
  }
  // Items along the tensor dims from list i on, at least, if the mesh dims `pool` cut nothing but
  // them: of the first sample, and of any.
  struct Least {
    int64_t first = -1;  // not known yet
    int64_t any = 0;
  };
  const Least& LeastItems(int i, DimMask pool) {
    const Least& least = least_items_[(static_cast<size_t>(i) << problem_.num_dims()) + pool];
    return least.first >= 0 ? least : LeastItemsAnew(i, pool);
  }
  const Least& LeastItemsAnew(int i, DimMask pool);
  // Whether a cut by mesh dim d makes the same pieces as the last of `list`.
  bool IsAlike(List list, int d, CutSizes sizes) const {
    return problem_.CutAlike(table_.last(list), table_.sizes(list), d, sizes);
  }
  // Calls fn(sizes) for the sizes that a cut of list i by mesh dim d behind `list` may have.
  template <typename Fn>
  void ForEachSizes(List list, int d, int i, const Fn& fn) const {
    fn(CutSizes::kCeil);
    if (list != CutTable::kNoCuts || !problem_.HasRagged()) return;
    for (const CutSizes sizes : {CutSizes::kSource, CutSizes::kTarget}) {
      if (problem_.HasCut(d, tensor_dims_[i], sizes)) fn(sizes);
    }
  }

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules& rules_;
  CutTable table_;
  StepBounds bounds_;
  int num_lists_ = 0;
  int largest_ = 0;
  int outermost_ = 0;
  std::array<int, kMaxTensorRank> tensor_dims_ = {};  // by list
  std::array<int8_t, kMaxTensorRank> list_of_ = {};   // by tensor dim
  std::array<DimMask, kMaxTensorRank> may_cut_ = {};  // by list: SetTowardsTarget
  int64_t uncut_ = 1;  // items along the tensor dims that nothing ever cuts
  absl::InlinedVector<Least, 32> least_items_;          // by list and pool
  absl::InlinedVector<int64_t, 8> least_reduction_ns_;  // by mesh dims; -1: not known yet
  absl::InlinedVector<int64_t, 8> least_added_;         // likewise
  // How many groups that the model allows have all of these mesh dims, at least. Empty: it allows
  // all groups.
  std::vector<int> groups_;
  static constexpr int kNoGroups = INT_MAX;
  static constexpr int64_t kNever = INT64_MAX / 4;
  // Of a value on the way. Where it must be cast to be reduced, it may grow to what the source is
  // in that dtype.
  int64_t max_items_ = 0;
  int64_t max_bytes_ = 0;
  int64_t hop_ns_ = 0;
  int64_t least_collective_ns_ = 0;
  int64_t least_finish_ns_ = 0;
  bool may_pad_ = false;               // some gather, its pieces
  bool may_have_many_pieces_ = false;  // TooManyPieces may say so of a state
  bool exchanges_anywhere_ = false;
  bool masks_target_ = false;
  bool changes_partials_ = false;
  int64_t total_elements_ = 1;
  int64_t wanting_ = 1;  // ranks that hold an element in the target, for each of the
  int64_t classes_ = 1;  // coordinates of dims that stay partial
  int64_t num_looked_at_ = 0;
  bool towards_target_ = false;
  bool looks_closer_ = false;
  bool counts_shares_ = false;   // what is lacking behind reductions is bounded (Missing)
  int64_t share_ = 0;            // the largest box of a value without replicas is no smaller
  int64_t outer_extent_ = 0;     // of LookCloser(); 0: nothing is known
  int64_t copied_parts_ = 0;     // of the time that it takes to bring an item, of that to copy one
  int64_t least_copied_ns_ = 0;  // of a collective before the last, copies
  Samples least_gather_ = {};    // items that a gather brings that copies nothing
  int64_t most_gathered_ = INT64_MAX;  // of what a rank lacks, by such alone
  View target_;
  View looked_;  // of the last state that was looked at: a state is, more than once in a row
  absl::InlinedVector<View, 6> finished_;
  FinishedStates finished_states_;  // sorted
};

template <typename Leaf>
void SearchSpace::ForEachPrefix(const Lists& lists, const Leaf& leaf) {
  Lists kept = lists;
  while (true) {
    leaf(kept);
    int i = 0;
    while (i < num_lists_ && kept[i] == CutTable::kNoCuts) {
      kept[i] = lists[i];
      ++i;
    }
    if (i == num_lists_) return;
    kept[i] = table_.Parent(kept[i]);
  }
}

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SEARCH_SPACE_H_
