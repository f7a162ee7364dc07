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
  absl::StatusOr<Plan> CheapestOver(const GroupSet* allowed, bool within_memory,
                                    int64_t bound_ns = INT64_MAX) const;
  // `cheapest`, if nothing is known to need less.
  absl::StatusOr<LeastPlan> LeastOver(const GroupSet* allowed, const Plan& cheapest) const;
  absl::StatusOr<LeastPlan> LeastOver(const GroupSet* allowed) const;
  absl::StatusOr<Plan> Run(const CrossLimits& limits, bool* is_done = nullptr) const {
    return FindCrossPlan(from_, to_, options_, groups_, limits, is_done);
  }
  // Groups that keep to the budget, and over which there is a plan, memory left aside; else why
  // there are none.
  absl::StatusOr<GroupSet> SomeGroups() const;
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

absl::StatusOr<Plan> BudgetPlanner::CheapestOver(const GroupSet* allowed, bool within_memory,
                                                 int64_t bound_ns) const {
  absl::StatusOr<Plan> plan = Run({.allowed = allowed, .bound_ns = bound_ns});
  if (!plan.ok() || !within_memory || !options_.max_memory) return plan;
  const TensorMemory memory(from_, to_, options_.buffers);
  MESHIFT_ASSIGN_OR_RETURN(const int64_t limit, memory.WorkspaceLimit(*options_.max_memory));
  if (plan->total().workspace_bytes <= limit) return plan;
  MESHIFT_ASSIGN_OR_RETURN(LeastPlan least, LeastOver(allowed, *plan));
  const int64_t workspace = least.plan.total().workspace_bytes;
  if (workspace > limit) return memory.Refusal(*options_.max_memory, workspace, least.is_least);
  plan = Run({.workspace = limit, .allowed = allowed, .bound_ns = bound_ns});
  if (plan.ok() && plan->total().est_ns <= least.plan.total().est_ns) return plan;
  return std::move(least.plan);
}

absl::StatusOr<GroupSet> BudgetPlanner::SomeGroups() const {
  // What has nothing to do with groups comes first.
  MESHIFT_ASSIGN_OR_RETURN(const Plan any, CheapestOver(nullptr, /*within_memory=*/false));
  const GroupSet allowed = groups_.Allowed();
  if (!CheapestOver(&allowed, /*within_memory=*/false).ok()) {
    return groups_.RefuseNewGroups(groups_.UsedBy(any.steps()), options_.reproducibility);
  }
  if (!groups_.max_communicators()) return allowed;
  const std::optional<FewestGroups> fewest =
      LeastCommunicators(groups_, /*needs=*/{}, [&](const GroupSet& set, int64_t bound_ns) {
        return Price(CheapestOver(&set, /*within_memory=*/false, bound_ns));
      });
  if (fewest && fewest->communicators > *groups_.max_communicators()) {
    return groups_.RefuseCommunicators(fewest->communicators, fewest->is_least);
  }
  return fewest ? fewest->set : allowed;
}

absl::StatusOr<LeastPlan> BudgetPlanner::LeastWorkspace() const {
  if (!groups_.IsBounded()) return LeastOver(nullptr);
  bool is_least = true;
  // Bytes of memory in place of time: groups cost none.
  FoundGroups best =
      FindGroups(groups_, /*each_setup_ns=*/0, /*needs=*/{},
                 [&](const GroupSet& allowed, int64_t /*bound*/) -> std::optional<Priced> {
                   const absl::StatusOr<LeastPlan> least = LeastOver(&allowed);
                   if (!least.ok()) return std::nullopt;
                   is_least &= least->is_least;
                   return Priced{{.ns = least->plan.total().workspace_bytes},
                                 groups_.UsedBy(least->plan.steps())};
                 });
  if (!best.set) {
    MESHIFT_ASSIGN_OR_RETURN(best.set, SomeGroups());
  }
  MESHIFT_ASSIGN_OR_RETURN(LeastPlan least, LeastOver(&*best.set));
  least.is_least = is_least && best.is_best;
  return least;
}

absl::StatusOr<Plan> BudgetPlanner::Cheapest() const {
  if (!groups_.IsBounded()) return CheapestOver(nullptr, /*within_memory=*/true);
  const FoundGroups found = FindGroups(
      groups_, groups_.each_setup_ns(), /*needs=*/{}, [&](const GroupSet& allowed, int64_t bound) {
        return Price(CheapestOver(&allowed, /*within_memory=*/true, bound));
      });
  if (found.set) return CheapestOver(&*found.set, /*within_memory=*/true);
  MESHIFT_ASSIGN_OR_RETURN(const GroupSet some, SomeGroups());
  // Only where the search ended early may these do.
  absl::StatusOr<Plan> plan = CheapestOver(&some, /*within_memory=*/true);
  if (plan.ok() || !options_.max_memory) return plan;
  const TensorMemory memory(from_, to_, options_.buffers);
  MESHIFT_ASSIGN_OR_RETURN(const int64_t limit, memory.WorkspaceLimit(*options_.max_memory));
  MESHIFT_ASSIGN_OR_RETURN(LeastPlan least, LeastWorkspace());
  const int64_t workspace = least.plan.total().workspace_bytes;
  if (workspace <= limit) return std::move(least.plan);
  return memory.Refusal(*options_.max_memory, workspace, least.is_least);
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
