#include "planner/intra_mesh/fallbacks.h"

#include <cstdint>
#include <string>

#include "base/status.h"
#include "meshift/status.h"
#include "planner/cost/lower_bound.h"
#include "planner/intra_mesh/assemble.h"
#include "planner/intra_mesh/mesh_paths.h"
#include "planner/search/value_rule.h"

namespace meshift {
namespace {

TransitionRules WithAnyValue(TransitionRules rules) {
  rules.max_value = INT64_MAX;
  return rules;
}

}  // namespace

absl::StatusOr<Path> FindBeyondRule(const MeshProblem& on_mesh, const CostModel& model,
                                    const PlannerOptions& options, const absl::Status& refusal) {
  const TransitionRules rules = WithAnyValue(on_mesh.choice.rules);
  absl::StatusOr<Path> path =
      MeshPaths(on_mesh.problem, model, options, rules, on_mesh.groups, on_mesh.memory).Cheapest();
  if (!path.ok()) {
    if (!options.max_value || !options.max_memory || !absl::IsInternal(refusal)) return refusal;
    return FailedPrecondition(
        "no plan keeps to max_value = {}, and none beyond it to max_memory = {}",
        *options.max_value, *options.max_memory);
  }
  if (!options.max_value) return path;
  const ValueRule rule(on_mesh.problem, options.max_value);
  std::string why;
  for (const Move& move : path->moves) {
    if (why.empty()) why = rule.WhyNot(move.after);
  }
  return FailedPrecondition("no plan keeps to max_value = {}: in the cheapest one {}",
                            *options.max_value, why);
}

absl::StatusOr<Plan> PlanThroughReplicas(const Sharding& from, const Sharding& to,
                                         const MeshProblem& on_mesh, const PlannerOptions& options,
                                         WorkBudget& budget, const absl::Status& refusal) {
  if (options.max_value) return refusal;
  std::string replicated = "R";
  for (int d = 1; d < from.mesh().NumDims(); ++d) replicated += ",R";
  MESHIFT_ASSIGN_OR_RETURN(const Sharding between, from.WithPlacements(replicated));
  PlanAssembly plan({from.mesh()}, from, to, options, on_mesh.groups);
  std::string why = on_mesh.choice.why;
  for (const bool first : {true, false}) {
    const auto half = first ? MeshProblem::Create(from, between, options, budget)
                            : MeshProblem::Create(between, to, options, budget);
    if (!half.ok()) return refusal;
    CostOptions cost = half->cost;
    (first ? cost.to_target : cost.from_source) = false;
    const CostModel model(half->problem, options.topology, cost);
    const TransitionRules rules = WithAnyValue(half->choice.rules);
    const absl::StatusOr<Path> path =
        MeshPaths(half->problem, model, options, rules, half->groups, half->memory).Cheapest();
    if (!path.ok()) return refusal;
    plan.AddPath(half->problem, model, *path, half->choice, /*mesh=*/0);
    if (half->choice.reduces) why = half->choice.why;
  }
  // The value R,..,R is between the halves.
  plan.NoteValuesBeyond(on_mesh.problem, {{{StepOp::kRelabel, State()}}}, on_mesh.choice);
  const CostModel model(on_mesh.problem, options.topology, on_mesh.cost);
  Plan whole = std::move(plan).Seal(LeastCost(on_mesh.problem, model), why);
  if (!on_mesh.groups.Check(on_mesh.groups.UsedBy(whole.steps())).ok()) return refusal;
  if (options.max_memory && whole.total().peak_bytes > *options.max_memory) return refusal;
  return whole;
}

}  // namespace meshift
