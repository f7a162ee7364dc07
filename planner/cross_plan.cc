#include "planner/cross_plan.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "base/status.h"
#include "base/status_macros.h"
#include "planner/assemble.h"
#include "planner/budget_search.h"
#include "planner/cross_mesh.h"
#include "planner/memory_limit.h"
#include "planner/path_cost.h"
#include "planner/plan_groups.h"

namespace meshift {
namespace {

struct LeastPlan {
  Plan plan;
  bool is_least;  // no plan that is of this kind needs less workspace
};

// Plans from one sharding to another over groups that are allowed.
class BudgetPlanner {
 public:
  BudgetPlanner(const Sharding& from, const Sharding& to, const PlannerOptions& options,
                const PlanGroups& groups)
      : from_(from), to_(to), options_(options), groups_(groups) {}

  absl::StatusOr<Plan> Cheapest() const;
  absl::StatusOr<LeastPlan> LeastWorkspace() const;

 private:
  // Over any group where `allowed` is null. MemoryRefusal where options.max_memory does not do;
  // where groups do not, RESOURCE_EXHAUSTED too.
  absl::StatusOr<Plan> CheapestOver(const GroupSet* allowed, bool within_memory) const;
  // `cheapest`, if nothing is known to need less.
  absl::StatusOr<LeastPlan> LeastOver(const GroupSet* allowed, const Plan& cheapest) const;
  absl::StatusOr<LeastPlan> LeastOver(const GroupSet* allowed) const;
  absl::StatusOr<Plan> Run(const CrossLimits& limits, bool* is_done = nullptr) const {
    return FindCrossPlan(from_, to_, options_, groups_, limits, is_done);
  }
  // Why there is no plan, where that is for groups.
  absl::Status RefuseGroups() const;
  std::optional<Priced> Price(const absl::StatusOr<Plan>& plan) const {
    if (!plan.ok()) return std::nullopt;
    const PlanTotals& total = plan->total();
    return Priced{{total.est_ns, total.bytes_sent, static_cast<int64_t>(plan->steps().size())},
                  groups_.UsedBy(plan->steps())};
  }

  const Sharding& from_;
  const Sharding& to_;
  const PlannerOptions& options_;
  const PlanGroups& groups_;
};

absl::StatusOr<LeastPlan> BudgetPlanner::LeastOver(const GroupSet* allowed,
                                                   const Plan& cheapest) const {
  bool is_done = true;
  MESHIFT_ASSIGN_OR_RETURN(const Plan least,
                           Run({.goal = CrossGoal::kMemory, .allowed = allowed}, &is_done));
  const bool less = least.total().workspace_bytes < cheapest.total().workspace_bytes;
  return LeastPlan{less ? least : cheapest, is_done};
}

absl::StatusOr<LeastPlan> BudgetPlanner::LeastOver(const GroupSet* allowed) const {
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, CheapestOver(allowed, /*within_memory=*/false));
  return LeastOver(allowed, plan);
}

absl::StatusOr<Plan> BudgetPlanner::CheapestOver(const GroupSet* allowed,
                                                 bool within_memory) const {
  absl::StatusOr<Plan> plan = Run({.allowed = allowed});
  if (!plan.ok() || !within_memory || !options_.max_memory) return plan;
  const TensorMemory memory(from_, to_, options_.buffers);
  MESHIFT_ASSIGN_OR_RETURN(const int64_t limit, memory.WorkspaceLimit(*options_.max_memory));
  if (plan->total().workspace_bytes <= limit) return plan;
  MESHIFT_ASSIGN_OR_RETURN(LeastPlan least, LeastOver(allowed, *plan));
  const int64_t workspace = least.plan.total().workspace_bytes;
  if (workspace > limit) return memory.Refusal(*options_.max_memory, workspace, least.is_least);
  plan = Run({.workspace = limit, .allowed = allowed});
  if (plan.ok() && plan->total().est_ns <= least.plan.total().est_ns) return plan;
  return std::move(least.plan);
}

absl::Status BudgetPlanner::RefuseGroups() const {
  // What has nothing to do with groups comes first.
  MESHIFT_ASSIGN_OR_RETURN(const Plan any, CheapestOver(nullptr, /*within_memory=*/false));
  const GroupSet allowed = groups_.Allowed();
  if (!CheapestOver(&allowed, /*within_memory=*/false).ok()) {
    return groups_.RefuseNewGroups(groups_.UsedBy(any.steps()), options_.reproducibility);
  }
  if (!groups_.max_communicators()) return absl::OkStatus();
  const std::optional<int64_t> least = LeastCommunicators(groups_, [&](const GroupSet& set) {
    return Price(CheapestOver(&set, /*within_memory=*/false));
  });
  return least && *least > *groups_.max_communicators() ? groups_.RefuseCommunicators(*least)
                                                        : absl::OkStatus();
}

absl::StatusOr<LeastPlan> BudgetPlanner::LeastWorkspace() const {
  if (!groups_.IsBounded()) return LeastOver(nullptr);
  bool is_least = true;
  // Bytes of memory in place of time: groups cost none.
  const std::optional<GroupSet> best = FindGroups(
      groups_, /*each_setup_ns=*/0, [&](const GroupSet& allowed) -> std::optional<Priced> {
        const absl::StatusOr<LeastPlan> least = LeastOver(&allowed);
        if (!least.ok()) return std::nullopt;
        is_least &= least->is_least;
        return Priced{{.ns = least->plan.total().workspace_bytes},
                      groups_.UsedBy(least->plan.steps())};
      });
  if (best) {
    MESHIFT_ASSIGN_OR_RETURN(LeastPlan least, LeastOver(&*best));
    least.is_least = is_least;
    return least;
  }
  MESHIFT_RETURN_IF_ERROR(RefuseGroups());
  return LeastOver(nullptr);
}

absl::StatusOr<Plan> BudgetPlanner::Cheapest() const {
  if (!groups_.IsBounded()) return CheapestOver(nullptr, /*within_memory=*/true);
  const std::optional<GroupSet> best =
      FindGroups(groups_, groups_.each_setup_ns(), [&](const GroupSet& allowed) {
        return Price(CheapestOver(&allowed, /*within_memory=*/true));
      });
  if (best) return CheapestOver(&*best, /*within_memory=*/true);
  MESHIFT_RETURN_IF_ERROR(RefuseGroups());
  if (!options_.max_memory) {
    return Internal("no plan from {} to {}", from_.ToString(), to_.ToString());
  }
  const TensorMemory memory(from_, to_, options_.buffers);
  MESHIFT_RETURN_IF_ERROR(memory.WorkspaceLimit(*options_.max_memory).status());
  MESHIFT_ASSIGN_OR_RETURN(const LeastPlan least, LeastWorkspace());
  return memory.Refusal(*options_.max_memory, least.plan.total().workspace_bytes, least.is_least);
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
                                   const PlannerOptions& options) {
  MESHIFT_RETURN_IF_ERROR(CheckCross(from, to, options));
  MESHIFT_ASSIGN_OR_RETURN(const PlanGroups groups, GroupsOf({from.mesh(), to.mesh()}, options));
  return BudgetPlanner(from, to, options, groups).Cheapest();
}

absl::StatusOr<int64_t> LeastCrossMemory(const Sharding& from, const Sharding& to,
                                         const PlannerOptions& options) {
  MESHIFT_RETURN_IF_ERROR(CheckCross(from, to, options));
  MESHIFT_ASSIGN_OR_RETURN(const PlanGroups groups, GroupsOf({from.mesh(), to.mesh()}, options));
  MESHIFT_ASSIGN_OR_RETURN(const LeastPlan least,
                           BudgetPlanner(from, to, options, groups).LeastWorkspace());
  return least.plan.total().peak_bytes;
}

}  // namespace meshift
