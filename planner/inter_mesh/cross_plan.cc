#include "planner/inter_mesh/cross_plan.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/status.h"
#include "meshift/status.h"
#include "placement/unit_dims.h"
#include "planner/cost/path_cost.h"
#include "planner/groups/plan_groups.h"
#include "planner/inter_mesh/cross_mesh.h"
#include "planner/inter_mesh/direct_crossing.h"
#include "planner/intra_mesh/assemble.h"
#include "planner/limits/limited_planner.h"
#include "planner/plan/memory_limit.h"

namespace meshift {
namespace {

// The plans from one sharding to another, for LimitedPlanner's search within the options' limits.
class CrossPlans final : public LimitedPlanner<Plan> {
 public:
  // Keeps references to all arguments.
  CrossPlans(const Sharding& from, const Sharding& to, const PlannerOptions& options,
             const PlanGroups& groups, WorkBudget& budget)
      : LimitedPlanner(options, groups, TensorMemory(from, to, options.buffers)),
        from_(from),
        to_(to),
        budget_(budget) {}

 private:
  absl::StatusOr<Plan> CheapestOver(const GroupSet* allowed, bool within_memory,
                                    int64_t bound_ns) const override;
  absl::StatusOr<Least<Plan>> LeastOver(const GroupSet* allowed) const override {
    MESHIFT_ASSIGN_OR_RETURN(Plan plan, CheapestOver(allowed, /*within_memory=*/false, INT64_MAX));
    return LeastOver(allowed, std::move(plan));
  }
  // Returns `cheapest` unless another plan needs less workspace.
  absl::StatusOr<Least<Plan>> LeastOver(const GroupSet* allowed, Plan cheapest) const;
  absl::StatusOr<Plan> Run(const CrossLimits& limits, bool* is_done = nullptr) const {
    return FindCrossPlan(from_, to_, options(), groups(), limits, budget_, is_done);
  }
  PathCost CostOf(const Plan& plan) const override {
    const PlanTotals& total = plan.total();
    return {.ns = total.est_ns,
            .bytes = total.bytes_sent,
            .steps = static_cast<int64_t>(plan.steps().size())};
  }
  GroupSet UsedBy(const Plan& plan) const override { return groups().UsedBy(plan.steps()); }

  const Sharding& from_;
  const Sharding& to_;
  WorkBudget& budget_;
};

absl::StatusOr<Least<Plan>> CrossPlans::LeastOver(const GroupSet* allowed, Plan cheapest) const {
  bool is_done = true;
  MESHIFT_ASSIGN_OR_RETURN(Plan least,
                           Run({.goal = CrossGoal::kMemory, .allowed = allowed}, &is_done));
  const int64_t workspace = least.total().workspace_bytes;
  const int64_t known = cheapest.total().workspace_bytes;
  return Least<Plan>{workspace < known ? std::move(least) : std::move(cheapest),
                     std::min(workspace, known), is_done};
}

absl::StatusOr<Plan> CrossPlans::CheapestOver(const GroupSet* allowed, bool within_memory,
                                              int64_t bound_ns) const {
  absl::StatusOr<Plan> plan = Run({.allowed = allowed, .bound_ns = bound_ns});
  if (!plan.ok() || !within_memory || !options().max_memory) return plan;
  const int64_t max_memory = *options().max_memory;
  MESHIFT_ASSIGN_OR_RETURN(const int64_t limit, memory().WorkspaceLimit(max_memory));
  if (plan->total().workspace_bytes <= limit) return plan;
  MESHIFT_ASSIGN_OR_RETURN(Least<Plan> least, LeastOver(allowed, *std::move(plan)));
  if (least.workspace > limit) return memory().Refusal(max_memory, least.workspace, least.is_least);
  plan = Run({.workspace = limit, .allowed = allowed, .bound_ns = bound_ns});
  if (plan.ok() && plan->total().est_ns <= least.solution.total().est_ns) return plan;
  return std::move(least.solution);
}

// Before any other work: all of it is at least linear in the ranks.
absl::Status ChargeRanks(const Sharding& from, const Sharding& to, WorkBudget& budget) {
  constexpr int64_t kRankWork = 8;
  const int64_t ranks = from.mesh().NumRanks() + to.mesh().NumRanks();
  return budget.Charge(kRankWork, ranks) ? absl::OkStatus() : budget.Refusal("planning");
}

absl::Status CheckCross(const Sharding& from, const Sharding& to, const PlannerOptions& options) {
  if (from.shape() != to.shape()) {
    return InvalidArgument("source {} and target {} differ in shape", from.tensor().ToString(),
                           to.tensor().ToString());
  }
  if (options.planner == PlannerKind::kPerDim) {
    return Unimplemented("the per-dim planner plans on one mesh; {} and {} differ",
                         from.mesh().ToString(), to.mesh().ToString());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> MakeCrossPlan(const Sharding& from, const Sharding& to,
                                   const PlannerOptions& options, WorkBudget& budget) {
  MESHIFT_RETURN_IF_ERROR(CheckCross(from, to, options));
  MESHIFT_RETURN_IF_ERROR(ChargeRanks(from, to, budget));
  MESHIFT_ASSIGN_OR_RETURN(const PlanGroups groups,
                           GroupsOf({from.mesh(), to.mesh()}, options, budget));
  if (HasManyOwners(from) || HasManyOwners(to)) {
    return CrossDirectly(from, to, options, budget);
  }
  return CrossPlans(from, to, options, groups, budget).Cheapest();
}

absl::StatusOr<int64_t> LeastCrossMemory(const Sharding& from, const Sharding& to,
                                         const PlannerOptions& options, WorkBudget& budget) {
  MESHIFT_RETURN_IF_ERROR(CheckCross(from, to, options));
  MESHIFT_RETURN_IF_ERROR(ChargeRanks(from, to, budget));
  MESHIFT_ASSIGN_OR_RETURN(const PlanGroups groups,
                           GroupsOf({from.mesh(), to.mesh()}, options, budget));
  if (HasManyOwners(from) || HasManyOwners(to)) {
    PlannerOptions unlimited = options;
    unlimited.max_memory.reset();
    MESHIFT_ASSIGN_OR_RETURN(const Plan plan, CrossDirectly(from, to, unlimited, budget));
    return plan.total().peak_bytes;
  }
  MESHIFT_ASSIGN_OR_RETURN(const Least<Plan> least,
                           CrossPlans(from, to, options, groups, budget).LeastWorkspace());
  return least.solution.total().peak_bytes;
}

}  // namespace meshift
