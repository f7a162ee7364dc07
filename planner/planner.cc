#include "planner/planner.h"

#include <optional>

#include "base/status.h"
#include "base/status_macros.h"
#include "planner/assemble.h"
#include "planner/cost.h"
#include "planner/per_dim.h"
#include "planner/search.h"
#include "planner/state.h"

namespace meshift {
namespace {

// Whether all reductions that the problem needs are exact; an error if the engine cannot do one.
absl::StatusOr<bool> CheckReductions(const Problem& problem, const PlannerOptions& options) {
  const DType dtype = problem.dtype(problem.reduce_stage());
  bool exact = true;
  int averaged = 0;
  int reduced = 0;
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (!problem.source().IsPartial(d) || problem.StaysPartial(d)) continue;
    const ReduceOp op = problem.source().op(d);
    if (!options.engine.CanReduce(op, dtype)) {
      return Unimplemented("engine '{}' cannot reduce {} by {}", options.engine.name(), Name(dtype),
                           Name(op));
    }
    exact &= IsExact(op, dtype);
    if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
      exact &= IsInteger(dtype) || options.engine.min_max_exact;
    }
    averaged += op == ReduceOp::kAvg ? 1 : 0;
    ++reduced;
  }
  if (options.planner == PlannerKind::kPerDim && averaged > 0 && reduced > 1 && IsInteger(dtype)) {
    return Unimplemented(
        "the per-dim planner cannot average {} and reduce over {} mesh dims: a step would truncate "
        "before the last sum",
        Name(dtype), reduced);
  }
  return exact;
}

}  // namespace

std::string_view Name(PlannerKind kind) { return kind == PlannerKind::kBest ? "best" : "per-dim"; }

absl::StatusOr<PlannerKind> ParsePlannerKind(std::string_view name) {
  if (name == "best") return PlannerKind::kBest;
  if (name == "per-dim") return PlannerKind::kPerDim;
  return InvalidArgument("'{}' is no planner; known are best, per-dim", name);
}

absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options) {
  if (options.reproducibility > Reproducibility::kReplicas) {
    return Unimplemented(
        "reproducibility '{}' is not planned by this version; none and replicas are",
        Name(options.reproducibility));
  }
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, Problem::Create(from, to, options.reduce_dtype));
  MESHIFT_ASSIGN_OR_RETURN(const bool exact, CheckReductions(problem, options));
  const CostModel model(problem, options.topology);
  if (options.planner == PlannerKind::kPerDim) {
    return Assemble(problem, model, PlanPerDim(problem), options, exact);
  }
  const TransitionRules rules{
      .single_sourced = options.reproducibility >= Reproducibility::kReplicas, .exact = exact};
  const std::optional<Path> path = FindCheapest(problem, model, rules);
  if (!path) {
    return Internal("no plan from {} to {}", from.ToString(), to.ToString());
  }
  return Assemble(problem, model, *path, options, exact);
}

}  // namespace meshift
