#include "planner/intra_mesh/many_owners.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/status.h"
#include "placement/cuts.h"
#include "placement/unit_dims.h"
#include "planner/cost/cost.h"
#include "planner/cost/lower_bound.h"
#include "planner/intra_mesh/assemble.h"
#include "planner/intra_mesh/fallbacks.h"
#include "planner/intra_mesh/mesh_paths.h"
#include "planner/intra_mesh/mesh_problem.h"
#include "planner/plan/expanded_plan.h"
#include "planner/plan/memory_limit.h"

namespace meshift {
namespace {

bool HasManyOwnersOn(const Sharding& sharding, int d) {
  return sharding.placement(d).IsAt() && sharding.placement(d).coordinates().size() > 1;
}

// `sharding` with other placements on some mesh dims that cut nothing.
template <typename Fn>
Sharding Replaced(const Sharding& sharding, const Fn& placement_of) {
  std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
  for (size_t d = 0; d < placements.size(); ++d) {
    const std::optional<Placement> placement = placement_of(static_cast<int>(d));
    if (placement) placements[d] = *placement;
  }
  std::vector<Cuts> cuts;
  for (int k = 0; k < static_cast<int>(sharding.shape().size()); ++k) {
    cuts.emplace_back(sharding.CutsOf(k).begin(), sharding.CutsOf(k).end());
  }
  return sharding.WithPlacements(std::move(placements), std::move(cuts)).value();
}

Sharding WithReplicasForManyOwners(const Sharding& sharding) {
  return Replaced(sharding, [&](int d) {
    return HasManyOwnersOn(sharding, d) ? std::optional(Placement::Replicate()) : std::nullopt;
  });
}

// The mesh dims on which both ends have the same several owners.
MeshDims SharedOwners(const Sharding& from, const Sharding& to) {
  MeshDims dims;
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (HasManyOwnersOn(from, d) && from.placement(d) == to.placement(d)) dims.push_back(d);
  }
  return dims;
}

// The plan for one of the owners, if all of them can do what it does: no step names their mesh
// dims, and none adds, since then each owner would have bits of its own.
std::optional<Plan> WithSharedOwners(const Plan& plan, const MeshDims& dims, const Sharding& from,
                                     const Sharding& to) {
  PlanFields fields = plan.fields();
  fields.from = from;
  fields.to = to;
  for (Step& step : fields.steps) {
    const auto is_shared = [&](int d) {
      return std::find(dims.begin(), dims.end(), d) != dims.end();
    };
    if (IsReduction(step.op) ||
        std::any_of(step.mesh_dims.begin(), step.mesh_dims.end(), is_shared)) {
      return std::nullopt;
    }
    step.after = Replaced(step.after, [&](int d) {
      return is_shared(d) ? std::optional(from.placement(d)) : std::nullopt;
    });
  }
  return Plan::Seal(std::move(fields));
}

// A part of a plan.
struct Leg {
  Sharding from;
  Sharding to;
  bool is_slice = false;
};

absl::StatusOr<Plan> PlanThroughOneOwner(const Sharding& from, const Sharding& to,
                                         const PlannerOptions& options, WorkBudget& budget) {
  const Sharding one = WithOneOwner(from, &to);
  const Sharding everywhere = WithReplicasForManyOwners(to);
  const Sharding target = WithOneOwner(to);
  std::vector<Leg> legs;
  if (HasManyOwners(from)) legs.push_back({WithReplicasForManyOwners(from), one, true});
  legs.push_back({one, everywhere});
  if (HasManyOwners(to)) legs.push_back({everywhere, target, true});

  const TensorMemory memory(from, to, options.buffers);
  if (options.max_memory) {
    MESHIFT_RETURN_IF_ERROR(memory.WorkspaceLimit(*options.max_memory).status());
  }
  PlannerOptions unlimited = options;
  unlimited.max_memory.reset();
  MESHIFT_ASSIGN_OR_RETURN(const PlanGroups groups, GroupsOf({from.mesh()}, options, budget));
  PlanAssembly plan({from.mesh()}, from, to, options, groups);
  std::string why;
  for (size_t i = 0; i < legs.size(); ++i) {
    const Leg& leg = legs[i];
    MESHIFT_ASSIGN_OR_RETURN(const MeshProblem on_mesh,
                             MeshProblem::Create(leg.from, leg.to, unlimited, budget));
    CostOptions cost = on_mesh.cost;
    cost.from_source = i == 0;
    cost.to_target = i + 1 == legs.size();
    const CostModel model(on_mesh.problem, options.topology, cost);
    Path path;
    if (leg.is_slice) {
      path.moves = {{StepOp::kSlice, on_mesh.problem.target()}};
    } else {
      const TransitionRules& rules = on_mesh.choice.rules;
      absl::StatusOr<Path> found =
          MeshPaths(on_mesh.problem, model, unlimited, rules, groups, on_mesh.memory).Cheapest();
      if (!found.ok() && rules.max_value != INT64_MAX && !budget.exhausted()) {
        found = FindBeyondRule(on_mesh, model, unlimited, found.status());
      }
      MESHIFT_ASSIGN_OR_RETURN(path, std::move(found));
      why = on_mesh.choice.why;
      plan.NoteValuesBeyond(on_mesh.problem, path, on_mesh.choice);
    }
    plan.AddPath(on_mesh.problem, model, path, on_mesh.choice, /*mesh=*/0);
  }
  // Fewer copies at the source, or at the target, make no plan cheaper; several at the source may.
  LowerBound bound;
  if (!HasManyOwners(from)) {
    MESHIFT_ASSIGN_OR_RETURN(
        const MeshProblem whole,
        MeshProblem::Create(legs.front().from, legs.back().to, unlimited, budget));
    bound = LeastCost(whole.problem, CostModel(whole.problem, options.topology, whole.cost));
  }
  PlanFields whole = std::move(plan).Seal(bound, why).fields();
  // Each part keeps to the limits on groups, but their sum may not.
  MESHIFT_RETURN_IF_ERROR(groups.Check(groups.UsedBy(whole.steps)));
  MESHIFT_RETURN_IF_ERROR(CheckMaxValue(whole, options));
  if (options.max_memory && whole.total.peak_bytes > *options.max_memory) {
    return memory.Refusal(*options.max_memory, whole.total.workspace_bytes, /*is_least=*/true);
  }
  if (HasManyOwners(to)) {
    Step& last = whole.steps.back();
    last.after = to;
    const Sharding& before = whole.steps.size() > 1 ? whole.steps.end()[-2].after : from;
    last.tensor_dims = ChangedTensorDims(before, to);
  }
  return Plan::Seal(std::move(whole));
}

}  // namespace

absl::Status CheckMaxValue(const PlanFields& plan, const PlannerOptions& options) {
  for (size_t i = 0; options.max_value && i + 1 < plan.steps.size(); ++i) {
    if (plan.steps[i].bytes_out <= *options.max_value) continue;
    return FailedPrecondition(
        "no plan keeps to max_value = {}: in the one for At of several coordinates the "
        "intermediate value {} has {} bytes",
        *options.max_value, plan.steps[i].after.PlacementsText(), plan.steps[i].bytes_out);
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> PlanManyOwners(const Sharding& from, const Sharding& to,
                                    const PlannerOptions& options, WorkBudget& budget,
                                    PathSourceFn path_source) {
  if (from.shape() != to.shape()) {
    return InvalidArgument("source {} and target {} differ in shape", from.tensor().ToString(),
                           to.tensor().ToString());
  }
  if (const MeshDims shared = SharedOwners(from, to); !shared.empty()) {
    const auto one_of = [&](const Sharding& sharding) {
      return Replaced(sharding, [&](int d) {
        const bool is_shared = std::find(shared.begin(), shared.end(), d) != shared.end();
        return is_shared ? std::optional(Placement::At({from.placement(d).coordinates().front()}))
                         : std::nullopt;
      });
    };
    MESHIFT_ASSIGN_OR_RETURN(
        const Plan plan, MakePlanOnMesh(one_of(from), one_of(to), options, budget, path_source));
    if (std::optional<Plan> whole = WithSharedOwners(plan, shared, from, to)) return *whole;
  }
  return PlanThroughOneOwner(from, to, options, budget);
}

}  // namespace meshift
