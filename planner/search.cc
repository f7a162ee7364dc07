#include "planner/search.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/checked_math.h"
#include "planner/geometry.h"

namespace meshift {
namespace {

// Edges that are measured before a search stops with the best path it knows. Problems of up to
// three mesh dims never get there.
constexpr int64_t kMaxMeasured = 20000;

struct Cost {
  int64_t ns = 0;
  int64_t bytes = 0;
  int steps = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
  friend bool operator<(const Cost& a, const Cost& b) {
    return std::tie(a.ns, a.bytes, a.steps) < std::tie(b.ns, b.bytes, b.steps);
  }
};

struct Node {
  Cost cost;
  State before;
  StepOp op = StepOp::kSlice;
  bool done = false;
};

struct OpenEntry {
  Cost estimate;  // of the whole path through the state
  Cost cost;
  State state;
  bool operator>(const OpenEntry& other) const {
    if (!(estimate == other.estimate)) return other.estimate < estimate;
    return state > other.state;
  }
};

class Search {
 public:
  // No path that takes longer than `bound_ns` is looked for.
  Search(const Problem& problem, const CostModel& model, const TransitionRules& rules,
         int64_t bound_ns)
      : problem_(problem), model_(model), rules_(rules), bound_ns_(bound_ns) {
    const State& source = problem.source();
    max_items_ = std::max(problem.MaxItems(source), problem.MaxItems(problem.target()));
    max_bytes_ = std::max({problem.MaxBytes(source), problem.MaxBytes(problem.target()),
                           problem.MaxBytes(source.AtStage(problem.reduce_stage()))});
    target_cuts_ = problem.Cuts(problem.target());
    for (int k = 0; k < problem.tensor_rank(); ++k) total_elements_ *= problem.extent(k);
    for (int d = 0; d < problem.num_dims(); ++d) {
      masks_target_ |= problem.target().IsPartial(d) && !problem.source().IsPartial(d);
      if (problem.target().IsReplicate(d)) wanting_ *= problem.size(d);
      if (problem.StaysPartial(d)) classes_ *= problem.size(d);
    }
  }

  std::optional<Path> Run();
  int64_t best_ns() const { return best_ ? best_->ns : INT64_MAX; }

 private:
  bool IsPartialAlike(const State& a, const State& b) const {
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (a.IsPartial(d) != b.IsPartial(d)) return false;
      if (a.IsPartial(d) && a.op(d) != b.op(d)) return false;
    }
    return true;
  }
  int64_t Missing(const CutLists& from, const CutLists& to) const;
  // Time of a collective that brings a rank `elements` at least.
  int64_t CollectiveNs(int64_t elements) const;
  // Time that every path from `state`, which has these cuts, to the target takes at least.
  int64_t LeastNs(const State& state, const CutLists& cuts) const;
  void Relax(const State& from, const Cost& cost, StepOp op, const State& to);
  void Expand(const State& state, const Node& node);

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules& rules_;
  // Of a value on the way. Where it must be cast to be reduced, it may grow to what the source is
  // in that dtype.
  int64_t max_items_ = 0;
  int64_t max_bytes_ = 0;
  bool masks_target_ = false;
  CutLists target_cuts_;
  std::vector<State> near_target_;
  std::vector<State> finished_list_;  // local steps lead to the target
  absl::flat_hash_set<State> finished_;
  int64_t bound_ns_;
  int64_t measured_ = 0;
  std::optional<Cost> best_;  // of a path to the target that is known
  int64_t total_elements_ = 1;
  int64_t wanting_ = 1;  // ranks that hold an element in the target, for each of the
  int64_t classes_ = 1;  // coordinates of dims that stay partial
  absl::flat_hash_map<State, Node> nodes_;
  std::priority_queue<OpenEntry, std::vector<OpenEntry>, std::greater<>> open_;
};

// Elements that some rank lacks of its box in `to`, of those that it holds in `from`: what the
// ranks at both ends of every mesh dim lack. Only cuts are looked at.
int64_t Search::Missing(const CutLists& from, const CutLists& to) const {
  int64_t missing = 0;
  for (const bool last : {false, true}) {
    int64_t wanted = 1;
    int64_t held = 1;
    for (int k = 0; k < problem_.tensor_rank(); ++k) {
      Interval mine{0, problem_.extent(k)};
      Interval target = mine;
      for (int i = 0; i < from.of[k].size; ++i) {
        const int64_t n = problem_.size(from.of[k][i]);
        mine = Cut(mine, n, last ? n - 1 : 0);
      }
      for (int i = 0; i < to.of[k].size; ++i) {
        const int64_t n = problem_.size(to.of[k][i]);
        target = Cut(target, n, last ? n - 1 : 0);
      }
      wanted *= target.Length();
      held *= Overlap(mine, target);
    }
    missing = std::max(missing, wanted - held);
  }
  return missing;
}

int64_t Search::CollectiveNs(int64_t elements) const {
  return SaturatingAdd(model_.LeastCollectiveNs(), model_.LeastTransferNs(SaturatingMul(
                                                       elements, problem_.least_item_bytes())));
}

int64_t Search::LeastNs(const State& state, const CutLists& cuts) const {
  if (state == problem_.target()) return 0;
  int64_t contributions = 1;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (state.IsPartial(d) && !problem_.target().IsPartial(d)) contributions *= problem_.size(d);
  }
  if (contributions > 1) {
    // As in the lower bound of a plan (assemble.cc): messages per element, over all ranks.
    if (masks_target_) return model_.LeastCollectiveNs();
    const __int128 messages =
        static_cast<__int128>(total_elements_) * (wanting_ + contributions - 2) * classes_;
    return CollectiveNs(
        static_cast<int64_t>(std::min<__int128>(messages / problem_.mesh().NumRanks(), INT64_MAX)));
  }
  // A masked value may come from any member: no bound.
  if (masks_target_) return 0;
  const int64_t missing = Missing(cuts, target_cuts_);
  return missing == 0 ? 0 : CollectiveNs(missing);
}

void Search::Relax(const State& from, const Cost& cost, StepOp op, const State& to) {
  if (problem_.MaxItems(to) > max_items_ || problem_.MaxBytes(to) > max_bytes_) return;
  if (!problem_.IsAligned(to)) return;
  // Before anything is computed: one collective now, one more unless local steps finish.
  const bool finished = finished_.contains(to);
  const int64_t least_rest = finished ? 0 : model_.LeastCollectiveNs();
  const int64_t least_step = IsCollective(op) ? model_.LeastCollectiveNs() : 0;
  if (SaturatingAdd(SaturatingAdd(cost.ns, least_step), least_rest) > bound_ns_) return;
  const CutLists cuts = problem_.Cuts(to);
  const int64_t rest = finished ? 0 : std::max(least_rest, LeastNs(to, cuts));
  if (SaturatingAdd(cost.ns, rest) > bound_ns_) return;
  if (IsCollective(op) && bound_ns_ < INT64_MAX) {
    const int64_t least = IsReduction(op) ? model_.LeastCollectiveNs()
                                          : CollectiveNs(Missing(problem_.Cuts(from), cuts));
    if (SaturatingAdd(SaturatingAdd(cost.ns, least), rest) > bound_ns_) return;
  }
  if (++measured_ > kMaxMeasured) return;
  const Traffic traffic = model_.Measure(op, from, to);
  const Cost next{.ns = SaturatingAdd(cost.ns, traffic.est_ns),
                  .bytes = SaturatingAdd(cost.bytes, traffic.bytes_sent),
                  .steps = cost.steps + 1};
  const Cost estimate{SaturatingAdd(next.ns, rest), next.bytes, next.steps};
  if (estimate.ns > bound_ns_ || (best_ && *best_ < estimate)) return;
  const auto [it, is_new] = nodes_.try_emplace(to);
  Node& node = it->second;
  if (!is_new && (node.cost < next || (node.cost == next && (node.done || node.op <= op)))) return;
  node = {.cost = next, .before = from, .op = op, .done = false};
  if (to == problem_.target()) {
    best_ = next;
    bound_ns_ = std::min(bound_ns_, next.ns);
  }
  open_.push({estimate, next, to});
}

void Search::Expand(const State& state, const Node& node) {
  const Cost cost = node.cost;
  const bool sliced = node.cost.steps > 0 && node.op == StepOp::kSlice;
  const auto relax = [&](StepOp op, DimMask, const State& next) {
    // Two slices are one.
    if (op == StepOp::kSlice && sliced) return;
    Relax(state, cost, op, next);
  };
  if (SaturatingAdd(cost.ns, 2 * model_.LeastCollectiveNs()) > bound_ns_) {
    // One more collective at most: to a state that local steps finish, or one after local steps.
    for (const State& last : finished_list_) {
      const std::optional<StepOp> op = CollectiveBetween(problem_, state, last, rules_);
      if (op) Relax(state, cost, *op, last);
    }
    ForEachLocalTransition(problem_, state, rules_, relax);
    return;
  }
  // Exchanges first: they find a way to the target at once, which bounds the rest.
  for (const State& near : near_target_) {
    if (!IsPartialAlike(near, state)) continue;
    const State next = near.AtStage(state.stage());
    if (!(next == state)) Relax(state, cost, StepOp::kExchange, next);
  }
  ForEachTransition(problem_, state, rules_, relax);
}

std::optional<Path> Search::Run() {
  if (problem_.source() == problem_.target()) return Path{};
  near_target_ = NearTarget(problem_, rules_.towards_target);
  finished_list_ = LocallyFinished(problem_);
  for (const State& state : finished_list_) finished_.insert(state);
  nodes_[problem_.source()] = {};
  open_.push({{}, {}, problem_.source()});
  while (!open_.empty() && measured_ <= kMaxMeasured) {
    const OpenEntry entry = open_.top();
    open_.pop();
    Node& node = nodes_[entry.state];
    if (node.done || node.cost != entry.cost) continue;
    node.done = true;
    if (entry.state == problem_.target()) break;
    const Node copy = node;  // the map may move while the state is expanded
    Expand(entry.state, copy);
  }
  if (!best_) return std::nullopt;
  Path path;
  for (State state = problem_.target(); !(state == problem_.source());) {
    const Node& node = nodes_[state];
    path.moves.push_back({node.op, state});
    state = node.before;
  }
  std::reverse(path.moves.begin(), path.moves.end());
  return path;
}

}  // namespace

std::optional<Path> FindCheapest(const Problem& problem, const CostModel& model,
                                 const TransitionRules& rules) {
  // A search over few of the edges first: what it finds bounds the whole one.
  TransitionRules few = rules;
  few.towards_target = true;
  Search first(problem, model, few, INT64_MAX);
  std::optional<Path> path = first.Run();
  std::optional<Path> better = Search(problem, model, rules, first.best_ns()).Run();
  return better ? better : path;
}

}  // namespace meshift
