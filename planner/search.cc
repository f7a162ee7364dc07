#include "planner/search.h"

#include <algorithm>
#include <array>
#include <compare>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "base/checked_math.h"
#include "planner/geometry.h"

namespace meshift {
namespace {

struct Cost {
  int64_t ns = 0;
  int64_t bytes = 0;
  int steps = 0;
  friend auto operator<=>(const Cost&, const Cost&) = default;
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
    if (auto order = estimate <=> other.estimate; order != 0) return order > 0;
    return state.packed() > other.state.packed();
  }
};

class Search {
 public:
  Search(const Problem& problem, const CostModel& model, const TransitionRules& rules)
      : problem_(problem), model_(model), rules_(rules) {
    limit_ = std::max(problem.MaxElements(problem.source()), problem.MaxElements(problem.target()));
    target_cuts_ = problem.Cuts(problem.target());
    for (int d = 0; d < problem.num_dims(); ++d) {
      masks_target_ |= problem.target().IsPartial(d) && !problem.source().IsPartial(d);
    }
  }

  std::optional<Path> Run();

 private:
  bool IsPartialAlike(const State& a, const State& b) const {
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (a.IsPartial(d) != b.IsPartial(d)) return false;
      if (a.IsPartial(d) && a.op(d) != b.op(d)) return false;
    }
    return true;
  }
  // Time that every path from `state` to the target takes at least.
  int64_t LeastNs(const State& state) const;
  void Relax(const State& from, const Cost& cost, StepOp op, const State& to);
  void Expand(const State& state, const Node& node);

  const Problem& problem_;
  const CostModel& model_;
  const TransitionRules& rules_;
  int64_t limit_ = 0;  // elements of a value on the way
  bool masks_target_ = false;
  CutLists target_cuts_;
  std::vector<State> near_target_;
  std::optional<Cost> best_;  // of a path to the target that is known
  absl::flat_hash_map<State, Node> nodes_;
  std::priority_queue<OpenEntry, std::vector<OpenEntry>, std::greater<>> open_;
};

int64_t Search::LeastNs(const State& state) const {
  if (state == problem_.target()) return 0;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (state.IsPartial(d) && !problem_.target().IsPartial(d)) return model_.LeastCollectiveNs();
  }
  // A masked value may come from any member: no bound.
  if (masks_target_) return 0;
  // What the ranks at both ends of every mesh dim lack of their boxes must reach them.
  const CutLists cuts = problem_.Cuts(state);
  int64_t missing = 0;
  for (const bool last : {false, true}) {
    int64_t wanted = 1;
    int64_t held = 1;
    for (int k = 0; k < problem_.tensor_rank(); ++k) {
      Interval mine{0, problem_.extent(k)};
      Interval target = mine;
      for (int i = 0; i < cuts.of[k].size; ++i) {
        const int64_t n = problem_.size(cuts.of[k][i]);
        mine = Cut(mine, n, last ? n - 1 : 0);
      }
      for (int i = 0; i < target_cuts_.of[k].size; ++i) {
        const int64_t n = problem_.size(target_cuts_.of[k][i]);
        target = Cut(target, n, last ? n - 1 : 0);
      }
      wanted *= target.Length();
      held *= Overlap(mine, target);
    }
    missing = std::max(missing, wanted - held);
  }
  if (missing == 0) return 0;
  return SaturatingAdd(model_.LeastCollectiveNs(),
                       model_.LeastTransferNs(SaturatingMul(missing, problem_.item_bytes())));
}

void Search::Relax(const State& from, const Cost& cost, StepOp op, const State& to) {
  if (problem_.MaxElements(to) > limit_) return;
  const int64_t start = IsCollective(op) ? model_.LeastCollectiveNs() : 0;
  const int64_t rest = LeastNs(to);
  if (best_ && SaturatingAdd(SaturatingAdd(cost.ns, start), rest) > best_->ns) return;
  const Traffic traffic = model_.Measure(op, from, to);
  const Cost next{.ns = SaturatingAdd(cost.ns, traffic.est_ns),
                  .bytes = SaturatingAdd(cost.bytes, traffic.bytes_sent),
                  .steps = cost.steps + 1};
  const Cost estimate{SaturatingAdd(next.ns, rest), next.bytes, next.steps};
  if (best_ && estimate > *best_) return;
  const auto [it, is_new] = nodes_.try_emplace(to);
  Node& node = it->second;
  if (!is_new && node.cost <= next) return;
  node = {.cost = next, .before = from, .op = op, .done = false};
  if (to == problem_.target()) best_ = next;
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
  // Exchanges first: they find a way to the target at once, which bounds the rest.
  for (const State& near : near_target_) {
    if (near == state || !IsPartialAlike(near, state)) continue;
    Relax(state, cost, StepOp::kExchange, near);
  }
  ForEachTransition(problem_, state, rules_, relax);
}

std::optional<Path> Search::Run() {
  if (problem_.source() == problem_.target()) return Path{};
  near_target_ = NearTarget(problem_);
  nodes_[problem_.source()] = {};
  open_.push({{LeastNs(problem_.source()), 0, 0}, {}, problem_.source()});
  while (!open_.empty()) {
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
  return Search(problem, model, rules).Run();
}

}  // namespace meshift
