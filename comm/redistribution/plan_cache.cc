#include "comm/redistribution/plan_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/checked_math.h"
#include "base/status.h"
#include "comm/program/merge_programs.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "meshift/status.h"
#include "meshift/verifier.h"
#include "placement/local_box.h"

namespace meshift::run_internal {
namespace {

// "plan 5c1f...: f32[8] on a=2 as P -> R", "... -> R on b=4, topology flat"
std::string TextOf(const Plan& plan) {
  const Sharding& from = plan.from();
  const Sharding& to = plan.to();
  const std::string dtype =
      from.dtype() == to.dtype() ? "" : fmt::format("{} as ", to.tensor().ToString());
  // Who sends what to another mesh depends on the topology.
  const std::string mesh = from.mesh() == to.mesh()
                               ? ""
                               : fmt::format(" on {}, topology {}", to.mesh().ToString(),
                                             plan.options().topology.ToString());
  return fmt::format("plan {}: {} -> {}{}{}", plan.fingerprint().ToString(), from.ToString(), dtype,
                     to.PlacementsText(), mesh);
}

// A plan may keep its promise by what another engine's own reductions do.
absl::Status CheckEngine(const Plan& plan, const EngineCapabilities& engine) {
  if (plan.kept() != Reproducibility::kBatchInvariant) return absl::OkStatus();
  const bool native = std::any_of(plan.steps().begin(), plan.steps().end(), [](const Step& step) {
    return IsReduction(step.op) && step.reduce_order == ReduceOrder::kAny &&
           !IsExact(*step.reduce_op, step.after.dtype());
  });
  if (!native) return absl::OkStatus();
  const NativeInvariance asked = plan.options().engine.native_invariance;
  if (asked == engine.native_invariance ||
      engine.native_invariance == NativeInvariance::kReduceScatter) {
    return absl::OkStatus();
  }
  return FailedPrecondition(
      "plan {} is batch-invariant where the engine's own reductions are ({}); of engine {} none "
      "but '{}' are known to be",
      plan.fingerprint().ToString(), Name(asked), engine.name(), Name(engine.native_invariance));
}

// About; without the plan, which the planner's cache counts.
int64_t BytesOf(const PreparedPlan& prepared) {
  const Program& program = prepared.program->program;
  const auto bytes_of = [](const auto& list) {
    using Item = typename std::decay_t<decltype(list)>::value_type;
    return static_cast<int64_t>(list.capacity() * sizeof(Item));
  };
  // An instruction that is made ready.
  constexpr int64_t kReadyBytes = 512;
  int64_t bytes =
      sizeof(PreparedPlan) + sizeof(BoundProgram) + bytes_of(*prepared.text) +
      bytes_of(program.groups) + bytes_of(program.instructions) +
      kReadyBytes * static_cast<int64_t>(program.instructions.size()) +
      // And made ready.
      2 * (bytes_of(program.copies) + bytes_of(program.messages) + bytes_of(program.counts));
  // Members in one process share it.
  for (const ProgramGroup& group : program.groups) {
    bytes += static_cast<int64_t>(group.ranks.size() * sizeof(int64_t));
  }
  return bytes;
}

}  // namespace

absl::Status PlanCache::CheckMeshes(const Plan& plan) const {
  for (const DeviceMesh& mesh : plan.meshes()) MESHIFT_RETURN_IF_ERROR(check_mesh_(mesh));
  return absl::OkStatus();
}

absl::StatusOr<Plan> PlanCache::FindPlan(const PlanKey& what) {
  MESHIFT_ASSIGN_OR_RETURN(Plan plan, planner_->Find(*what.from, *what.to, what.reduce_dtype));
  MESHIFT_RETURN_IF_ERROR(CheckMeshes(plan));
  return plan;
}

absl::StatusOr<std::shared_ptr<PreparedPlan>> PlanCache::Find(const PlanKey& what) {
  if (const auto* found = made_.Find(what)) {
    ++stats_.plans_reused;
    return *found;
  }
  return FindAnew(what);
}

absl::StatusOr<std::shared_ptr<PreparedPlan>> PlanCache::FindAnew(const PlanKey& what) {
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, FindPlan(what));
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<PreparedPlan> prepared, Make(plan));
  made_.Insert({&prepared->from, &prepared->to, what.reduce_dtype}, prepared, BytesOf(*prepared));
  return prepared;
}

absl::StatusOr<std::shared_ptr<PreparedPlan>> PlanCache::Find(const Plan& plan) {
  const FingerprintKey key{plan.fingerprint()};
  // Equal fingerprints mean equal steps, but not equal totals: those of another plan are not
  // verified.
  if (const auto* found = brought_.Find(key); found != nullptr && (*found)->plan == plan) {
    ++stats_.plans_reused;
    return *found;
  }
  if (verify_) {
    const Verdict verdict = Verify(plan);
    if (!verdict.ok()) {
      const PlanFault& fault = *verdict.fault;
      const std::string where = fault.step ? fmt::format("step {}: ", *fault.step) : "";
      return InvalidArgument("plan {} breaks rule {}: {}{}", plan.fingerprint().ToString(),
                             fault.rule, where, fault.message);
    }
  }
  MESHIFT_RETURN_IF_ERROR(CheckEngine(plan, planner_->options().engine));
  MESHIFT_RETURN_IF_ERROR(CheckMeshes(plan));
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<PreparedPlan> prepared, Make(plan));
  brought_.Erase(key);
  brought_.Insert(key, prepared, BytesOf(*prepared));
  return prepared;
}

std::shared_ptr<BoundProgram> PlanCache::Add(Program program) {
  auto bound = std::make_shared<BoundProgram>(std::move(program));
  bound->id = next_id_++;
  return bound;
}

absl::StatusOr<std::shared_ptr<PreparedPlan>> PlanCache::Make(const Plan& plan) {
  MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(plan, rank_));
  ++stats_.plans_made;
  return std::make_shared<PreparedPlan>(
      PreparedPlan{.from = plan.from(),
                   .to = plan.to(),
                   .program = Add(std::move(program)),
                   .source = {plan.from().dtype(), LocalBoxOf(plan.from(), rank_).size},
                   .target = {plan.to().dtype(), LocalBoxOf(plan.to(), rank_).size},
                   .text = std::make_shared<const std::string>(TextOf(plan)),
                   .plan = plan,
                   .traits = CoalesceTraitsOf(plan, coalesce_bytes_),
                   .has_source = plan.from().mesh().PositionOf(rank_).has_value(),
                   .has_target = plan.to().mesh().PositionOf(rank_).has_value()});
}

absl::StatusOr<BoundProgram*> PlanCache::ProgramOf(PreparedPlan& prepared,
                                                   const LoweringOptions& layouts) {
  if (layouts == LoweringOptions{}) return prepared.program.get();
  if (const auto* found = prepared.others.Find({layouts})) return found->get();
  MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(prepared.plan, rank_, layouts));
  ++stats_.programs_made;
  return prepared.others.Insert({layouts}, Add(std::move(program)))->get();
}

absl::StatusOr<std::shared_ptr<MergedCall>> PlanCache::Merge(
    absl::Span<const std::shared_ptr<PreparedPlan>> plans,
    absl::Span<const std::shared_ptr<BoundProgram>> programs) {
  ids_.clear();
  for (const std::shared_ptr<BoundProgram>& program : programs) ids_.push_back(program->id);
  if (const auto* found = merged_.Find(ids_)) return *found;

  auto call = std::make_shared<MergedCall>();
  std::vector<const CoalesceTraits*> traits;
  std::string fingerprints;
  for (const std::shared_ptr<PreparedPlan>& plan : plans) {
    traits.push_back(&plan->traits);
    fingerprints += plan->plan.fingerprint().ToString() + "\n";
  }
  call->fingerprint = Fingerprint::Of(fingerprints);
  call->text = std::make_shared<const std::string>(
      fmt::format("{} plans in one call, the first {}", plans.size(), *plans[0]->text));
  for (std::vector<int>& run : Coalesce(traits, SaturatingMul(coalesce_bytes_, kMergedPlans))) {
    const std::shared_ptr<BoundProgram>& first = programs[run[0]];
    MergedCall::Part part{
        .program = first, .tensors = std::move(run), .workspace_offset = call->workspace_bytes};
    if (part.tensors.size() > 1) {
      std::vector<MergePart> parts;
      for (const int i : part.tensors) {
        parts.push_back({.program = &programs[i]->program, .calls = plans[i]->traits.steps});
      }
      MESHIFT_ASSIGN_OR_RETURN(Program program, MergePrograms(parts));
      ++stats_.programs_made;
      part.program = Add(std::move(program));
    }
    call->workspace_bytes += RoundUp(part.program->program.workspace_bytes, kWorkspaceAlignment);
    call->parts.push_back(std::move(part));
  }
  return *merged_.Insert(ids_, std::move(call));
}

}  // namespace meshift::run_internal
