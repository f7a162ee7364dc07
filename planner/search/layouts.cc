#include "planner/search/layouts.h"

#include <array>

#include "base/checked_math.h"

namespace meshift {
namespace {

// Units (base/work_budget.h) for an examined list of cuts: kListWork, and one more for every
// kListsPerWork lists that exist, since these no longer fit into the processor's caches.
constexpr int64_t kListWork = 3;
constexpr int64_t kListsPerWork = 8192;

// Whether a ceil cut of these ragged pieces may lie within a cut of the whole tensor dim by the
// same mesh dim: all pieces that are not empty, except the last, have one item. So has an owner
// cut.
bool IsLoose(absl::Span<const int64_t> begins) {
  int64_t last = 0;
  for (size_t i = 1; i < begins.size(); ++i) {
    if (begins[i] == begins[i - 1]) continue;
    if (last > 1) return false;
    last = begins[i] - begins[i - 1];
  }
  return !begins.empty();
}

}  // namespace

Layouts::Layouts(const Problem& problem, const CostModel& model)
    : problem_(problem), table_(problem), bounds_(problem, model, table_) {
  for (int i = 0; i < num_lists(); ++i) {
    list_of_[bounds_.tensor_dim(i)] = static_cast<int8_t>(i);
  }
  for (int k = 0; k < problem.tensor_rank(); ++k) is_empty_ |= problem.extent(k) == 0;
  any_relabels_ = is_empty_;
  for (int d = 0; d < problem.num_dims() && problem.HasRagged(); ++d) {
    any_relabels_ |= IsLoose(problem.begins(d, CutSizes::kSource));
    any_relabels_ |= IsLoose(problem.begins(d, CutSizes::kTarget));
  }
  while (outermost_ + 1 < num_lists() && problem.extent(bounds_.tensor_dim(outermost_)) == 1) {
    ++outermost_;
  }
  target_ = DecodeUncached(problem.target());
  for (int unit = 0; unit < problem.num_unit_dims(); ++unit) owned_dims_ |= problem.MayCut(unit);
  last_decoded_ = target_;
}

DecodedState Layouts::Decode(const State& state) {
  if (!(state == last_decoded_.state)) last_decoded_ = DecodeUncached(state);
  return last_decoded_;
}

DecodedState Layouts::DecodeUncached(const State& state) {
  DecodedState view;
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

CutTable::Samples Layouts::Wanted(const Lists& lists) {
  CutTable::Samples all = bounds_.empty().wanted;
  for (int i = 0; i < num_lists(); ++i) {
    const CutTable::Samples& wanted = table_.Along(lists[i], bounds_.tensor_dim(i)).wanted;
    for (int s = 0; s < table_.num_samples(); ++s) all[s] *= wanted[s];
  }
  return all;
}

// Proof that this is exact. Let b be a mesh dim that cuts under `outer`, and P a piece that it
// cuts.
// - If b is an owner cut, a rank that holds nothing under `outer` must hold nothing under `inner`.
//   So b has the same owner there: any other cut leaves items to two coordinates.
// - If b divides P and is not in the core of `inner` along this tensor dim, some coordinate of b
//   needs all of P. So b is in it. With other ceil cuts before b, coordinate 0 of b needs items of
//   the first and of the last of their pieces. So the core of `outer` is a prefix of the other
//   core; or a ragged cut comes before b, and all pieces are compared.
bool Layouts::Contains(const Lists& outer, const Lists& inner) {
  if (is_empty_) return true;
  if ((OwnersOf(outer) & ~OwnersOf(inner)) != 0) return false;
  for (int i = 0; i < num_lists(); ++i) {
    const int k = bounds_.tensor_dim(i);
    if (!table_.Covers(table_.Along(outer[i], k).core, table_.Along(inner[i], k).core, k)) {
      return false;
    }
  }
  return true;
}

bool Layouts::IsPermutation(const Lists& before, const Lists& after) const {
  for (int i = 0; i < num_lists(); ++i) {
    List a = before[i];
    List b = after[i];
    if (table_.size(a) != table_.size(b)) return false;
    for (; a != b; a = table_.Parent(a), b = table_.Parent(b)) {
      if (!problem_.MakesSamePieces(table_.last(a), table_.sizes(a), table_.last(b),
                                    table_.sizes(b))) {
        return false;
      }
    }
  }
  return true;
}

Layouts::Changes Layouts::Between(const Lists& before, const Lists& after) const {
  Changes changes;
  for (int i = 0; i < num_lists(); ++i) {
    if (before[i] == after[i]) continue;
    const DimMask common = table_.dims(table_.Common(before[i], after[i]));
    changes.from |= table_.dims(before[i]) & ~common;
    changes.to |= table_.dims(after[i]) & ~common;
  }
  return changes;
}

Lists Layouts::CutTowardsTarget(Lists lists, DimMask dims, int spare) {
  for (int i = 0; i < num_lists(); ++i) {
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
  for (; dims != 0; dims &= dims - 1) {
    const int d = __builtin_ctz(dims);
    if (MayCutCeil(spare, lists[spare], d)) lists[spare] = table_.Append(lists[spare], d);
  }
  return lists;
}

struct Layouts::Extension {
  Layouts& layouts;
  const Problem& problem;
  CutTable& table;
  StepBounds& bounds;
  const Lists& base;
  const DimMask base_dims;
  const int64_t most_items;
  ExtensionFn fn;
  Lists lists;
  std::array<Product, kMaxTensorRank + 1> products;  // by list, over the tensor dims before it

  // Visits the layouts whose list i is `list`, or extends it by mesh dims of `pool`.
  void Go(int i, List list, DimMask pool) {
    if (i == layouts.num_lists()) return fn(lists, pool, products[i]);
    if (!problem.Charge(kListWork + table.num_lists() / kListsPerWork)) return;
    lists[i] = list;
    bounds.Multiply(products[i], i, bounds.Of(i, list), &products[i + 1]);
    if (MissesTooMany(i + 1)) return;  // so do all extensions of this list
    if (!ReceivesTooMany(i + 1, pool)) {
      Go(i + 1, i + 1 < layouts.num_lists() ? base[i + 1] : CutTable::kNoCuts, pool);
    }
    layouts.ForEachLonger(i, list, pool, [&](List longer, DimMask left) { Go(i, longer, left); });
  }
  // The target items that sample s does not hold, if the tensor dims from list i on are cut as in
  // the target.
  int64_t CountMissing(int i, int s) const {
    return bounds.target()[s] - products[i].wanted[s] * bounds.TargetFrom(i)[s];
  }
  bool MissesTooMany(int i) const {
    if (most_items == INT64_MAX) return false;
    // The first sample usually needs the fewest items, so it is tested last.
    for (int s = table.num_samples(); s-- > 0;) {
      if (CountMissing(i, s) > most_items) return true;
    }
    return false;
  }
  // Bounds the items that the first sample receives from below. The tensor dims from list i on are
  // cut by at most `pool` and the base; the first sample has the largest pieces; and it keeps at
  // most its items along these dims.
  bool ReceivesTooMany(int i, DimMask pool) const {
    if (most_items == INT64_MAX || problem.HasRagged()) return false;
    const int64_t rest = CeilDiv(bounds.ExtentFrom(i), bounds.GroupSize(pool | base_dims));
    const int64_t kept = products[i].kept[0] * bounds.BeforeFrom(i);
    return products[i].after[0] * rest - kept > most_items - CountMissing(i, 0);
  }
};

void Layouts::ForEachExtension(const Lists& base, DimMask pool, int64_t most_items,
                               ExtensionFn fn) {
  Extension extension{*this,        problem_,   table_, bounds_, base,
                      DimsOf(base), most_items, fn,     base,    {}};
  extension.products[0] = bounds_.empty();
  extension.Go(0, base[0], pool);
}

struct Layouts::Containing {
  Layouts& layouts;
  const Lists& inner;
  const uint32_t owners;  // of `inner`
  absl::FunctionRef<void(const Lists&)> fn;
  Lists lists = {};

  // As Extension::Go(). A longer list makes smaller boxes, so it does not contain `inner` either.
  void Go(int i, List list, DimMask pool) {
    if (i == layouts.num_lists()) return fn(lists);
    if (!layouts.problem_.Charge(kListWork)) return;
    const int k = layouts.bounds_.tensor_dim(i);
    const CutTable::Pieces& pieces = layouts.table_.Along(list, k);
    if ((pieces.owners & ~owners) != 0) return;
    if (!layouts.table_.Covers(pieces.core, layouts.table_.Along(inner[i], k).core, k)) return;
    lists[i] = list;
    Go(i + 1, CutTable::kNoCuts, pool);
    layouts.ForEachLonger(i, list, pool, [&](List longer, DimMask left) { Go(i, longer, left); });
  }
};

void Layouts::ForEachContaining(const Lists& inner, DimMask pool,
                                absl::FunctionRef<void(const Lists&)> fn) {
  Containing{*this, inner, OwnersOf(inner), fn}.Go(0, CutTable::kNoCuts, pool);
}

}  // namespace meshift
