#include "comm/redistribution/plan_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#include "base/checked_math.h"
#include "base/status.h"
#include "base/work_budget.h"
#include "comm/program/merge_programs.h"
#include "comm/program/program_bytes.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_options.h"
#include "meshift/status.h"
#include "meshift/verifier.h"
#include "placement/local_box.h"
#include "planner/together/together.h"

namespace meshift::run_internal {
namespace {

// "plan 5c1f...: f32[8] on a=2 as P -> R", "... -> R on b=4, topology flat"
std::string TextOf(const Plan& plan) {
  const Sharding& from = plan.from();
  const Sharding& to = plan.to();
  const std::string dtype =
      from.dtype() == to.dtype() ? "" : fmt::format("{} as ", to.tensor().ToString());
  // The senders of a crossing depend on the topology.
  const std::string mesh = from.mesh() == to.mesh()
                               ? ""
                               : fmt::format(" on {}, topology {}", to.mesh().ToString(),
                                             plan.options().topology.ToString());
  return fmt::format("plan {}: {} -> {}{}{}", plan.fingerprint().ToString(), from.ToString(), dtype,
                     to.PlacementsText(), mesh);
}

// FAILED_PRECONDITION if a batch-invariant plan uses reductions of the engine, and this engine has
// neither the native_invariance that the plan was made for nor kReduceScatter.
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
      "plan {} needs an engine whose own reductions are batch-invariant ('{}'); engine {} has "
      "native_invariance '{}'",
      plan.fingerprint().ToString(), Name(asked), engine.name(), Name(engine.native_invariance));
}

std::string TensorName(size_t i) { return fmt::format("tensor {}", i); }

// The approximate size of an entry without its plan.
int64_t BytesOf(const PlanEntry& entry) {
  const Program& program = entry.call->parts[0].program->program;
  const auto bytes_of = [](const auto& list) {
    using Item = typename std::decay_t<decltype(list)>::value_type;
    return static_cast<int64_t>(list.capacity() * sizeof(Item));
  };
  // The size of a prepared instruction.
  constexpr int64_t kReadyBytes = 512;
  int64_t bytes =
      sizeof(PlanEntry) + sizeof(Call) + sizeof(ProgramEntry) + bytes_of(*entry.call->text) +
      bytes_of(program.groups) + bytes_of(program.instructions) +
      kReadyBytes * static_cast<int64_t>(program.instructions.size()) +
      // Twice: in the program and in its executable.
      2 * (bytes_of(program.copies) + bytes_of(program.messages) + bytes_of(program.counts));
  // Rank lists, though ranks in one process share them.
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

absl::StatusOr<const std::shared_ptr<PlanEntry>*> PlanCache::Find(const PlanKey& what) {
  if (const auto* found = planner_plans_.Find(what)) {
    ++stats_.plans_reused;
    return found;
  }
  return PlanAndInsert(what);
}

absl::StatusOr<const std::shared_ptr<PlanEntry>*> PlanCache::PlanAndInsert(const PlanKey& what) {
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, FindPlan(what));
  too_large_ = nullptr;
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<PlanEntry> entry, Make(plan));
  const PlanKey key{&entry->from, &entry->to, what.reduce_dtype};
  return KeptOr(entry, planner_plans_.Insert(key, entry, BytesOf(*entry)));
}

absl::StatusOr<const std::shared_ptr<PlanEntry>*> PlanCache::Find(const Plan& plan) {
  return FindOther(plan, /*check=*/verify_);
}

absl::StatusOr<const std::shared_ptr<PlanEntry>*> PlanCache::FindOther(const Plan& plan,
                                                                       bool check) {
  const FingerprintKey key{plan.fingerprint()};
  // Plans with equal fingerprints have equal steps, but their totals may differ. So compare the
  // whole plan: other totals are not verified yet.
  if (const auto* found = other_plans_.Find(key); found != nullptr && (*found)->plan == plan) {
    ++stats_.plans_reused;
    return found;
  }
  if (check) {
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
  too_large_ = nullptr;
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<PlanEntry> entry, Make(plan));
  other_plans_.Erase(key);
  return KeptOr(entry, other_plans_.Insert(key, entry, BytesOf(*entry)));
}

const std::shared_ptr<PlanEntry>* PlanCache::KeptOr(const std::shared_ptr<PlanEntry>& entry,
                                                    const std::shared_ptr<PlanEntry>* kept) {
  if (kept != nullptr) return kept;
  too_large_ = entry;
  return &too_large_;
}

absl::StatusOr<const PlanEntries*> PlanCache::FindTogether(absl::Span<const Redistribution> list) {
  const auto moves_on = [](const Redistribution& what) {
    return what.from.mesh() != what.to.mesh();
  };
  if (std::count_if(list.begin(), list.end(), moves_on) < 2) return nullptr;
  keys_.clear();
  for (const Redistribution& what : list) {
    keys_.push_back({&what.from, &what.to, what.reduce_dtype});
  }
  if (const ListPlans* found = together_.Find(keys_)) {
    stats_.plans_reused += std::ssize(list);
    return &found->plans;
  }
  return PlanTogetherAndInsert(keys_);
}

absl::StatusOr<const PlanEntries*> PlanCache::PlanTogetherAndInsert(
    absl::Span<const PlanKey> keys) {
  std::vector<Plan> alone;
  std::vector<TensorMove> moves;
  for (size_t i = 0; i < keys.size(); ++i) {
    absl::StatusOr<Plan> plan = FindPlan(keys[i]);
    if (!plan.ok()) return Annotate(plan.status(), TensorName(i));
    alone.push_back(*std::move(plan));
    moves.push_back({.from = *keys[i].from, .to = *keys[i].to});
  }
  // The plans alone are not charged: ranks may have different ones in their caches.
  WorkBudget budget(planner_->options().max_work);
  const absl::StatusOr<PlanSet> set =
      PlanTogether(moves, planner_->options(), budget, [&](size_t i) { return alone[i]; });
  const bool is_made = set.ok() && !budget.exhausted();

  ListPlans made;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool is_alone = !is_made || set->plans[i].fingerprint() == alone[i].fingerprint();
    auto plan = is_alone ? Find(keys[i]) : FindOther(set->plans[i], /*check=*/false);
    if (!plan.ok()) return Annotate(plan.status(), TensorName(i));
    const std::shared_ptr<PlanEntry>& entry = made.plans.emplace_back(**plan);
    made.keys.push_back({&entry->from, &entry->to, keys[i].reduce_dtype});
  }
  const absl::Span<const PlanKey> key = made.keys;
  return &together_.Insert(key, std::move(made))->plans;
}

std::shared_ptr<ProgramEntry> PlanCache::Add(Program program) {
  auto entry = std::make_shared<ProgramEntry>(std::move(program));
  entry->id = next_id_++;
  return entry;
}

std::shared_ptr<Call> PlanCache::AddCall(Program program, const Fingerprint& fingerprint,
                                         std::shared_ptr<const std::string> text) {
  auto call = std::make_shared<Call>();
  call->workspace_bytes = program.workspace_bytes;
  *call->record = RecordOf(program);
  call->parts.push_back({.program = Add(std::move(program)), .tensors = {0}});
  call->fingerprint = fingerprint;
  call->text = std::move(text);
  return call;
}

absl::StatusOr<std::shared_ptr<PlanEntry>> PlanCache::Make(const Plan& plan) {
  MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(plan, rank_));
  ++stats_.plans_made;
  return std::make_shared<PlanEntry>(
      PlanEntry{.from = plan.from(),
                .to = plan.to(),
                .call = AddCall(std::move(program), plan.fingerprint(),
                                std::make_shared<const std::string>(TextOf(plan))),
                .source = {plan.from().dtype(), LocalBoxOf(plan.from(), rank_).size},
                .target = {plan.to().dtype(), LocalBoxOf(plan.to(), rank_).size},
                .plan = plan,
                .traits = CoalesceTraitsOf(plan, coalesce_bytes_),
                .has_source = plan.from().mesh().PositionOf(rank_).has_value(),
                .has_target = plan.to().mesh().PositionOf(rank_).has_value()});
}

absl::StatusOr<Call*> PlanCache::CallOf(PlanEntry& entry, const LoweringOptions& layouts) {
  if (layouts == LoweringOptions{}) return entry.call.get();
  if (const auto* found = entry.others.Find(layouts)) return found->get();
  MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(entry.plan, rank_, layouts));
  ++stats_.programs_made;
  return entry.others
      .Insert(layouts, AddCall(std::move(program), entry.call->fingerprint, entry.call->text))
      ->get();
}

absl::StatusOr<std::shared_ptr<Call>> PlanCache::Merge(
    absl::Span<const std::shared_ptr<PlanEntry>> plans,
    absl::Span<const std::shared_ptr<Call>> calls) {
  ids_.clear();
  for (const std::shared_ptr<Call>& call : calls) ids_.push_back(call->parts[0].program->id);
  if (const auto* found = merged_.Find(ids_)) return *found;

  auto merged = std::make_shared<Call>();
  std::vector<const CoalesceTraits*> traits;
  std::string fingerprints;
  for (const std::shared_ptr<PlanEntry>& plan : plans) {
    traits.push_back(&plan->traits);
    fingerprints += plan->plan.fingerprint().ToString() + "\n";
  }
  merged->fingerprint = Fingerprint::Of(fingerprints);
  merged->text = std::make_shared<const std::string>(
      fmt::format("{} plans in one call, the first {}", plans.size(), *calls[0]->text));
  for (const std::vector<int>& run :
       Coalesce(traits, SaturatingMul(coalesce_bytes_, kMergedPlans))) {
    Call::Part part{.program = calls[run[0]]->parts[0].program,
                    .tensors = run,
                    .workspace_offset = merged->workspace_bytes};
    if (run.size() > 1) {
      std::vector<MergePart> parts;
      for (const int i : run) {
        parts.push_back(
            {.program = &calls[i]->parts[0].program->program, .calls = plans[i]->traits.steps});
      }
      MESHIFT_ASSIGN_OR_RETURN(Program program, MergePrograms(parts));
      ++stats_.programs_made;
      part.program = Add(std::move(program));
    }
    const Program& program = part.program->program;
    const RunRecord record = RecordOf(program);
    for (auto list : {&RunRecord::bytes_sent, &RunRecord::calls}) {
      std::vector<int64_t>& all = (*merged->record).*list;
      all.insert(all.end(), (record.*list).begin(), (record.*list).end());
    }
    merged->workspace_bytes += RoundUp(program.workspace_bytes, kWorkspaceAlignment);
    merged->parts.push_back(std::move(part));
  }
  return *merged_.Insert(ids_, std::move(merged));
}

}  // namespace meshift::run_internal
