// ListAlternatives (meshift/explain.h): the plans beside the best one, and the reason why each is
// not the best. The listing stops after a fixed amount of work and may then miss some, above all on
// meshes of four dims or more.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "meshift/explain.h"
#include "meshift/status.h"
#include "placement/unit_dims.h"
#include "planner/cost/cost.h"
#include "planner/cost/path_cost.h"
#include "planner/graph/state.h"
#include "planner/groups/plan_groups.h"
#include "planner/inter_mesh/cross_mesh.h"
#include "planner/intra_mesh/assemble.h"
#include "planner/intra_mesh/per_dim.h"
#include "planner/intra_mesh/reduction_choice.h"
#include "planner/plan/plan_text.h"
#include "planner/search/search.h"
#include "planner/search/successors.h"
#include "planner/search/value_rule.h"

namespace meshift {
namespace {

using Verdict = Alternative::Verdict;

// Limits of the listing: expanded states, and units of work (about a second).
constexpr int kMaxExpanded = 3000;
constexpr int64_t kMaxWork = 100'000'000;

// Ops that move cuts are one kind: they differ in price and calls, not in meaning.
std::string_view KindOf(StepOp op) {
  switch (op) {
    case StepOp::kAllToAll:
    case StepOp::kPermute:
    case StepOp::kExchange:
      return Name(StepOp::kAllGather);
    default:
      return Name(op);
  }
}

// Lists paths roughly in order of their cost: A*, whose heuristic is the cost that the search finds
// from a state to the target.
class PathLister {
 public:
  PathLister(const Problem& problem, const PlannerOptions& options, const ReductionChoice& choice,
             const CostModel& model)
      : problem_(problem),
        options_(options),
        model_(model),
        successors_(problem, model, choice.rules),
        most_work_(problem.budget()->done() + kMaxWork) {}

  // Calls `take` with paths until it returns false or a limit is reached. No two paths have equal
  // labels.
  void Run(const std::function<bool(const Path& path)>& take) {
    nodes_.push_back({problem_.source(), {}, -1, StepOp::kSlice, ""});
    Push(0);
    int expanded = 0;
    absl::flat_hash_set<std::string> taken;
    while (!open_.empty() && expanded < kMaxExpanded && HasWorkLeft()) {
      const int at = std::get<1>(open_.top());
      open_.pop();
      if (nodes_[at].state == problem_.target()) {
        if (taken.insert(nodes_[at].label).second && !take(PathTo(at))) return;
        continue;
      }
      // A path with the same label to the same state was expanded already, at no higher cost.
      if (!seen_.insert({nodes_[at].label, nodes_[at].state}).second) continue;
      ++expanded;
      Expand(at);
    }
  }

 private:
  struct Node {
    State state;
    PathCost cost;
    int before = -1;
    StepOp op = StepOp::kSlice;
    std::string label;  // the steps up to this state
  };

  void Expand(int at) {
    const State state = nodes_[at].state;
    successors_.ForEach(state, [&](const Successor& next) {
      if (!HasWorkLeft() || WasAt(at, next.state)) return;
      Node node{next.state, nodes_[at].cost + CostOf(model_.Measure(next.op, state, next.state), 0),
                at, next.op,
                fmt::format("{}{}:{:x};", nodes_[at].label, KindOf(next.op), next.dims)};
      nodes_.push_back(std::move(node));
      Push(static_cast<int>(nodes_.size()) - 1);
    });
  }
  bool HasWorkLeft() const {
    return problem_.HasWorkLeft() && problem_.budget()->done() < most_work_;
  }
  void Push(int at) {
    const std::optional<PathCost>& rest = Rest(nodes_[at].state);
    if (rest) open_.push({nodes_[at].cost + *rest, at});
  }
  bool WasAt(int at, const State& state) const {
    for (; at >= 0; at = nodes_[at].before) {
      if (nodes_[at].state == state) return true;
    }
    return false;
  }
  Path PathTo(int at) const {
    Path path;
    for (; nodes_[at].before >= 0; at = nodes_[at].before) {
      path.moves.push_back({nodes_[at].op, nodes_[at].state});
    }
    std::reverse(path.moves.begin(), path.moves.end());
    return path;
  }
  // The cost of the cheapest path from `state` to the target; nullopt if none was found.
  const std::optional<PathCost>& Rest(const State& state) {
    const auto [at, is_new] = rest_.try_emplace(state);
    if (is_new) at->second = FindRest(state);
    return at->second;
  }
  std::optional<PathCost> FindRest(const State& state) {
    if (state == problem_.target()) return PathCost{};
    absl::StatusOr<Problem> problem =
        Problem::Create(problem_.ToSharding(state), problem_.to(), options_.reduce_dtype);
    if (!problem.ok()) return std::nullopt;
    problem->SetBudget(problem_.budget());
    const absl::StatusOr<ReductionChoice> choice = ChooseReductions(*problem, options_);
    if (!choice.ok()) return std::nullopt;
    const CostModel model(*problem, options_.topology, CostOptionsOf(options_, *choice));
    const std::optional<Path> path = FindCheapest(*problem, model, choice->rules);
    if (!path) return std::nullopt;
    PathCost cost = CostOf(*problem, model, *path);
    cost.total_bytes = 0;  // counting them for each successor takes too long
    return cost;
  }

  const Problem& problem_;
  const PlannerOptions& options_;
  const CostModel& model_;
  Successors successors_;
  const int64_t most_work_;  // the limit, in units of the budget's done()
  std::vector<Node> nodes_;
  // Ordered by the estimate for the whole path, then by age.
  using Entry = std::tuple<PathCost, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
  absl::flat_hash_map<State, std::optional<PathCost>> rest_;
  absl::flat_hash_set<std::pair<std::string, State>> seen_;
};

std::string LabelOf(const Plan& plan) {
  std::string label;
  for (const Step& step : plan.steps()) {
    label += fmt::format("{}:{}:{};", KindOf(step.op), step.mesh, fmt::join(step.mesh_dims, ","));
  }
  return label;
}

// The time of the plan, with the set-up of its groups.
int64_t NsOf(const Plan& plan) { return SaturatingAdd(plan.total().est_ns, plan.total().setup_ns); }

std::vector<TimeParts> PartsOf(const Plan& plan, const Topology& topology) {
  std::vector<TimeParts> parts;
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    parts.push_back(TimePartsOf(plan, static_cast<int>(i), topology));
  }
  return parts;
}

void AddParts(const Topology& topology, std::vector<Alternative>* all) {
  for (Alternative& one : *all) one.parts = PartsOf(one.plan, topology);
}

// "; time difference by part: links 37.8 ms, starts 20 us": the parts of the difference in time,
// the largest first.
std::string PartsDifference(const std::vector<TimeParts>& parts,
                            const std::vector<TimeParts>& best) {
  constexpr int64_t kRounding = 8;  // ns
  struct Part {
    std::string_view name;
    int64_t ns = 0;
  };
  std::array<Part, 5> all = {Part{"starts"}, Part{"hops"}, Part{"messages"}, Part{"links"},
                             Part{"copies"}};
  const auto add = [&all](const std::vector<TimeParts>& of, int sign) {
    for (const TimeParts& one : of) {
      const std::array<int64_t, 5> ns = {one.starts_ns, one.hops_ns, one.messages_ns, one.links_ns,
                                         one.copies_ns};
      for (size_t i = 0; i < ns.size(); ++i) all[i].ns += sign * ns[i];
    }
  };
  add(parts, 1);
  add(best, -1);
  std::stable_sort(all.begin(), all.end(),
                   [](const Part& a, const Part& b) { return std::abs(a.ns) > std::abs(b.ns); });
  std::string text;
  for (const Part& part : all) {
    if (std::abs(part.ns) < kRounding) continue;
    text += fmt::format("{}{} {}{}", text.empty() ? "; time difference by part: " : ", ", part.name,
                        part.ns < 0 ? "-" : "", ExactTimeText(std::abs(part.ns)));
  }
  return text;
}

// The best plan, to compare others with.
struct Best {
  Best(const Plan& p, const Topology& t) : plan(p), topology(t), parts(PartsOf(p, t)) {}
  const Plan& plan;
  const Topology& topology;
  const std::vector<TimeParts> parts;
};

// "9.001 us more (+69 %): 2 more collectives, sends 64 B less; ..."
std::string Difference(const Plan& plan, const Best& than) {
  const Plan& best = than.plan;
  const auto signed_text = [](int64_t value, const std::string& text, std::string_view equal) {
    if (value == 0) return std::string(equal);
    return fmt::format("{} {}", text, value > 0 ? "more" : "less");
  };
  const int64_t ns = NsOf(plan) - NsOf(best);
  const int64_t bytes = plan.total().bytes_sent - best.total().bytes_sent;
  const int64_t collectives = plan.total().collectives - best.total().collectives;
  std::string text = signed_text(ns, ExactTimeText(ns < 0 ? -ns : ns), "as long");
  if (ns != 0 && NsOf(best) > 0) {
    text += fmt::format(" ({:+} %)",
                        static_cast<int64_t>(static_cast<__int128>(ns) * 100 / NsOf(best)));
  }
  if (collectives == 0) {
    text += ": as many collectives";
  } else {
    const int64_t count = std::abs(collectives);
    text += fmt::format(": {} {} collective{}", count, collectives > 0 ? "more" : "fewer",
                        count == 1 ? "" : "s");
  }
  text += ", sends " + signed_text(bytes, ExactBytesText(bytes < 0 ? -bytes : bytes), "as much");
  return text + PartsDifference(PartsOf(plan, than.topology), than.parts);
}

bool TakesTooMuch(const Plan& plan, const PlannerOptions& options) {
  return options.max_memory && plan.total().peak_bytes > *options.max_memory;
}

// Classifies a plan that keeps the promise. `free` has no limits in its inputs; `within` is the
// same plan with the limits of `options`.
Alternative Classify(const Plan& free, const Plan& within, const Best& best,
                     const PlannerOptions& options, const PlanGroups& groups) {
  const std::string difference = Difference(free, best);
  if (TakesTooMuch(free, options)) {
    return {Verdict::kTakesTooMuch, free,
            fmt::format("{}; but takes {} of memory", difference,
                        ExactBytesText(free.total().peak_bytes))};
  }
  const std::string broken = groups.BrokenBy(groups.UsedBy(free.steps()));
  if (!broken.empty()) {
    return {Verdict::kNeedsGroups, free, fmt::format("{}; but {}", difference, broken)};
  }
  return {Verdict::kCostsMore, within, Difference(within, best)};
}

// Sorts all but the first by time.
void SortByTime(std::vector<Alternative>* all) {
  std::stable_sort(all->begin() + 1, all->end(), [](const Alternative& a, const Alternative& b) {
    return NsOf(a.plan) < NsOf(b.plan);
  });
}

// "keeps only replicas: WHY", for a plan that keeps less than asked.
std::string KeptText(const Plan& plan) {
  const std::string kept = plan.kept() == Reproducibility::kNone
                               ? "no promise"
                               : fmt::format("only {}", Name(plan.kept()));
  return fmt::format("keeps {}: {}", kept, plan.why());
}

// Adds a plan that breaks the promise, if it is faster than the best one.
void AddWithoutPromise(const absl::StatusOr<Plan>& plan, const Best& best,
                       std::vector<Alternative>* all) {
  if (!plan.ok() || plan->kept() >= best.plan.kept() || NsOf(*plan) >= NsOf(best.plan)) return;
  all->push_back({Verdict::kBreaksPromise, *plan,
                  fmt::format("{}; but {}", Difference(*plan, best), KeptText(*plan))});
}

PlannerOptions WithoutLimits(PlannerOptions options) {
  options.max_memory.reset();
  options.groups = {};
  return options;
}

PlannerOptions WithoutPromise(PlannerOptions options) {
  options.reproducibility = Reproducibility::kNone;
  options.reduce_block = 0;
  return options;
}

// For plans from one mesh to another: other ends of the crossing.
absl::StatusOr<std::vector<Alternative>> ListCrossAlternatives(const Sharding& from,
                                                               const Sharding& to,
                                                               const PlannerOptions& options,
                                                               const Plan& best, int most,
                                                               WorkBudget& budget) {
  const Best than(best, options.topology);
  std::vector<Alternative> all = {{Verdict::kBest, best, "", than.parts}};
  const std::vector<DeviceMesh> meshes = {from.mesh(), to.mesh()};
  const PlannerOptions unlimited = WithoutLimits(options);
  const absl::StatusOr<PlanGroups> made = GroupsOf(meshes, options, budget);
  if (budget.exhausted()) return all;
  MESHIFT_RETURN_IF_ERROR(made.status());
  const PlanGroups& groups = *made;
  MESHIFT_ASSIGN_OR_RETURN(const PlanGroups any_groups, GroupsOf(meshes, unlimited, budget));
  const size_t limit = static_cast<size_t>(most) + 1;
  const absl::StatusOr<std::vector<Plan>> listed =
      ListCrossPlans(from, to, unlimited, any_groups, limit, LabelOf, budget);
  // Usually the same plans, with the limits in their inputs.
  const absl::StatusOr<std::vector<Plan>> listed_within =
      ListCrossPlans(from, to, options, groups, limit, LabelOf, budget);
  if (budget.exhausted()) return all;  // the lists are incomplete
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<Plan> free, listed);
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<Plan> within, listed_within);
  for (const Plan& plan : free) {
    if (all.size() >= limit) break;
    const std::string label = LabelOf(plan);
    if (label == LabelOf(best)) continue;
    const auto same = std::find_if(within.begin(), within.end(),
                                   [&](const Plan& one) { return LabelOf(one) == label; });
    all.push_back(Classify(plan, same == within.end() ? plan : *same, than, options, groups));
  }
  SortByTime(&all);
  AddWithoutPromise(MakePlan(from, to, WithoutPromise(unlimited), budget), than, &all);
  AddParts(options.topology, &all);
  return all;
}

// The rule that forbids the first too-large value between two steps; empty if there is none.
std::string BrokenValueRule(const Problem& problem, const Path& path, const ValueRule& rule) {
  for (const auto& move : path.moves) {
    if (move.after == problem.target()) break;
    std::string why = rule.WhyNot(move.after);
    if (!why.empty()) return why;
  }
  return "";
}

// For plans on one mesh.
class Lister {
 public:
  // `best`: the best plan for `options`. Keeps references to all arguments.
  static absl::StatusOr<std::vector<Alternative>> List(const Plan& best,
                                                       const PlannerOptions& options, int most,
                                                       WorkBudget& budget) {
    MESHIFT_ASSIGN_OR_RETURN(Problem problem,
                             Problem::Create(best.from(), best.to(), options.reduce_dtype));
    problem.SetBudget(&budget);
    MESHIFT_ASSIGN_OR_RETURN(const ReductionChoice choice, ChooseReductions(problem, options));
    const absl::StatusOr<PlanGroups> made = GroupsOf({best.from().mesh()}, options, budget);
    if (budget.exhausted()) {
      return std::vector<Alternative>{{Verdict::kBest, best, "", PartsOf(best, options.topology)}};
    }
    MESHIFT_ASSIGN_OR_RETURN(const PlanGroups groups, made);
    Lister lister(best, options, most, problem, choice, groups);
    lister.AddOverSingleDims();
    PathLister(problem, lister.unlimited_, choice, lister.model_).Run([&](const Path& path) {
      return lister.Add(path);
    });
    lister.AddAroundGroups();
    // The heuristic is usually, but not always, exact, so the list is only nearly sorted.
    SortByTime(&lister.all_);
    lister.AddBeyondRule();
    AddWithoutPromise(lister.PlanWithoutPromise(), lister.best_, &lister.all_);
    lister.AddPerDim();
    AddParts(options.topology, &lister.all_);
    return std::move(lister.all_);
  }

 private:
  Lister(const Plan& best, const PlannerOptions& options, int most, const Problem& problem,
         const ReductionChoice& choice, const PlanGroups& groups)
      : options_(options),
        unlimited_(WithoutLimits(options)),
        limit_(static_cast<size_t>(most) + 1),
        problem_(problem),
        choice_(choice),
        groups_(groups),
        best_(best, options.topology),
        model_(problem, options.topology, CostOptionsOf(options, choice)),
        most_work_(problem.budget()->done() + 2 * kMaxWork),
        all_{{Verdict::kBest, best, ""}},
        labels_{LabelOf(best)} {}

  bool IsFull() const { return all_.size() >= limit_; }

  // False if the list is full.
  bool Add(const Path& path) {
    if (IsFull()) return false;
    // Alternatives need not keep to the limits; those that do have the limits in their inputs.
    const Plan free = Assemble(problem_, model_, path, unlimited_, choice_, PlanGroups());
    const std::string label = LabelOf(free);
    const bool is_new = labels_.insert(label).second;
    if (is_new) AddClassified(free, path);
    if (is_new || label == LabelOf(best_.plan)) AddWithGather(path);
    return true;
  }
  void AddClassified(const Plan& free, const Path& path) {
    const Plan within = Assemble(problem_, model_, path, options_, choice_, groups_);
    all_.push_back(Classify(free, within, best_, options_, groups_));
  }
  // If messages undo a reduce_scatter over the same mesh dims, also adds the plan with an
  // all_gather instead: readers expect it beside an all_reduce, although messages are faster for
  // small tensors. Once for each sequence of ops, to leave room for plans that differ more.
  void AddWithGather(const Path& path) {
    std::string ops;
    for (const Move& move : path.moves) ops += fmt::format("{};", Name(move.op));
    if (IsFull() || labels_.contains(ops)) return;
    for (size_t i = 1; i < path.moves.size(); ++i) {
      const Move& move = path.moves[i];
      const State& before = path.moves[i - 1].after;
      if (move.op != StepOp::kExchange || !UndoesScatter(path, i) ||
          !IsGather(before, move.after)) {
        continue;
      }
      labels_.insert(ops);
      Path with_gather = path;
      with_gather.moves[i].op = StepOp::kAllGather;
      AddClassified(Assemble(problem_, model_, with_gather, unlimited_, choice_, PlanGroups()),
                    with_gather);
      return;
    }
  }
  // Whether a reduce_scatter over the same mesh dims comes before the move.
  bool UndoesScatter(const Path& path, size_t at) const {
    const auto dims = [&](size_t i) {
      const State& before = i == 0 ? problem_.source() : path.moves[i - 1].after;
      return StepDims(problem_, path.moves[i].op, before, path.moves[i].after);
    };
    for (size_t i = 0; i < at; ++i) {
      if (path.moves[i].op == StepOp::kReduceScatter && dims(i) == dims(at)) return true;
    }
    return false;
  }
  bool IsGather(const State& before, const State& after) {
    bool found = false;
    Successors(problem_, model_, choice_.rules).ForEach(before, [&](const Successor& next) {
      found |= next.op == StepOp::kAllGather && next.state == after;
    });
    return found;
  }
  // Adds the cheapest plan over these groups.
  void AddOver(const DimSets& sets) {
    if (IsFull() || !problem_.HasWorkLeft() || problem_.budget()->done() >= most_work_) return;
    const std::optional<Path> path = FindCheapest(problem_, model_.WithGroups(sets), choice_.rules);
    if (path && problem_.HasWorkLeft()) Add(*path);
  }
  void AddOverSingleDims() {
    DimSets single;
    for (int d = 0; d < problem_.num_dims(); ++d) single.set(DimMask{1} << d);
    AddOver(single);
  }
  // Adds plans that avoid one group of the best plan, in case the listing of paths ended too early.
  void AddAroundGroups() {
    for (const Step& step : best_.plan.steps()) {
      if (!IsCollective(step.op)) continue;
      DimMask dims = 0;
      for (int d = 0; d < problem_.num_dims(); ++d) {
        const auto& of = step.mesh_dims;
        if (std::find(of.begin(), of.end(), problem_.mesh_dim(d)) != of.end()) {
          dims |= DimMask{1} << d;
        }
      }
      AddOver(DimSets().set().reset(dims));
    }
  }
  // The plan without the promise; its inputs state the promise all the same.
  absl::StatusOr<Plan> PlanWithoutPromise() const {
    const PlannerOptions free = WithoutPromise(unlimited_);
    MESHIFT_ASSIGN_OR_RETURN(const ReductionChoice choice, ChooseReductions(problem_, free));
    const CostModel model(problem_, free.topology, CostOptionsOf(free, choice));
    const std::optional<Path> path = FindCheapest(problem_, model, choice.rules);
    if (!path || !problem_.HasWorkLeft()) return absl::NotFoundError("no path");
    return Assemble(problem_, model, *path, unlimited_, choice, PlanGroups());
  }
  // Adds the best plan without the limit on values between two steps, if it is faster.
  void AddBeyondRule() {
    TransitionRules rules = choice_.rules;
    if (rules.max_value == INT64_MAX) return;
    rules.max_value = INT64_MAX;
    const std::optional<Path> path = FindCheapest(problem_, model_, rules);
    if (!path || !problem_.HasWorkLeft()) return;
    const std::string unheld =
        BrokenValueRule(problem_, *path, ValueRule(problem_, choice_.rules.max_value));
    Plan plan = Assemble(problem_, model_, *path, unlimited_, choice_, PlanGroups());
    if (unheld.empty() || NsOf(plan) >= NsOf(best_.plan)) return;
    std::string reason = fmt::format("{}; but {}", Difference(plan, best_), unheld);
    all_.push_back({Verdict::kHoldsTooMuch, std::move(plan), std::move(reason)});
  }
  void AddPerDim() {
    PlannerOptions per_dim = unlimited_;
    per_dim.planner = PlannerKind::kPerDim;
    const absl::StatusOr<Plan> plan =
        MakePlan(problem_.from(), problem_.to(), per_dim, *problem_.budget());
    if (!plan.ok()) return;
    std::string reason = Difference(*plan, best_);
    if (TakesTooMuch(*plan, options_)) {
      reason += fmt::format("; takes {} of memory", ExactBytesText(plan->total().peak_bytes));
    }
    const std::string broken = groups_.BrokenBy(groups_.UsedBy(plan->steps()));
    if (!broken.empty()) reason += "; " + broken;
    const std::string unheld = BrokenValueRule(problem_, PlanPerDim(problem_),
                                               ValueRule(problem_, choice_.rules.max_value));
    if (!unheld.empty()) reason += "; but " + unheld;
    if (plan->kept() < plan->asked()) {
      reason += "; and " + KeptText(*plan);
    }
    all_.push_back({Verdict::kPerDim, *plan, std::move(reason)});
  }

  const PlannerOptions& options_;
  const PlannerOptions unlimited_;
  const size_t limit_;
  const Problem& problem_;
  const ReductionChoice& choice_;
  const PlanGroups& groups_;
  const Best best_;
  const CostModel model_;
  const int64_t most_work_;  // the limit, in units of the budget's done(), of all listing
  std::vector<Alternative> all_;
  absl::flat_hash_set<std::string> labels_;  // of all_, and the ops that AddWithGather() added
};

}  // namespace

std::string_view Name(Verdict verdict) {
  constexpr std::array<std::string_view, 7> kNames = {
      "best",         "costs more", "breaks the promise", "takes too much memory", "holds too much",
      "needs groups", "per-dim"};
  return kNames[static_cast<size_t>(verdict)];
}

absl::StatusOr<std::vector<Alternative>> ListAlternatives(const Sharding& from, const Sharding& to,
                                                          const PlannerOptions& options, int most) {
  PlannerOptions wanted = options;
  wanted.planner = PlannerKind::kBest;
  WorkBudget budget(options.max_work);
  MESHIFT_ASSIGN_OR_RETURN(const Plan best, MakePlan(from, to, wanted, budget));
  // No other plan is known for At of several coordinates. Without elements there is none.
  if (HasManyOwners(from) || HasManyOwners(to) || NumElements(from.shape()) == 0) {
    return std::vector<Alternative>{{Verdict::kBest, best, "", PartsOf(best, options.topology)}};
  }
  return from.mesh() == to.mesh() ? Lister::List(best, wanted, most, budget)
                                  : ListCrossAlternatives(from, to, wanted, best, most, budget);
}

}  // namespace meshift
