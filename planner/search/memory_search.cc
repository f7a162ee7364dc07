#include "planner/search/memory_search.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/checked_math.h"
#include "planner/search/edges.h"

namespace meshift {
namespace {

int64_t NsOf(const Problem& problem, const CostModel& model, const Path& path) {
  int64_t ns = 0;
  State before = problem.source();
  for (const Move& move : path.moves) {
    ns = SaturatingAdd(ns, model.Measure(move.op, before, move.after).est_ns);
    before = move.after;
  }
  return ns;
}

// Of a path to a state. Of paths that need the same the first one counts; the time says which state
// is gone on from first, so that it is as a rule no bad one.
struct Label {
  int64_t workspace = INT64_MAX;
  int64_t ns = INT64_MAX;
  friend auto operator<=>(const Label&, const Label&) = default;  // NOLINT(modernize-use-nullptr)
};

// An edge that is measured takes as long as so many that are not.
constexpr int64_t kMeasured = 16;
// Work of a state that is kept: mostly its memory.
constexpr int64_t kKeepWork = 64;

class WidestPath {
 public:
  WidestPath(const Problem& problem, const CostModel& model, const TransitionRules& rules,
             int64_t max_edges)
      : problem_(problem),
        model_(model),
        max_edges_(max_edges),
        edges_(problem, model, rules),
        least_bytes_(model.LeastHeldBytes()) {}

  // A path that needs less than `known`, if one is found.
  std::optional<LeastPath> Below(int64_t known);
  // Whether Below() has looked at all that might need less than what it found.
  bool is_done() const { return is_done_; }

 private:
  struct Node {
    State state;
    Label label;
    int64_t bytes = 0;  // in the workspace
    int before = -1;
    StepOp op = StepOp::kSlice;
    bool may_hold = false;
    bool done = false;
  };
  int NodeOf(const State& state);
  void Relax(int from, StepOp op, int to);

  const Problem& problem_;
  const CostModel& model_;
  const int64_t max_edges_;
  const Edges edges_;
  const int64_t least_bytes_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<State, int> numbers_;
  using Entry = std::tuple<Label, State, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
  int64_t limit_ = 0;  // that labels are below
  int64_t seen_ = 0;   // edges
  bool is_done_ = true;
};

int WidestPath::NodeOf(const State& state) {
  const auto [at, is_new] = numbers_.try_emplace(state, static_cast<int>(nodes_.size()));
  if (is_new) {
    problem_.Charge(kKeepWork);
    nodes_.push_back({.state = state,
                      .label = {},
                      .bytes = model_.HeldBytes(state),
                      .may_hold = edges_.MayHold(state)});
  }
  return at->second;
}

void WidestPath::Relax(int from, StepOp op, int to) {
  const Node& before = nodes_[from];
  Node& after = nodes_[to];
  if (after.done || !after.may_hold || !model_.Allows(op, before.state, after.state)) return;
  // Less than this leads nowhere new; what a step needs at least leaves most of them unmeasured.
  const int64_t most = std::min(limit_, after.label.workspace);
  if (std::max(before.label.workspace, SaturatingAdd(before.bytes, after.bytes)) >= most) return;
  if (model_.LeastWorkspaceBytes(op, before.state, after.state) >= most) return;
  seen_ += kMeasured;
  const Traffic traffic = model_.Measure(op, before.state, after.state);
  const Label label{std::max(before.label.workspace,
                             model_.WorkspaceBytes(op, before.state, after.state, traffic)),
                    SaturatingAdd(before.label.ns, traffic.est_ns)};
  if (label.workspace >= most) return;
  after.label = label;
  after.before = from;
  after.op = op;
  open_.push({label, after.state, to});
}

std::optional<LeastPath> WidestPath::Below(int64_t known) {
  limit_ = known;
  const int source = NodeOf(problem_.source());
  const int target = NodeOf(problem_.target());
  nodes_[source].label = {0, 0};
  open_.push({nodes_[source].label, problem_.source(), source});
  while (!open_.empty()) {
    const auto [label, state, from] = open_.top();
    if (label.workspace >= limit_) break;  // as the target's is
    if (seen_ >= max_edges_ || !problem_.HasWorkLeft()) {
      is_done_ = false;
      break;
    }
    open_.pop();
    if (nodes_[from].done || nodes_[from].label != label) continue;
    nodes_[from].done = true;
    // Where no other value has room beside this one, only the target is left.
    if (from != source && SaturatingAdd(nodes_[from].bytes, least_bytes_) >= limit_) {
      edges_.ForEachToTarget(state, [&, from = from](StepOp op) { Relax(from, op, target); });
      limit_ = std::min(limit_, nodes_[target].label.workspace);
      continue;
    }
    edges_.ForEach(state, [&, from = from](StepOp op, DimMask, const State& next) {
      // Of one state of a mesh of six dims there may be more than all that are looked at.
      if (seen_ >= max_edges_) {
        is_done_ = false;
        return;
      }
      ++seen_;
      const int to = NodeOf(next);
      Relax(from, op, to);
      if (to == target) limit_ = std::min(limit_, nodes_[to].label.workspace);
    });
  }
  if (nodes_[target].before < 0) return std::nullopt;
  LeastPath found{{}, nodes_[target].label.workspace};
  for (int i = target; i != source; i = nodes_[i].before) {
    found.path.moves.push_back({nodes_[i].op, nodes_[i].state});
  }
  std::reverse(found.path.moves.begin(), found.path.moves.end());
  return found;
}

// `cheapest`: a path, which bounds the rest.
LeastPath LeastBelow(const Problem& problem, const CostModel& model, const TransitionRules& rules,
                     Path cheapest, int64_t max_edges) {
  // Its steps may be done otherwise under another limit.
  for (Move& move : cheapest.moves) move.traffic.reset();
  const CostModel least = model.WithMaxWorkspace(0);
  const int64_t known = WorkspaceOf(problem, least, cheapest);
  // The value before the last step, and that behind the first one, are never left out.
  if (known > std::max(least.HeldBytes(problem.source()), least.HeldBytes(problem.target()))) {
    WidestPath widest(problem, least, rules, max_edges);
    std::optional<LeastPath> found = widest.Below(known);
    if (!found) return {std::move(cheapest), known, widest.is_done()};
    found->is_least = widest.is_done();
    return *std::move(found);
  }
  return {std::move(cheapest), known};
}

}  // namespace

int64_t WorkspaceOf(const Problem& problem, const CostModel& model, const Path& path) {
  int64_t most = 0;
  State before = problem.source();
  for (const Move& move : path.moves) {
    const Traffic traffic = model.Measure(move.op, before, move.after);
    most = std::max(most, model.WorkspaceBytes(move.op, before, move.after, traffic));
    before = move.after;
  }
  return most;
}

std::optional<LeastPath> FindLeastWorkspace(const Problem& problem, const CostModel& model,
                                            const TransitionRules& rules, int64_t max_edges) {
  std::optional<Path> cheapest = FindCheapest(problem, model.WithMaxWorkspace(std::nullopt), rules);
  if (!cheapest) return std::nullopt;
  return LeastBelow(problem, model, rules, *std::move(cheapest), max_edges);
}

std::optional<LimitedPath> FindWithin(const Problem& problem, const CostModel& model,
                                      const TransitionRules& rules, int64_t bound_ns) {
  if (!model.max_workspace()) {
    std::optional<Path> cheapest = FindCheapest(problem, model, rules, bound_ns);
    if (!cheapest) return std::nullopt;
    return LimitedPath{std::move(cheapest)};
  }
  const CostModel free = model.WithMaxWorkspace(std::nullopt);
  std::optional<Path> cheapest = FindCheapest(problem, free, rules, bound_ns);
  if (!cheapest) return std::nullopt;
  if (WorkspaceOf(problem, free, *cheapest) <= *model.max_workspace()) {
    return LimitedPath{std::move(cheapest)};
  }
  LeastPath least = LeastBelow(problem, model, rules, *std::move(cheapest), kMaxMemoryEdges);
  if (least.workspace > *model.max_workspace()) {
    return LimitedPath{{}, least.workspace, least.is_least};
  }
  // A path that keeps to the limit bounds the others.
  const int64_t least_ns = NsOf(problem, model, least.path);
  std::optional<Path> found = FindCheapest(problem, model, rules, std::min(least_ns, bound_ns));
  if (found) return LimitedPath{std::move(found)};
  return least_ns <= bound_ns ? std::optional(LimitedPath{std::move(least.path)}) : std::nullopt;
}

}  // namespace meshift
