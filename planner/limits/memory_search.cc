#include "planner/limits/memory_search.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "planner/search/best_first.h"
#include "planner/search/successors.h"

namespace meshift {
namespace {

// The label of a path to a state. Among paths of equal workspace the first one found is kept; since
// such paths are expanded in order of time, it is usually a fast one.
struct Label {
  int64_t workspace = INT64_MAX;
  int64_t ns = INT64_MAX;
  friend auto operator<=>(const Label&, const Label&) = default;  // NOLINT(modernize-use-nullptr)
};

// Measuring an edge counts as this many edges more.
constexpr int64_t kMeasured = 16;
// Units of the problem's work budget for popping an entry of the queue.
constexpr int64_t kTurnWork = 4;

// Finds a path whose largest workspace of a step is least. Like a sum, the maximum never decreases
// along a path, so best-first search applies.
class LeastWorkspaceSearch {
 public:
  LeastWorkspaceSearch(const Problem& problem, const CostModel& model, const TransitionRules& rules,
                       int64_t max_edges)
      : problem_(problem),
        model_(model),
        max_edges_(max_edges),
        successors_(problem, model, rules),
        open_(problem.source(), {0, 0}) {}

  // A path that needs less than `known` bytes, if one is found.
  std::optional<LeastPath> Below(int64_t known) {
    limit_ = known;
    open_.Run(
        problem_.target(), [&](const Label& estimate) { return IsDone(estimate); },
        [&](int node) { Expand(node); }, [&](const Step& step) { Price(step); });
    const int target = open_.Find(problem_.target());
    if (target < 0) return std::nullopt;
    LeastPath found{{}, open_.node(target).cost.workspace};
    for (const auto& node : open_.PathTo(target)) found.path.moves.push_back({node.op, node.state});
    return found;
  }
  // Whether Below() examined all paths that may need less than the one found.
  bool is_done() const { return is_done_; }

 private:
  using Step = BestFirst<Label>::Step;

  bool IsDone(const Label& estimate) {
    if (estimate.workspace >= limit_) return true;
    is_done_ = is_done_ && seen_ < max_edges_ && problem_.Charge(kTurnWork);
    return !is_done_;
  }
  // A path to the state is useful only if it needs less than this.
  int64_t MostAt(const State& state) const {
    const int known = open_.Find(state);
    return known < 0 ? limit_ : std::min(limit_, open_.node(known).cost.workspace);
  }
  void Expand(int index) {
    const auto from = open_.node(index);
    // If no other value has room beside this one, only the target can follow.
    const bool has_room =
        index == 0 || SaturatingAdd(model_.HeldBytes(from.state), model_.LeastHeldBytes()) < limit_;
    const DecodedState view = successors_.layouts().Decode(from.state);
    successors_.ForEach(view, {.only_last_collective = !has_room}, [&](const Successor& next) {
      // One state of a mesh of six dims may have more edges than max_edges_.
      is_done_ = is_done_ && ++seen_ <= max_edges_;
      if (!is_done_) return;
      const int64_t least = std::max(from.cost.workspace,
                                     model_.LeastWorkspaceBytes(next.op, from.state, next.state));
      if (least < MostAt(next.state)) {
        open_.Push({index, next.op, next.state, {least, from.cost.ns}});
      }
    });
  }
  void Price(const Step& step) {
    const auto& from = open_.node(step.from);
    if (from.cost.workspace >= MostAt(step.to)) return;
    seen_ += kMeasured;
    const Traffic traffic = model_.Measure(step.op, from.state, step.to);
    const Label label{
        std::max(from.cost.workspace, model_.WorkspaceBytes(step.op, from.state, step.to, traffic)),
        SaturatingAdd(from.cost.ns, traffic.est_ns)};
    if (label.workspace >= MostAt(step.to)) return;
    open_.Reach(step, label, label, [](int) { return false; });
    if (step.to == problem_.target()) limit_ = label.workspace;
  }

  const Problem& problem_;
  const CostModel& model_;
  const int64_t max_edges_;
  Successors successors_;
  BestFirst<Label> open_;
  int64_t limit_ = 0;  // labels must be below
  int64_t seen_ = 0;   // edges examined
  bool is_done_ = true;
};

// The least workspace, with the cheapest path as incumbent.
LeastPath LeastBelow(const Problem& problem, const CostModel& model, const TransitionRules& rules,
                     Path cheapest, int64_t max_edges) {
  const CostModel least = model.WithMaxWorkspace(0);
  const int64_t known = WorkspaceOf(problem, least, cheapest);
  // Every path holds the source and the target at some step. The incumbent is optimal if it needs
  // no more than the larger of the two.
  if (known > std::max(least.HeldBytes(problem.source()), least.HeldBytes(problem.target()))) {
    LeastWorkspaceSearch search(problem, least, rules, max_edges);
    std::optional<LeastPath> found = search.Below(known);
    if (!found) return {std::move(cheapest), known, search.is_done()};
    found->is_least = search.is_done();
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
  // This path within the limit bounds the cheapest one.
  const int64_t least_ns = CostOf(problem, model, least.path).ns;
  std::optional<Path> found = FindCheapest(problem, model, rules, std::min(least_ns, bound_ns));
  if (found) return LimitedPath{std::move(found)};
  return least_ns <= bound_ns ? std::optional(LimitedPath{std::move(least.path)}) : std::nullopt;
}

}  // namespace meshift
