#include "planner/plan/expanded_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// Where a rooted op needs At on all mesh dims of its step, and the op on cuts that it is.
struct RootedOp {
  StepOp op;
  StepOp on_cuts;
  bool before;  // At before the step; else S, or P for a reduce
  bool after;   // At after the step; else S, or R for a broadcast
};
constexpr RootedOp kRootedOps[] = {
    {StepOp::kBroadcast, StepOp::kAllGather, true, false},
    {StepOp::kReduce, StepOp::kReduceScatter, false, true},
    {StepOp::kGather, StepOp::kAllToAll, false, true},
    {StepOp::kScatter, StepOp::kAllToAll, true, false},
    {StepOp::kSend, StepOp::kAllToAll, true, true},
};

const RootedOp* FindRootedOp(StepOp op) {
  for (const RootedOp& rooted : kRootedOps) {
    if (rooted.op == op) return &rooted;
  }
  return nullptr;
}

// The first mesh dim of the step that is At, where that is wanted, or is not. -1: none.
int FirstOtherDim(const Sharding& sharding, const DimSet& mesh_dims, bool at) {
  for (const int d : mesh_dims) {
    if (d >= 0 && d < sharding.mesh().NumDims() && sharding.placement(d).IsAt() != at) return d;
  }
  return -1;
}

bool HasManyOwnersOn(const Sharding& sharding, int d) {
  return sharding.placement(d).IsAt() && sharding.placement(d).coordinates().size() > 1;
}

// Whether each coordinate that `after` holds on mesh dim d is one that `before` holds.
bool IsPartOn(const Sharding& before, const Sharding& after, int d) {
  const auto holds = [&](int64_t i) {
    return before.placement(d).IsReplicate() ||
           (before.placement(d).IsAt() && before.placement(d).Holds(i));
  };
  if (const std::optional<int64_t> owner = OwnerOn(after, d)) return holds(*owner);
  if (!after.placement(d).IsAt()) return false;
  const Placement::Sizes& held = after.placement(d).coordinates();
  return std::all_of(held.begin(), held.end(), holds);
}

std::optional<std::string> FaultOf(const Step& step, const Sharding& before) {
  if (const RootedOp* rooted = FindRootedOp(step.op)) {
    for (const bool is_after : {false, true}) {
      const Sharding& sharding = is_after ? step.after : before;
      const bool at = is_after ? rooted->after : rooted->before;
      if (step.mesh_dims.empty()) return fmt::format("{} names no mesh dims", Name(step.op));
      const int d = FirstOtherDim(sharding, step.mesh_dims, at);
      if (d < 0) continue;
      return fmt::format("{} needs {} on mesh dim {}, which is {} {} the step", Name(step.op),
                         at ? "At" : "no At", sharding.mesh().dim(d).name,
                         sharding.placement(d).ToString(), is_after ? "after" : "before");
    }
  }
  if (!(before.mesh() == step.after.mesh())) return std::nullopt;
  for (int d = 0; d < before.mesh().NumDims(); ++d) {
    if (!HasManyOwnersOn(before, d) && !HasManyOwnersOn(step.after, d)) continue;
    if (before.placement(d) == step.after.placement(d) &&
        std::find(step.mesh_dims.begin(), step.mesh_dims.end(), d) == step.mesh_dims.end()) {
      continue;
    }
    if (step.op == StepOp::kSlice && IsPartOn(before, step.after, d)) continue;
    return fmt::format(
        "mesh dim {} goes from {} to {}, by {}; where several coordinates hold the value, only a "
        "slice to fewer of them may change it",
        before.mesh().dim(d).name, before.placement(d).ToString(),
        step.after.placement(d).ToString(), Name(step.op));
  }
  return std::nullopt;
}

}  // namespace

StepOp OpOnCuts(StepOp op) {
  const RootedOp* const rooted = FindRootedOp(op);
  return rooted != nullptr ? rooted->on_cuts : op;
}

DimSet ChangedTensorDims(const Sharding& before, const Sharding& after) {
  DimSet changed;
  for (int k = 0; k < static_cast<int>(after.shape().size()); ++k) {
    const auto cuts = [&](const Sharding& sharding) {
      std::vector<std::pair<int, Placement>> list;
      for (const int d : sharding.CutsOf(k)) {
        if (sharding.mesh().dim(d).size > 1) list.emplace_back(d, sharding.placement(d));
      }
      return list;
    };
    if (cuts(before) != cuts(after)) changed.push_back(k);
  }
  return changed;
}

StepOp OpFor(const Step& step, const Sharding& before) {
  for (const RootedOp& rooted : kRootedOps) {
    if (rooted.on_cuts == step.op && !step.mesh_dims.empty() &&
        FirstOtherDim(before, step.mesh_dims, rooted.before) < 0 &&
        FirstOtherDim(step.after, step.mesh_dims, rooted.after) < 0) {
      return rooted.op;
    }
  }
  return step.op;
}

UnitDims UnitDimsOf(const PlanFields& plan) {
  std::vector<const Sharding*> shardings = {&plan.from};
  for (const Step& step : plan.steps) shardings.push_back(&step.after);
  shardings.push_back(&plan.to);
  return UnitDims::Of(shardings);
}

bool HasAt(const PlanFields& plan) {
  return plan.from.HasAt() || plan.to.HasAt() ||
         std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
           return FindRootedOp(step.op) != nullptr || step.after.HasAt();
         });
}

std::optional<RootedFault> FindRootedFault(const PlanFields& plan) {
  const Sharding* before = &plan.from;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (std::optional<std::string> fault = FaultOf(plan.steps[i], *before)) {
      return RootedFault{static_cast<int>(i), *std::move(fault)};
    }
    before = &plan.steps[i].after;
  }
  return std::nullopt;
}

PlanFields WithOpsOnCuts(const PlanFields& plan) {
  PlanFields fields = plan;
  for (Step& step : fields.steps) step.op = OpOnCuts(step.op);
  return fields;
}

absl::StatusOr<PlanFields> ExpandPlan(const PlanFields& plan, const UnitDims& units) {
  PlanFields expanded = WithOpsOnCuts(plan);
  MESHIFT_ASSIGN_OR_RETURN(expanded.from, units.Expand(plan.from));
  MESHIFT_ASSIGN_OR_RETURN(expanded.to, units.Expand(plan.to));
  const Sharding* before = &plan.from;
  const Sharding* expanded_before = &expanded.from;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    Step& copy = expanded.steps[i];
    MESHIFT_ASSIGN_OR_RETURN(copy.after, units.Expand(step.after));
    if (before->mesh() == step.after.mesh() && before->shape() == step.after.shape()) {
      // Tensor dims that are right stay right, and wrong ones stay wrong.
      if (step.tensor_dims == ChangedTensorDims(*before, step.after)) {
        copy.tensor_dims = ChangedTensorDims(*expanded_before, copy.after);
      } else {
        for (int& k : copy.tensor_dims) k += units.size();
      }
    }
    before = &step.after;
    expanded_before = &copy.after;
  }
  return expanded;
}

}  // namespace meshift
