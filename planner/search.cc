#include "planner/search.h"

#include <algorithm>
#include <array>
#include <queue>

#include "base/checked_math.h"
#include "planner/cut_table.h"
#include "planner/search_nodes.h"

namespace meshift {
namespace {

using List = CutTable::List;
using Samples = CutTable::Samples;

bool Has(DimMask mask, int d) { return (mask >> d & 1) != 0; }

// A State's lists of cuts, by candidate dim of the problem (which are all that are ever cut).
using Lists = std::array<List, kMaxTensorRank>;

struct OpenEntry {
  PathCost estimate;  // of the whole path through the state
  PathCost cost;
  State state;
  int node = 0;
  // Whether the collectives that finish were looked at, so that only longer ways are left.
  bool finishing_done = false;
  bool operator>(const OpenEntry& other) const {
    if (!(estimate == other.estimate)) return other.estimate < estimate;
    if (!(state == other.state)) return state > other.state;
    return finishing_done && !other.finishing_done;
  }
};

// A state and what is asked of it often.
struct View {
  State state;
  Lists lists = {};
  uint64_t partial_code = 0;  // the state's, its cuts left out
  DimMask partial = 0;
  DimMask replicated = 0;
  DimMask reducible = 0;  // partial, and not so in the target
  DimMask cut = 0;
};

class Search {
 public:
  Search(const Problem& problem, const CostModel& model, const TransitionRules& rules);
  std::optional<Path> Run();

 private:
  // --- Views and bounds ---
  View Look(const State& state);
  State WithLists(uint64_t partial_code, const Lists& lists, int stage) const {
    uint64_t code = partial_code;
    for (int i = 0; i < num_lists_; ++i) code |= table_.Code(lists[i], tensor_dims_[i]);
    return State::FromCode(code, stage);
  }
  const CutTable::Pieces& Along(List list, int i) { return table_.Along(list, tensor_dims_[i]); }
  int64_t MaxItems(const Lists& lists);
  // Items that some rank lacks of what the target gives it, of what the lists leave it.
  int64_t MissingOfTarget(const Lists& lists);
  // Time that a step without reductions between states with these lists takes at least: of what
  // some rank gets, and, unless the step is a gather or a permutation, of what it keeps.
  int64_t LeastMoveNs(StepOp op, int stage, const Lists& before, const Lists& after);
  int64_t TransferNs(int64_t items) const {
    return model_.TransferNs(SaturatingMul(items, problem_.least_item_bytes()));
  }
  int64_t CollectiveNs(int64_t items) const {
    return SaturatingAdd(least_collective_ns_, TransferNs(items));
  }
  bool IsFinished(const State& state) const {
    return std::binary_search(finished_states_.begin(), finished_states_.end(), state);
  }
  int64_t Contributions(DimMask partial) const;
  // Time that every path takes at least from a state that has `contributions` to add yet.
  int64_t LeastReductionNs(int64_t contributions) const;
  // Time that every path to the target takes at least, from a state with these lists.
  int64_t LeastRestNs(const State& state, const Lists& lists, int64_t contributions);
  // Time of the local step without which the replicated dims of such a state keep it from being
  // reduced.
  int64_t LeastLocalNs(const View& view);
  // What a step and the rest may take at most, behind `cost`.
  int64_t Left(const PathCost& cost) const { return bound_ns_ - cost.ns; }
  // Of what may be lacking where a step takes `step_ns`, and one more collective follows.
  int64_t MissingLimit(const PathCost& cost, int64_t step_ns) const {
    return model_.MaxTransferBytes(Left(cost) - step_ns - least_collective_ns_) /
           problem_.least_item_bytes();
  }

  // --- Edges ---
  // Takes the step from node `from` to `to`, if a path of it may be the best.
  // `least_ns`: of the step; `rest_ns`: of what follows.
  int Relax(int from, StepOp op, const State& to, const Lists& lists, int64_t least_ns,
            int64_t rest_ns);
  int RelaxTo(int from, StepOp op, const State& to, const Lists& lists, int64_t least_ns);
  std::optional<StepOp> Classify(const View& before, const View& after) const;
  bool IsPermutation(const Lists& before, const Lists& after) const;
  List Common(List a, List b) const;
  void Finish(int from, const View& view);
  void Expand(int from, const View& view);
  void Local(int from, const View& view);
  void Reduce(int from, const View& view);
  void Move(int from, const View& view);
  void FindNear();
  void Dive(int from);

  // Calls fn(sizes) for the sizes that a cut of list i by mesh dim d behind `list` may have.
  template <typename Fn>
  void ForEachSizes(List list, int d, int i, const Fn& fn) const {
    fn(CutSizes::kCeil);
    if (list != CutTable::kNoCuts || !problem_.HasRagged()) return;
    for (const CutSizes sizes : {CutSizes::kSource, CutSizes::kTarget}) {
      if (problem_.HasCut(d, tensor_dims_[i], sizes)) fn(sizes);
    }
  }
  // Whether a cut by mesh dim d makes the same pieces as the last of `list`.
  bool IsAlike(List list, int d, CutSizes sizes) const {
    return problem_.CutAlike(table_.last(list), table_.sizes(list), d, sizes);
  }
  // Calls leaf(lists, left) with all lists that extend `base` by mesh dims out of `pool`, of which
  // `left` are over, as long as a rank lacks no more than `limit` items of the target. `alike`:
  // only lists whose cuts make the same pieces as these.
  template <typename Leaf>
  void ForEachExtension(const Lists& base, DimMask pool, int64_t limit, const Leaf& leaf,
                        const Lists* alike = nullptr);

  // Calls leaf(kept) with the lists that are left when innermost cuts are taken off, or none.
  template <typename Leaf>
  void ForEachPrefix(const Lists& lists, const Leaf& leaf);

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules& rules_;
  CutTable table_;
  int num_lists_ = 0;
  std::array<int, kMaxTensorRank> tensor_dims_ = {};  // by list
  int num_samples_ = 0;
  // Items that samples want; of the tensor dims from i on.
  std::array<Samples, kMaxTensorRank + 1> wanted_from_;
  // Of a value on the way. Where it must be cast to be reduced, it may grow to what the source is
  // in that dtype.
  int64_t max_items_ = 0;
  int64_t max_bytes_ = 0;
  int64_t least_collective_ns_ = 0;
  int64_t least_finish_ns_ = 0;  // of local steps that lead to the target
  bool masks_target_ = false;
  bool partials_change_ = false;  // something is reduced, or masked
  bool has_casts_ = false;
  bool packs_elements_ = false;
  int64_t total_elements_ = 1;
  int64_t wanting_ = 1;  // ranks that hold an element in the target, for each of the
  int64_t classes_ = 1;  // coordinates of dims that stay partial
  View target_;
  std::vector<View> finished_;          // local steps lead to the target
  std::vector<State> finished_states_;  // sorted
  struct Near {
    Lists lists;
    uint64_t partial_code;
    int64_t missing;  // of the target
  };
  std::vector<Near> near_;  // what exchanges lead to, the nearest to the target first
  bool found_near_ = false;
  int64_t bound_ns_ = INT64_MAX;
  std::optional<PathCost> best_;  // of a path to the target that is known
  SearchNodes nodes_;
  std::priority_queue<OpenEntry, std::vector<OpenEntry>, std::greater<>> open_;
};

Search::Search(const Problem& problem, const CostModel& model, const TransitionRules& rules)
    : problem_(problem), model_(model), rules_(rules), table_(problem) {
  for (int k : problem.candidate_dims()) tensor_dims_[num_lists_++] = k;
  num_samples_ = table_.num_samples();
  for (int k = 0; k < problem.tensor_rank(); ++k) total_elements_ *= problem.extent(k);
  int64_t uncut = 1;  // items along the tensor dims that nothing ever cuts
  for (int k = 0, i = 0; k < problem.tensor_rank(); ++k) {
    if (i < num_lists_ && tensor_dims_[i] == k) {
      ++i;
    } else {
      uncut *= problem.extent(k);
    }
  }
  wanted_from_[num_lists_].fill(uncut);
  for (int i = num_lists_; i-- > 0;) {
    for (int s = 0; s < num_samples_; ++s) {
      wanted_from_[i][s] = wanted_from_[i + 1][s] * table_.Target(tensor_dims_[i])[s];
    }
  }
  const State& source = problem.source();
  const State& target = problem.target();
  max_items_ = std::max(problem.MaxItems(source), problem.MaxItems(target));
  max_bytes_ = std::max({problem.MaxBytes(source), problem.MaxBytes(target),
                         problem.MaxBytes(source.AtStage(problem.reduce_stage()))});
  for (int d = 0; d < problem.num_dims(); ++d) {
    masks_target_ |= target.IsPartial(d) && !source.IsPartial(d);
    partials_change_ |= target.IsPartial(d) != source.IsPartial(d);
    if (target.IsReplicate(d)) wanting_ *= problem.size(d);
    if (problem.StaysPartial(d)) classes_ *= problem.size(d);
  }
  has_casts_ = problem.num_stages() > 1;
  packs_elements_ = problem.from().dtype() == DType::kF4E2M1;
  least_collective_ns_ = model.LeastCollectiveNs() + model.LeastHopNs();
  // The last local step makes the target; a cast reads the wider value, or writes it.
  least_finish_ns_ = model.CopyNs(problem.MaxBytes(target) / (has_casts_ ? 2 : 1));
  target_ = Look(target);
}

View Search::Look(const State& state) {
  View view;
  view.state = state;
  std::array<std::array<int8_t, kMaxStateDims>, kMaxTensorRank> dims;
  std::array<int8_t, kMaxTensorRank> sizes = {};
  std::array<CutSizes, kMaxTensorRank> outermost = {};
  for (int d = 0; d < problem_.num_dims(); ++d) {
    const DimMask bit = DimMask{1} << d;
    if (state.IsReplicate(d)) {
      view.replicated |= bit;
    } else if (state.IsShard(d)) {
      view.cut |= bit;
      dims[state.tensor_dim(d)][state.place(d)] = static_cast<int8_t>(d);
      ++sizes[state.tensor_dim(d)];
      if (state.place(d) == 0) outermost[state.tensor_dim(d)] = state.cut_sizes(d);
    } else {
      view.partial |= bit;
      if (!problem_.target().IsPartial(d)) view.reducible |= bit;
      view.partial_code |= state.code() & uint64_t{255} << (8 * d);
    }
  }
  for (int i = 0; i < num_lists_; ++i) {
    const int k = tensor_dims_[i];
    List list = CutTable::kNoCuts;
    for (int place = 0; place < sizes[k]; ++place) {
      list = table_.Append(list, dims[k][place], place == 0 ? outermost[k] : CutSizes::kCeil);
    }
    view.lists[i] = list;
  }
  return view;
}

int64_t Search::MaxItems(const Lists& lists) {
  int64_t items = wanted_from_[num_lists_][0];
  for (int i = 0; i < num_lists_; ++i) items *= Along(lists[i], i).longest;
  return items;
}

int64_t Search::MissingOfTarget(const Lists& lists) {
  Samples held = wanted_from_[num_lists_];
  for (int i = 0; i < num_lists_; ++i) {
    const Samples& wanted = Along(lists[i], i).wanted;
    for (int s = 0; s < num_samples_; ++s) held[s] *= wanted[s];
  }
  int64_t missing = 0;
  for (int s = 0; s < num_samples_; ++s) {
    missing = std::max(missing, wanted_from_[0][s] - held[s]);
  }
  return missing;
}

int64_t Search::LeastMoveNs(StepOp op, int stage, const Lists& before, const Lists& after) {
  Samples kept = wanted_from_[num_lists_];
  Samples all = wanted_from_[num_lists_];
  int64_t largest = wanted_from_[num_lists_][0];  // that a message can be
  DimMask dims = 0;
  for (int i = 0; i < num_lists_; ++i) {
    const CutTable::Pieces& a = Along(before[i], i);
    const CutTable::Pieces& b = Along(after[i], i);
    largest *= std::min(a.longest, b.longest);
    for (int s = 0; s < num_samples_; ++s) {
      all[s] *= b.end[s] - b.begin[s];
      const int64_t begin = std::max(a.begin[s], b.begin[s]);
      kept[s] *= std::max<int64_t>(std::min(a.end[s], b.end[s]) - begin, 0);
    }
    if (before[i] == after[i]) continue;
    const DimMask common = table_.dims(Common(before[i], after[i]));
    dims |= (table_.dims(before[i]) | table_.dims(after[i])) & ~common;
  }
  int64_t missing = 0;
  int64_t most_kept = 0;
  for (int s = 0; s < num_samples_; ++s) {
    missing = std::max(missing, all[s] - kept[s]);
    most_kept = std::max(most_kept, kept[s]);
  }
  const int64_t item_bytes = problem_.item_bytes(stage);
  int64_t ns =
      SaturatingAdd(model_.StartNs(dims), model_.TransferNs(SaturatingMul(missing, item_bytes)));
  if (op == StepOp::kAllGather) return ns;
  if (missing > 0) {
    const int64_t messages = op == StepOp::kPermute ? 1 : CeilDiv(missing, largest);
    ns = SaturatingAdd(ns, SaturatingMul(model_.MessageNs(), messages));
  }
  if (op == StepOp::kPermute || most_kept == 0) return ns;
  return SaturatingAdd(ns, model_.CopyNs(SaturatingMul(most_kept, item_bytes)));
}

int64_t Search::Contributions(DimMask partial) const {
  int64_t contributions = 1;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (Has(partial, d) && !problem_.target().IsPartial(d)) contributions *= problem_.size(d);
  }
  return contributions;
}

int64_t Search::LeastReductionNs(int64_t contributions) const {
  // As in the lower bound of a plan (assemble.cc): messages per element, over all ranks.
  if (masks_target_) return least_collective_ns_;
  const __int128 messages =
      static_cast<__int128>(total_elements_) * (wanting_ + contributions - 2) * classes_;
  return CollectiveNs(
      static_cast<int64_t>(std::min<__int128>(messages / problem_.mesh().NumRanks(), INT64_MAX)));
}

int64_t Search::LeastRestNs(const State& state, const Lists& lists, int64_t contributions) {
  if (state == problem_.target()) return 0;
  if (contributions > 1) return LeastReductionNs(contributions);
  if (IsFinished(state)) return least_finish_ns_;
  // A masked value may come from any member: no bound on what is moved.
  if (masks_target_) return least_collective_ns_;
  return CollectiveNs(MissingOfTarget(lists));
}

int64_t Search::LeastLocalNs(const View& view) {
  if (!rules_.single_sourced || rules_.exact || view.reducible == 0 || view.replicated == 0) {
    return 0;
  }
  int64_t copies = 1;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (Has(view.replicated, d)) copies *= problem_.size(d);
  }
  const int64_t sliced = MaxItems(view.lists) / copies * problem_.least_item_bytes();
  return std::min(model_.CopyNs(sliced), least_collective_ns_);
}

int Search::Relax(int from, StepOp op, const State& to, const Lists& lists, int64_t least_ns,
                  int64_t rest_ns) {
  const PathCost cost = nodes_[from].cost;
  if (SaturatingAdd(SaturatingAdd(cost.ns, least_ns), rest_ns) > bound_ns_) return -1;
  const int64_t items = MaxItems(lists);
  if (items > max_items_) return -1;
  if (SaturatingMul(items, problem_.item_bytes(to.stage())) > max_bytes_) return -1;
  if (packs_elements_ && !problem_.IsAligned(to)) return -1;
  if (op == StepOp::kExchange && model_.IsChosenGather(nodes_[from].state, to)) return -1;
  const int known = nodes_.Find(to);
  if (known >= 0 && nodes_[known].cost.ns < SaturatingAdd(cost.ns, least_ns)) return -1;
  const Traffic traffic = model_.Measure(op, nodes_[from].state, to);
  const PathCost next{.ns = SaturatingAdd(cost.ns, traffic.est_ns),
                      .bytes = SaturatingAdd(cost.bytes, traffic.bytes_sent),
                      .steps = cost.steps + 1};
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
  node = {.state = to, .cost = next, .before = from, .op = op, .done = false};
  if (to == problem_.target()) {
    best_ = next;
    bound_ns_ = std::min(bound_ns_, next.ns);
  }
  open_.push({estimate, next, to, index});
  return index;
}

int Search::RelaxTo(int from, StepOp op, const State& to, const Lists& lists, int64_t least_ns) {
  DimMask partial = 0;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (to.IsPartial(d)) partial |= DimMask{1} << d;
  }
  return Relax(from, op, to, lists, least_ns, LeastRestNs(to, lists, Contributions(partial)));
}

// --- Which step leads from one state to another ---

List Search::Common(List a, List b) const {
  while (a != b) {
    if (table_.size(a) >= table_.size(b)) {
      a = table_.Parent(a);
    } else {
      b = table_.Parent(b);
    }
  }
  return a;
}

bool Search::IsPermutation(const Lists& before, const Lists& after) const {
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

// CollectiveBetween (transitions.h) on lists. REQUIRES: equal stages.
std::optional<StepOp> Search::Classify(const View& before, const View& after) const {
  DimMask from = 0;  // moving cuts
  DimMask to = 0;
  for (int i = 0; i < num_lists_; ++i) {
    if (before.lists[i] == after.lists[i]) continue;
    const List common = Common(before.lists[i], after.lists[i]);
    from |= table_.dims(before.lists[i]) & ~table_.dims(common);
    to |= table_.dims(after.lists[i]) & ~table_.dims(common);
  }
  if (before.partial_code == after.partial_code) {
    if (from == 0) return std::nullopt;  // a slice, or nothing
    if (to == 0) return StepOp::kAllGather;
    if (IsPermutation(before.lists, after.lists)) return StepOp::kPermute;
    return from == to ? StepOp::kAllToAll : StepOp::kExchange;
  }
  // The cuts that were there stay outermost; those added are the reduced dims.
  const DimMask reduced = before.partial & ~after.partial;
  if ((after.partial & ~before.partial) != 0 || from != 0) return std::nullopt;
  if ((before.partial_code & after.partial_code) != after.partial_code) return std::nullopt;
  if (before.state.stage() != problem_.reduce_stage()) return std::nullopt;
  if ((reduced & ~before.reducible) != 0) return std::nullopt;
  if (rules_.at_once && reduced != before.reducible) return std::nullopt;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (Has(reduced, d) && before.state.op(d) == ReduceOp::kAvg && reduced != before.reducible) {
      return std::nullopt;
    }
  }
  if (rules_.single_sourced && !rules_.exact && before.replicated != 0) return std::nullopt;
  if (to == 0) return StepOp::kAllReduce;
  if (to == reduced && rules_.scatters) return StepOp::kReduceScatter;
  return std::nullopt;
}

// --- Expansion ---

template <typename Leaf>
void Search::ForEachExtension(const Lists& base, DimMask pool, int64_t limit, const Leaf& leaf,
                              const Lists* alike) {
  struct Recursion {
    Search& search;
    const Lists& base;
    const Leaf& leaf;
    const Lists* alike;
    bool prunes = false;
    Samples needed;  // items that a sample must hold of the target
    Lists lists;
    std::array<Samples, kMaxTensorRank> held;  // along the tensor dims before

    void Go(int i, List list, DimMask pool) {
      if (i == search.num_lists_) {
        leaf(lists, pool);
        return;
      }
      if (prunes) {
        const Samples& wanted = search.Along(list, i).wanted;
        const Samples& rest = search.wanted_from_[i + 1];
        for (int s = 0; s < search.num_samples_; ++s) {
          const int64_t product = held[i][s] * wanted[s];
          if (product * rest[s] < needed[s]) return;
          held[i + 1][s] = product;
        }
      }
      lists[i] = list;
      List model = CutTable::kNoCuts;  // where the cut that comes next is like that list's last
      if (alike != nullptr) {
        model = (*alike)[i];
        const int size = search.table_.size(list);
        if (search.table_.size(model) == size) {
          Go(i + 1, i + 1 < search.num_lists_ ? base[i + 1] : CutTable::kNoCuts, pool);
          return;
        }
        while (search.table_.size(model) > size + 1) model = search.table_.Parent(model);
      } else {
        Go(i + 1, i + 1 < search.num_lists_ ? base[i + 1] : CutTable::kNoCuts, pool);
      }
      for (DimMask left = pool; left != 0; left &= left - 1) {
        const int d = __builtin_ctz(left);
        search.ForEachSizes(list, d, i, [&](CutSizes sizes) {
          if (model != CutTable::kNoCuts && !search.IsAlike(model, d, sizes)) return;
          Go(i, search.table_.Append(list, d, sizes), pool & ~(DimMask{1} << d));
        });
      }
    }
  };
  if (num_lists_ == 0) return;
  Recursion recursion{*this, base, leaf, alike, false, {}, base, {}};
  for (int s = 0; s < num_samples_; ++s) {
    recursion.needed[s] = wanted_from_[0][s] - std::min(limit, wanted_from_[0][s]);
    recursion.prunes |= recursion.needed[s] > 0;
    recursion.held[0][s] = 1;
  }
  recursion.Go(0, base[0], pool);
}

template <typename Leaf>
void Search::ForEachPrefix(const Lists& lists, const Leaf& leaf) {
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

// Collectives that lead to states that local steps finish.
void Search::Finish(int from, const View& view) {
  for (const View& last : finished_) {
    if (last.state.stage() != view.state.stage() || last.state == view.state) continue;
    const std::optional<StepOp> op = Classify(view, last);
    if (!op) continue;
    const int64_t rest = last.state == problem_.target() ? 0 : least_finish_ns_;
    const auto least = [&](StepOp step) {
      if (IsReduction(step)) return least_collective_ns_;
      return LeastMoveNs(step, view.state.stage(), view.lists, last.lists);
    };
    Relax(from, *op, last.state, last.lists, least(*op), rest);
    // Where nothing is packed, or nothing padded, an exchange may be cheaper.
    if (*op == StepOp::kAllGather || *op == StepOp::kPermute) {
      Relax(from, StepOp::kExchange, last.state, last.lists, least(StepOp::kExchange), rest);
    }
  }
}

void Search::Expand(int from, const View& view) {
  Local(from, view);
  if (view.state.stage() == problem_.reduce_stage()) Reduce(from, view);
  Move(from, view);
}

void Search::Local(int from, const View& view) {
  ForEachCastAndMask(problem_, view.state, rules_, [&](StepOp op, DimMask, const State& next) {
    RelaxTo(from, op, next, Look(next).lists, 0);
  });
  // Two slices are one.
  if (view.replicated == 0 || (nodes_[from].before >= 0 && nodes_[from].op == StepOp::kSlice)) {
    return;
  }
  const int64_t contributions = Contributions(view.partial);
  const int64_t least = model_.CopyNs(0);
  int64_t limit = INT64_MAX;
  if (contributions == 1 && !masks_target_) {
    if (Left(nodes_[from].cost) < least) return;
    limit = std::max<int64_t>(MissingLimit(nodes_[from].cost, least), 0);
  }
  ForEachExtension(view.lists, view.replicated, limit, [&](const Lists& lists, DimMask left) {
    if (left == view.replicated) return;
    const State next = WithLists(view.partial_code, lists, view.state.stage());
    Relax(from, StepOp::kSlice, next, lists, least, LeastRestNs(next, lists, contributions));
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
  const int64_t bytes = SaturatingMul(MaxItems(view.lists), item_bytes);
  // An average is divided once, in the last reduction.
  const auto allows = [&](DimMask dims) {
    const bool all_at_once = rules_.at_once || (dims & averaged) != 0;
    return dims != 0 && (!all_at_once || dims == view.reducible);
  };
  for (DimMask dims = view.reducible; dims != 0; dims = (dims - 1) & view.reducible) {
    if (!allows(dims)) continue;
    const State next = WithLists(without(dims), view.lists, view.state.stage());
    const int64_t n = model_.GroupSize(dims);
    const int64_t sent = MulDivCeil(bytes, 2 * (n - 1), n);
    const int64_t least = SaturatingAdd(model_.StartNs(dims), model_.TransferNs(sent));
    RelaxTo(from, StepOp::kAllReduce, next, view.lists, least);
  }
  if (!rules_.scatters) return;
  ForEachExtension(view.lists, view.reducible, INT64_MAX, [&](const Lists& lists, DimMask left) {
    const DimMask dims = view.reducible & ~left;
    if (!allows(dims)) return;
    const State next = WithLists(without(dims), lists, view.state.stage());
    const int64_t received =
        SaturatingMul(MaxItems(lists), (model_.GroupSize(dims) - 1) * item_bytes);
    const int64_t least = SaturatingAdd(model_.StartNs(dims), model_.TransferNs(received));
    RelaxTo(from, StepOp::kReduceScatter, next, lists, least);
  });
}

// all_gather, all_to_all, permute and exchange.
void Search::Move(int from, const View& view) {
  const int64_t contributions = Contributions(view.partial);
  const bool bounded = contributions == 1 && !masks_target_;
  const auto relax = [&](StepOp op, const Lists& lists) {
    if (lists == view.lists) return;
    const State next = WithLists(view.partial_code, lists, view.state.stage());
    const int64_t rest = LeastRestNs(next, lists, contributions);
    if (SaturatingAdd(SaturatingAdd(nodes_[from].cost.ns, least_collective_ns_), rest) >
        bound_ns_) {
      return;
    }
    Relax(from, op, next, lists, LeastMoveNs(op, view.state.stage(), view.lists, lists), rest);
  };
  const auto limit = [&] {
    return bounded ? MissingLimit(nodes_[from].cost, least_collective_ns_) : INT64_MAX;
  };
  if (SaturatingAdd(nodes_[from].cost.ns, 2 * least_collective_ns_) > bound_ns_) return;
  FindNear();
  for (const Near& near : near_) {
    if (bounded && near.missing > limit()) break;
    if (near.partial_code != view.partial_code) continue;
    relax(StepOp::kExchange, near.lists);
  }
  ForEachPrefix(view.lists, [&](const Lists& lists) { relax(StepOp::kAllGather, lists); });
  ForEachExtension({}, view.cut, limit(), [&](const Lists& lists, DimMask left) {
    if (left == 0 && !IsPermutation(view.lists, lists)) relax(StepOp::kAllToAll, lists);
  });
  // Permutations: as many cuts of the same sizes, by these dims or replicated ones.
  ForEachExtension(
      {}, view.cut | view.replicated, limit(),
      [&](const Lists& lists, DimMask) { relax(StepOp::kPermute, lists); }, &view.lists);
}

// --- Where exchanges lead ---

void Search::FindNear() {
  if (found_near_) return;
  found_near_ = true;
  const bool bounded = !masks_target_;
  const int64_t limit = bounded ? MissingLimit({}, least_collective_ns_) : INT64_MAX;
  const auto add = [&](const Lists& lists, uint64_t partial_code) {
    near_.push_back({lists, partial_code, MissingOfTarget(lists)});
  };
  // Before an all_gather, or the target.
  ForEachExtension(target_.lists, target_.replicated, limit,
                   [&](const Lists& lists, DimMask) { add(lists, target_.partial_code); });
  // Before a slice, an all_to_all or a permutation.
  ForEachPrefix(target_.lists, [&](const Lists& lists) {
    if (lists != target_.lists) add(lists, target_.partial_code);
  });
  ForEachExtension({}, target_.cut, limit, [&](const Lists& lists, DimMask left) {
    if (left == 0 && lists != target_.lists) add(lists, target_.partial_code);
  });
  if (partials_change_) {
    for (const State& state : NearTargetInPartials(problem_, /*towards_target=*/false)) {
      const View view = Look(state);
      add(view.lists, view.partial_code);
    }
  }
  std::sort(near_.begin(), near_.end(),
            [](const Near& a, const Near& b) { return a.missing < b.missing; });
}

// A path to the target, which bounds the rest: what is replicated is sliced and all is reduced at
// once, towards the target as far as that goes.
void Search::Dive(int from) {
  View view = Look(nodes_[from].state);
  const auto towards_target = [&](DimMask dims) {
    Lists lists = view.lists;
    int spare = 0;
    for (int i = 0; i < num_lists_; ++i) {
      if (tensor_dims_[i] == problem_.largest_dim()) spare = i;
      const List wanted = target_.lists[i];
      while (true) {
        List next = wanted;
        while (table_.size(next) > table_.size(lists[i]) + 1) next = table_.Parent(next);
        if (table_.size(next) != table_.size(lists[i]) + 1 || table_.Parent(next) != lists[i] ||
            !Has(dims, table_.last(next))) {
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
  };
  while (view.state.stage() < problem_.reduce_stage()) {
    from = RelaxTo(from, StepOp::kCast, view.state.AtStage(view.state.stage() + 1), view.lists, 0);
    if (from < 0) return;
    view = Look(nodes_[from].state);
  }
  if (view.replicated != 0 && rules_.single_sourced && !rules_.exact && num_lists_ > 0) {
    Finish(from, view);
    const Lists lists = towards_target(view.replicated);
    const State next = WithLists(view.partial_code, lists, view.state.stage());
    from = RelaxTo(from, StepOp::kSlice, next, lists, 0);
    if (from < 0) return;
    view = Look(next);
  }
  Finish(from, view);
  if (view.reducible == 0 || num_lists_ == 0 || !rules_.scatters) return;
  const Lists lists = towards_target(view.reducible);
  const State next = WithLists(target_.partial_code & view.partial_code, lists, view.state.stage());
  from = RelaxTo(from, StepOp::kReduceScatter, next, lists, 0);
  if (from >= 0) Finish(from, Look(next));
}

std::optional<Path> Search::Run() {
  if (problem_.source() == problem_.target()) return Path{};
  finished_states_ = LocallyFinished(problem_);
  for (const State& state : finished_states_) finished_.push_back(Look(state));
  std::sort(finished_states_.begin(), finished_states_.end());
  bool is_new = false;
  const int source = nodes_.FindOrAdd(problem_.source(), &is_new);
  open_.push({{}, {}, problem_.source(), source});
  if (Look(problem_.source()).reducible != 0 && !masks_target_) Dive(source);
  while (!open_.empty()) {
    OpenEntry entry = open_.top();
    open_.pop();
    if (nodes_[entry.node].done || nodes_[entry.node].cost != entry.cost) continue;
    if (best_ && *best_ < entry.estimate) break;
    if (entry.state == problem_.target()) break;
    const View view = Look(entry.state);
    if (!entry.finishing_done) {
      Finish(entry.node, view);
      // What is left takes a local step, or two collectives.
      int64_t rest = least_finish_ns_;
      if (!IsFinished(entry.state)) {
        const SearchNode& node = nodes_[entry.node];
        const bool sliced = node.before >= 0 && node.op == StepOp::kSlice;
        const bool may_be_local =
            has_casts_ || partials_change_ || (view.replicated != 0 && !sliced);
        rest = SaturatingAdd(
            LeastRestNs(entry.state, view.lists, Contributions(view.partial)),
            std::max(LeastLocalNs(view), may_be_local ? model_.CopyNs(0) : least_collective_ns_));
      }
      entry.finishing_done = true;
      entry.estimate.ns = std::max(entry.estimate.ns, SaturatingAdd(entry.cost.ns, rest));
      if (entry.estimate.ns <= bound_ns_) open_.push(entry);
      continue;
    }
    nodes_[entry.node].done = true;
    Expand(entry.node, view);
  }
  if (!best_) return std::nullopt;
  Path path;
  for (int i = nodes_.Find(problem_.target()); i != source; i = nodes_[i].before) {
    path.moves.push_back({nodes_[i].op, nodes_[i].state});
  }
  std::reverse(path.moves.begin(), path.moves.end());
  return path;
}

}  // namespace

std::optional<Path> FindCheapest(const Problem& problem, const CostModel& model,
                                 const TransitionRules& rules) {
  return Search(problem, model, rules).Run();
}

}  // namespace meshift
