#include "planner/planner.h"

#include <array>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "base/status_macros.h"
#include "planner/assemble.h"
#include "planner/cost.h"
#include "planner/cross_mesh.h"
#include "planner/per_dim.h"
#include "planner/reduction_choice.h"
#include "planner/search.h"
#include "planner/state.h"

namespace meshift {

std::string_view Name(PlannerKind kind) { return kind == PlannerKind::kBest ? "best" : "per-dim"; }

absl::StatusOr<PlannerKind> ParsePlannerKind(std::string_view name) {
  if (name == "best") return PlannerKind::kBest;
  if (name == "per-dim") return PlannerKind::kPerDim;
  return InvalidArgument("'{}' is no planner; known are best, per-dim", name);
}

std::string_view Name(RaggedSizes sizes) {
  constexpr std::array<std::string_view, 3> kNames = {"cost", "max", "sum"};
  return kNames[static_cast<size_t>(sizes)];
}

absl::StatusOr<RaggedSizes> ParseRaggedSizes(std::string_view name) {
  for (const RaggedSizes sizes : {RaggedSizes::kCost, RaggedSizes::kMax, RaggedSizes::kSum}) {
    if (Name(sizes) == name) return sizes;
  }
  return InvalidArgument("'{}' is no choice of ragged sizes; known are cost, max, sum", name);
}

absl::StatusOr<Plan> MakePlan(const Sharding& from, const Sharding& to,
                              const PlannerOptions& options) {
  if (!(from.mesh() == to.mesh())) return MakeCrossPlan(from, to, options);
  MESHIFT_ASSIGN_OR_RETURN(const Problem problem, Problem::Create(from, to, options.reduce_dtype));
  MESHIFT_ASSIGN_OR_RETURN(const ReductionChoice choice, ChooseReductions(problem, options));
  const CostModel model(problem, options.topology, CostOptionsOf(options, choice));
  if (options.planner == PlannerKind::kPerDim) {
    return Assemble(problem, model, PlanPerDim(problem), options, choice);
  }
  const std::optional<Path> path = FindCheapest(problem, model, choice.rules);
  if (!path) {
    return Internal("no plan from {} to {}", from.ToString(), to.ToString());
  }
  return Assemble(problem, model, *path, options, choice);
}

}  // namespace meshift
