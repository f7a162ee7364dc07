#include "planner/inter_mesh/direct_crossing.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/status.h"
#include "placement/cast.h"
#include "placement/op_table.h"
#include "planner/cost/cost.h"
#include "planner/cost/cross_cost.h"
#include "planner/inter_mesh/cross_mesh.h"
#include "planner/inter_mesh/mesh_pair.h"
#include "planner/intra_mesh/assemble.h"
#include "planner/intra_mesh/many_owners.h"
#include "planner/plan/crossing.h"
#include "planner/plan/memory_limit.h"
#include "planner/search/search.h"

namespace meshift {
namespace {

// A plan that is a crossing with local steps around it.
class DirectPlan {
 public:
  // `source`: as in CrossDirectly, but not null.
  DirectPlan(const Sharding& from, const Sharding& source, const Sharding& to,
             const PlannerOptions& options, WorkBudget& budget)
      : from_(from), source_(source), to_(to), options_(options), budget_(budget) {}

  absl::StatusOr<Plan> Make() {
    const TensorMemory memory(from_, to_, options_.buffers);
    if (options_.max_memory) {
      MESHIFT_RETURN_IF_ERROR(memory.WorkspaceLimit(*options_.max_memory).status());
    }
    const bool reduces = ContributionsOf(from_) > 1;
    MESHIFT_ASSIGN_OR_RETURN(const DType dtype, CrossingDType(reduces));
    MESHIFT_ASSIGN_OR_RETURN(const PlanGroups groups,
                             GroupsOf({from_.mesh(), to_.mesh()}, options_, budget_));
    PlanAssembly plan({from_.mesh(), to_.mesh()}, from_, to_, options_, groups);
    const auto is_partial = [](const Placement& p) { return p.IsPartial(); };
    // A value without elements crosses in no message that could add it.
    const bool adds = reduces && NumElements(from_.shape()) > 0;
    const Sharding before =
        Replaced(source_, dtype, [&](const Placement& p) { return !adds && p.IsPartial(); });
    const Sharding after = Replaced(to_, dtype, is_partial);
    if (source_ == from_) {
      MESHIFT_RETURN_IF_ERROR(AddLocal(from_, before, /*mesh=*/0, &plan));
    } else {
      MESHIFT_RETURN_IF_ERROR(AddSlice(&plan));
    }
    MESHIFT_RETURN_IF_ERROR(AddCrossing(before, after, &plan));
    MESHIFT_RETURN_IF_ERROR(AddLocal(after, to_, /*mesh=*/1, &plan));
    const std::string why =
        reduces ? "contributions are combined in ascending order by every rank that receives them"
                : "nothing is reduced";
    const Plan whole = std::move(plan).Seal(LowerBound(), why);
    MESHIFT_RETURN_IF_ERROR(groups.Check(groups.UsedBy(whole.steps())));
    MESHIFT_RETURN_IF_ERROR(CheckMaxValue(whole.fields(), options_));
    if (options_.max_memory && whole.total().peak_bytes > *options_.max_memory) {
      return memory.Refusal(*options_.max_memory, whole.total().workspace_bytes,
                            /*is_least=*/true);
    }
    return WithAt(whole);
  }

 private:
  // `sharding` in `dtype`, with R for the placements that `is_replaced` selects.
  template <typename Fn>
  static Sharding Replaced(const Sharding& sharding, DType dtype, const Fn& is_replaced) {
    std::vector<Placement> placements(sharding.placements().begin(), sharding.placements().end());
    for (Placement& p : placements) {
      if (is_replaced(p)) p = Placement::Replicate();
    }
    return Sharding::Create(sharding.mesh(), {dtype, sharding.shape()}, std::move(placements),
                            CutsIn(sharding))
        .value();
  }
  static std::vector<Cuts> CutsIn(const Sharding& sharding) {
    std::vector<Cuts> cuts;
    for (int k = 0; k < static_cast<int>(sharding.shape().size()); ++k) {
      cuts.emplace_back(sharding.CutsOf(k).begin(), sharding.CutsOf(k).end());
    }
    return cuts;
  }

  // The dtype of the value that crosses.
  absl::StatusOr<DType> CrossingDType(bool reduces) const {
    DType dtype = from_.dtype();
    if (reduces) {
      dtype = options_.reduce_dtype.value_or(DefaultReduceDType(from_.dtype(), to_.dtype()));
      for (const Placement& p : from_.placements()) {
        if (p.IsPartial()) MESHIFT_RETURN_IF_ERROR(CheckReduce(p.op(), dtype));
      }
    }
    MESHIFT_RETURN_IF_ERROR(CheckCast(from_.dtype(), dtype));
    MESHIFT_RETURN_IF_ERROR(CheckCast(dtype, to_.dtype()));
    return dtype;
  }

  absl::Status AddCrossing(const Sharding& before, const Sharding& after, PlanAssembly* plan) {
    constexpr int64_t kMessageWork = 8;  // in units of the budget
    const int64_t messages = Crossing::CountMessages(before, after);
    if (messages > Crossing::kMaxMessages) {
      return Unimplemented("from {} to {} {} messages cross; at most {} are planned",
                           from_.ToString(), to_.ToString(), messages, Crossing::kMaxMessages);
    }
    if (!budget_.Charge(kMessageWork, messages)) return budget_.Refusal("planning");
    const Crossing crossing = Crossing::Of(before, after, options_.topology);
    const Traffic traffic = MeasureCrossing(crossing, before, after, options_.topology);
    const MeshPair meshes(from_.mesh(), to_.mesh(), options_.topology);
    plan->AddStep(
        CrossingStep(crossing, traffic, before, after, meshes.union_size(), options_.reduce_block),
        traffic.send_pack_bytes, traffic.receive_pack_bytes);
    return absl::OkStatus();
  }

  // Adds the slice from `from` to `source`.
  absl::Status AddSlice(PlanAssembly* plan) {
    if (options_.max_value && TensorBytes(source_) > *options_.max_value) {
      return FailedPrecondition("the value {} takes {} bytes, more than max_value = {}",
                                source_.PlacementsText(), TensorBytes(source_),
                                *options_.max_value);
    }
    const Sharding whole =
        Replaced(from_, from_.dtype(), [](const Placement& p) { return HasSeveral(p); });
    MESHIFT_ASSIGN_OR_RETURN(
        Problem problem, Problem::Create(whole, source_, std::nullopt, /*ends_at_crossing=*/true));
    problem.SetBudget(&budget_);
    MESHIFT_ASSIGN_OR_RETURN(const ReductionChoice choice, ChooseReductions(problem, options_));
    CostOptions cost = CostOptionsOf(options_, choice);
    cost.to_target = false;
    const CostModel model(problem, options_.topology, cost);
    Path path;
    path.moves = {{StepOp::kSlice, problem.target()}};
    plan->AddPath(problem, model, path, choice, /*mesh=*/0);
    return absl::OkStatus();
  }
  static bool HasSeveral(const Placement& p) { return p.IsAt() && p.coordinates().size() > 1; }

  // Adds the casts and masks between two values that differ in nothing else. They are local, so
  // they are planned with R in place of At. A value without elements may also be reduced.
  absl::Status AddLocal(const Sharding& a, const Sharding& b, int mesh, PlanAssembly* plan) {
    if (a == b) return absl::OkStatus();
    const auto is_at = [](const Placement& p) { return p.IsAt(); };
    MESHIFT_ASSIGN_OR_RETURN(
        Problem problem,
        Problem::Create(Replaced(a, a.dtype(), is_at), Replaced(b, b.dtype(), is_at), std::nullopt,
                        /*ends_at_crossing=*/true));
    problem.SetBudget(&budget_);
    MESHIFT_ASSIGN_OR_RETURN(ReductionChoice choice, ChooseReductions(problem, options_));
    // Without elements, one all_reduce: nothing may move to ranks that hold nothing.
    const bool is_empty = NumElements(a.shape()) == 0;
    choice.rules.scatters = false;
    choice.rules.exact |= is_empty;
    choice.exact |= is_empty;
    CostOptions cost = CostOptionsOf(options_, choice);
    cost.from_source = mesh == 0;
    cost.to_target = mesh == 1;
    const CostModel model(problem, options_.topology, cost);
    const std::optional<Path> path = FindCheapest(problem, model, choice.rules);
    if (!path || (!is_empty && std::any_of(path->moves.begin(), path->moves.end(),
                                           [](const Move& m) { return IsCollective(m.op); }))) {
      return Internal("no local steps from {} to {}", a.ToString(), b.ToString());
    }
    plan->AddPath(problem, model, *path, choice, mesh);
    return absl::OkStatus();
  }

  // The plan with At on the mesh dims that AddLocal() planned as R.
  absl::StatusOr<Plan> WithAt(const Plan& plan) const {
    PlanFields fields = plan.fields();
    for (Step& step : fields.steps) {
      if (IsCrossing(step)) continue;
      const Sharding& like = step.mesh == 0 ? source_ : to_;
      std::vector<Placement> placements(step.after.placements().begin(),
                                        step.after.placements().end());
      for (size_t d = 0; d < placements.size(); ++d) {
        if (like.placement(static_cast<int>(d)).IsAt()) {
          placements[d] = like.placement(static_cast<int>(d));
        }
      }
      MESHIFT_ASSIGN_OR_RETURN(
          step.after, step.after.WithPlacements(std::move(placements), CutsIn(step.after)));
    }
    return Plan::Seal(std::move(fields));
  }

  const Sharding& from_;
  const Sharding& source_;
  const Sharding& to_;
  const PlannerOptions& options_;
  WorkBudget& budget_;
};

}  // namespace

absl::StatusOr<Plan> CrossDirectly(const Sharding& from, const Sharding& to,
                                   const PlannerOptions& options, WorkBudget& budget,
                                   const Sharding* source) {
  return DirectPlan(from, source == nullptr ? from : *source, to, options, budget).Make();
}

}  // namespace meshift
