// Implements Verify() of meshift/verifier.h: runs the checks in order, and has those of a whole
// plan: meshes, target, work, averages, bytes, totals, limits and the fingerprint. The other files
// of this folder check steps, crossings, casts, groups and promises. The times of steps are checked
// for sign, sum and lower bound only. An explicit max_value is checked, but not its default.
#include "meshift/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "base/work_budget.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/plan/expanded_plan.h"
#include "planner/verifier/boxes.h"
#include "planner/verifier/bytes.h"
#include "planner/verifier/casts.h"
#include "planner/verifier/crossing.h"
#include "planner/verifier/groups.h"
#include "planner/verifier/promise.h"
#include "planner/verifier/state.h"
#include "planner/verifier/step.h"

namespace meshift {
namespace {

using verifier_internal::BytesOf;
using verifier_internal::BytesOfCrossing;
using verifier_internal::BytesOfElements;
using verifier_internal::ChangeOf;
using verifier_internal::CheckCasts;
using verifier_internal::CheckCrossingData;
using verifier_internal::CheckCrossingFields;
using verifier_internal::CheckCrossingOp;
using verifier_internal::CheckData;
using verifier_internal::CheckFields;
using verifier_internal::CheckGroups;
using verifier_internal::CheckOp;
using verifier_internal::CheckPromise;
using verifier_internal::CrossingTraffic;
using verifier_internal::CutChange;
using verifier_internal::DimState;
using verifier_internal::Int128;
using verifier_internal::IsOwned;
using verifier_internal::LargestLocal;
using verifier_internal::MeshShape;
using verifier_internal::OwnerDims;
using verifier_internal::RoundUp16;
using verifier_internal::State;
using verifier_internal::StateOf;
using verifier_internal::StepBytes;
using verifier_internal::StepView;
using verifier_internal::Violation;
using verifier_internal::WorkspaceOf;

using Result = std::optional<PlanFault>;

template <typename... Args>
PlanFault Fault(std::optional<int> step, std::string_view rule, fmt::format_string<Args...> format,
                Args&&... args) {
  return {step, std::string(rule), fmt::format(format, std::forward<Args>(args)...)};
}

// Plans state INT64_MAX for larger values.
int64_t Saturated(Int128 value) {
  return value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value);
}

// Checks source, target and meshes: the other checks depend on them.
Result CheckEnds(const PlanFields& plan) {
  const auto meshes = static_cast<int>(plan.meshes.size());
  for (const int mesh : {plan.from_mesh, plan.to_mesh}) {
    if (mesh < 0 || mesh >= meshes) {
      return Fault({}, "mesh", "mesh {} is out of range for a plan of {} mesh(es)", mesh, meshes);
    }
  }
  if (meshes > 2) return Fault({}, "mesh", "{} meshes are listed; a plan has at most two", meshes);
  if (plan.from_mesh != 0 || plan.to_mesh != meshes - 1) {
    return Fault({}, "mesh",
                 "'from' is on mesh {}, 'to' on mesh {}; with {} mesh(es) they must be on 0 and {}",
                 plan.from_mesh, plan.to_mesh, meshes, meshes - 1);
  }
  if (meshes == 2 && plan.meshes[0] == plan.meshes[1]) {
    return Fault({}, "mesh", "mesh {} is listed twice", plan.meshes[0].ToString());
  }
  if (plan.from.mesh() != plan.meshes[0] || plan.to.mesh() != plan.meshes[plan.to_mesh]) {
    return Fault({}, "mesh", "'from' or 'to' is not on mesh {} of the list",
                 plan.from.mesh() != plan.meshes[0] ? 0 : plan.to_mesh);
  }
  if (plan.from.shape() != plan.to.shape()) {
    return Fault({}, "target", "'from' is {} and 'to' is {}; their shapes must be equal",
                 plan.from.tensor().ToString(), plan.to.tensor().ToString());
  }
  for (const DeviceMesh& mesh : plan.meshes) {
    if (mesh.NumRanks() <= verifier_internal::kMaxMoving) continue;
    if (mesh.IsRowMajor() && meshes == 1) continue;
    return Fault({}, "scale", "a {} of {} ranks{} is too large to verify; the limit is {}",
                 mesh.IsRowMajor() ? "mesh" : "list", mesh.NumRanks(),
                 meshes == 2 ? " in a plan of two meshes" : "", verifier_internal::kMaxMoving);
  }
  return std::nullopt;
}

// The plan's values on one mesh, in order.
std::vector<const Sharding*> ValuesOn(const DeviceMesh& mesh, const PlanFields& plan) {
  std::vector<const Sharding*> values = {&plan.from};
  for (const Step& step : plan.steps) values.push_back(&step.after);
  values.push_back(&plan.to);
  std::erase_if(values, [&](const Sharding* value) { return !(value->mesh() == mesh); });
  return values;
}

bool OwnsAny(const PlanFields& plan) {
  for (const DeviceMesh& mesh : plan.meshes) {
    for (const Sharding* value : ValuesOn(mesh, plan)) {
      for (int d = 0; d < mesh.NumDims(); ++d) {
        if (IsOwned(*value, d)) return true;
      }
    }
  }
  return false;
}

// Ceil cuts of single rows are owned on the mesh dims that are owned in the first or the last value
// on the mesh, or by an At or a ragged cut in any.
OwnerDims OwnerDimsOf(const PlanFields& plan, bool has_owners, bool of_target) {
  OwnerDims dims;
  if (!has_owners) return dims;
  const DeviceMesh& mesh = of_target ? plan.to.mesh() : plan.from.mesh();
  if (of_target && plan.to_mesh != plan.from_mesh) dims.num_before = plan.from.mesh().NumDims();
  for (const DeviceMesh& each : plan.meshes) dims.num += each.NumDims();
  const std::vector<const Sharding*> values = ValuesOn(mesh, plan);
  for (int d = 0; d < mesh.NumDims(); ++d) {
    const auto owns = [&](const Sharding* value) {
      const bool is_end = value == values.front() || value == values.back();
      const Placement& p = value->placement(d);
      return (is_end || p.IsAt() || p.IsRagged()) && IsOwned(*value, d);
    };
    if (std::any_of(values.begin(), values.end(), owns)) dims.ceil.push_back(d);
  }
  return dims;
}

// Runs the passes, each over all steps or the whole plan.
class Verifier {
 public:
  // `has_owners`: owners are owner dims (planner/verifier/state.h); else ragged cuts like others.
  // REQUIRES: then there is no At.
  Verifier(const PlanFields& plan, bool has_owners, WorkBudget& budget)
      : plan_(plan),
        from_mesh_shape_(plan.from, OwnerDimsOf(plan, has_owners, /*of_target=*/false)),
        to_mesh_shape_(plan.to, OwnerDimsOf(plan, has_owners, /*of_target=*/true)),
        budget_(budget) {}

  Result Run() {
    if (Result fault = CheckSteps()) return fault;
    if (Result fault = CheckWork()) return fault;
    if (Result fault = CheckTarget()) return fault;
    if (!to_mesh_shape_.empty) {
      if (Result fault = CheckCasts(plan_, views_)) return fault;
    }
    if (Result fault = CheckAllData()) return fault;
    if (Result fault = CheckAverages()) return fault;
    if (Result fault = CheckPromise(plan_, views_)) return fault;
    if (Result fault = CheckBytes()) return fault;
    if (Result fault = CheckTotals()) return fault;
    return CheckGroups(plan_);
  }

 private:
  // Fills states_ and views_.
  Result CheckSteps();
  // Charges the work that is proportional to groups or lists of ranks, before it is done.
  Result CheckWork();
  Result CheckTarget() const;
  Result CheckAllData();
  Result CheckAverages() const;
  Result CheckBytes();
  Result CheckTotals() const;
  Result CheckLimit(int64_t peak_bytes) const;
  Int128 CopiedBytes() const;
  Int128 SourceBytes() const;  // of the largest local tensor
  Int128 TargetBytes() const;

  const PlanFields& plan_;
  const MeshShape from_mesh_shape_;
  const MeshShape to_mesh_shape_;  // equal to from_mesh_shape_ in a plan on one mesh
  WorkBudget& budget_;
  std::vector<State> states_;  // before the first step, and after each step
  std::vector<StepView> views_;
  CrossingTraffic crossing_;  // of the crossing
  Int128 sent_ = 0;           // the sum over all steps
  Int128 ns_ = 0;
  Int128 workspace_ = 0;
};

Result Verifier::CheckSteps() {
  const size_t n = plan_.steps.size();
  states_.reserve(n + 1);  // views_ refer into it
  views_.reserve(n);
  states_.push_back(StateOf(plan_.from, from_mesh_shape_));
  int mesh = plan_.from_mesh;  // the mesh of the value
  for (size_t i = 0; i < n; ++i) {
    const Step& step = plan_.steps[i];
    const auto index = static_cast<int>(i);
    const bool crosses = step.mesh == plan_.to_mesh && mesh != plan_.to_mesh;
    const DType dtype = states_[i].dtype;
    std::optional<Violation> broken =
        crosses ? CheckCrossingOp(step, plan_.to, dtype)
                : CheckOp(step, mesh == plan_.from_mesh ? plan_.from : plan_.to, mesh, dtype);
    if (broken) return PlanFault{index, std::move(broken->rule), std::move(broken->message)};
    states_.push_back(
        StateOf(step.after, crosses || mesh == plan_.to_mesh ? to_mesh_shape_ : from_mesh_shape_));
    if (crosses) {
      mesh = plan_.to_mesh;
      views_.push_back({to_mesh_shape_, step, states_[i], states_[i + 1], {}, &from_mesh_shape_});
      broken = CheckCrossingFields(views_.back());
    } else {
      const MeshShape& mesh_shape = mesh == plan_.from_mesh ? from_mesh_shape_ : to_mesh_shape_;
      views_.push_back({mesh_shape, step, states_[i], states_[i + 1],
                        ChangeOf(mesh_shape, states_[i], states_[i + 1])});
      broken = CheckFields(views_.back());
    }
    if (broken) return PlanFault{index, std::move(broken->rule), std::move(broken->message)};
  }
  if (mesh == plan_.to_mesh) return std::nullopt;
  return Fault({}, "target", "the value stays on mesh {}; the target is on mesh {}", mesh,
               plan_.to_mesh);
}

Result Verifier::CheckWork() {
  // Units of work (base/work_budget.h):
  constexpr int64_t kMemberWork = 8;     // per member of a moving group, for each parent size
  constexpr int64_t kListedWork = 8;     // per rank of a mesh that lists its ranks
  constexpr int64_t kGroupedWork = 16;   // per rank of two meshes, for each group compared
  constexpr int64_t kCrossingWork = 32;  // per rank of two meshes
  const bool crosses = plan_.meshes.size() > 1;
  int64_t ranks = 0;
  for (const DeviceMesh& mesh : plan_.meshes) ranks += mesh.NumRanks();
  int64_t groups = 0;  // the groups that are compared by their ranks, for a budget of groups
  const GroupBudget& limits = plan_.inputs.options.groups;
  if (limits.existing_groups) groups += 1 + std::ssize(*limits.existing_groups);
  if (limits.IsSet()) groups += std::ssize(views_);
  if (crosses) budget_.Charge(kCrossingWork + SaturatingMul(kGroupedWork, groups), ranks);
  for (const StepView& view : views_) {
    int64_t members = view.mesh_shape.GroupSize(view.change.moving);
    for (const CutChange& cut : view.change.cuts) {
      members = SaturatingMul(members, std::max<int64_t>(std::ssize(cut.parents), 1));
    }
    budget_.Charge(kMemberWork, members);
    if (!view.mesh_shape.mesh.IsRowMajor())
      budget_.Charge(kListedWork, view.mesh_shape.mesh.NumRanks());
  }
  if (!budget_.exhausted()) return std::nullopt;
  return PlanFault{std::nullopt, "scale", Message(budget_.Refusal("the proof"))};
}

Result Verifier::CheckTarget() const {
  const State to = StateOf(plan_.to, to_mesh_shape_);
  const State& last = states_.back();
  if (last == to) return std::nullopt;
  const std::string_view who = plan_.steps.empty() ? "the source" : "the last step";
  if (last.dtype != to.dtype) {
    return Fault({}, "target", "{} leaves {}; the target has dtype {}", who, Name(last.dtype),
                 Name(to.dtype));
  }
  for (size_t d = 0; d < to.dims.size(); ++d) {
    const DimState& have = last.dims[d];
    const DimState& want = to.dims[d];
    if (have == want || (!have.IsPartial() && !want.IsPartial())) continue;
    if (to_mesh_shape_.empty && !(have.IsPartial() && want.IsPartial())) continue;
    return Fault({}, "target", "{} leaves mesh dim {} as {}; the target has {}", who,
                 to_mesh_shape_.mesh.dim(static_cast<int>(d)).name, have.ToString(),
                 want.ToString());
  }
  if (to_mesh_shape_.empty) return std::nullopt;  // all other placements say the same
  return Fault(
      {}, "target", "{} leaves {}; the target is {}", who,
      plan_.steps.empty() ? plan_.from.PlacementsText() : plan_.steps.back().after.PlacementsText(),
      plan_.to.PlacementsText());
}

Result Verifier::CheckAllData() {
  for (size_t i = 0; i < views_.size(); ++i) {
    std::optional<Violation> broken =
        views_[i].Crosses()
            ? CheckCrossingData(views_[i], plan_.inputs.options.topology, &crossing_)
            : CheckData(views_[i]);
    if (!broken) continue;
    return PlanFault{static_cast<int>(i), std::move(broken->rule), std::move(broken->message)};
  }
  return std::nullopt;
}

// An average of integers is truncated once, after all sums. It must not sum copies, which may wrap.
Result Verifier::CheckAverages() const {
  std::vector<std::pair<int, int>> copies;  // mesh and mesh dim of masks to P(avg)
  std::optional<int> averaged;
  for (size_t i = 0; i < views_.size(); ++i) {
    const StepView& view = views_[i];
    const auto index = static_cast<int>(i);
    for (const int d : view.step.mesh_dims) {
      if (view.step.op == StepOp::kMask && view.after.dims[d].op == ReduceOp::kAvg) {
        copies.emplace_back(view.step.mesh, d);
      }
    }
    if (!view.Reduces() || !IsInteger(view.before.dtype)) continue;
    if (averaged) {
      return Fault(averaged, "data",
                   "an average of {} must be the last reduction, but step {} reduces after it",
                   Name(view.before.dtype), i);
    }
    if (view.step.reduce_op != ReduceOp::kAvg) continue;
    averaged = index;
    for (const int d : view.ReducedDims()) {
      const std::pair<int, int> dim(view.mesh_before(), d);
      if (std::find(copies.begin(), copies.end(), dim) == copies.end()) continue;
      return Fault(index, "data", "the sum of the copies of {} on mesh dim {} may wrap",
                   Name(view.before.dtype), view.mesh_shape_before().mesh.dim(d).name);
    }
  }
  return std::nullopt;
}

Int128 Verifier::SourceBytes() const {
  const State& source = states_.front();
  return BytesOfElements(source.dtype, LargestLocal(from_mesh_shape_, source));
}

Int128 Verifier::TargetBytes() const {
  const State target = StateOf(plan_.to, to_mesh_shape_);
  return BytesOfElements(target.dtype, LargestLocal(to_mesh_shape_, target));
}

Result Verifier::CheckBytes() {
  const Buffers buffers = plan_.inputs.options.buffers;
  // The bytes that every rank has of a consumed source.
  Int128 scratch = 0;
  if (buffers == Buffers::kConsumed && plan_.from_mesh == plan_.to_mesh) {
    const State& source = states_.front();
    scratch = BytesOfElements(source.dtype, SmallestLocal(from_mesh_shape_, source)) / 16 * 16;
  }
  for (size_t i = 0; i < views_.size(); ++i) {
    const Step& step = plan_.steps[i];
    const auto index = static_cast<int>(i);
    const StepBytes bytes =
        views_[i].Crosses() ? BytesOfCrossing(views_[i], crossing_) : BytesOf(views_[i]);
    const struct {
      std::string_view name;
      int64_t stated;
      Int128 right;
    } fields[] = {{"bytes_in", step.bytes_in, bytes.in},
                  {"bytes_out", step.bytes_out, bytes.out},
                  {"bytes_sent", step.bytes_sent, bytes.sent}};
    for (const auto& field : fields) {
      if (field.stated == Saturated(field.right)) continue;
      return Fault(index, "bytes", "{} is {}; it should be {}", field.name, field.stated,
                   Saturated(field.right));
    }
    if (step.est_ns < 0) return Fault(index, "est_ns", "est_ns is {}, below 0", step.est_ns);
    sent_ += bytes.sent;
    ns_ += step.est_ns;
    workspace_ = std::max(workspace_, WorkspaceOf(bytes, i == 0, i + 1 == views_.size(), scratch));
  }
  if (buffers == Buffers::kOne) workspace_ += CopiedBytes();
  return std::nullopt;
}

// In one buffer, a single step works on a copy of the smaller of source and target, except an
// all_reduce, which is in place, and a relabel after which every box is as before or empty.
Int128 Verifier::CopiedBytes() const {
  if (plan_.steps.size() != 1 || plan_.steps[0].op == StepOp::kAllReduce) return 0;
  bool stays = plan_.steps[0].op == StepOp::kRelabel;
  for (int64_t p = 0; p < to_mesh_shape_.mesh.NumRanks() && stays; ++p) {
    const int64_t rank = to_mesh_shape_.mesh.RankAt(p);
    if (!from_mesh_shape_.mesh.PositionOf(rank)) continue;
    const Box box = plan_.to.LocalBox(rank);
    stays = box.IsEmpty() || box == plan_.from.LocalBox(rank);
  }
  if (stays) return 0;
  return RoundUp16(std::min(SourceBytes(), TargetBytes()));
}

Result Verifier::CheckTotals() const {
  const PlanTotals& total = plan_.total;
  const auto collectives = std::count_if(plan_.steps.begin(), plan_.steps.end(),
                                         [](const Step& step) { return IsCollective(step.op); });
  const bool shares = plan_.inputs.options.buffers == Buffers::kOne;
  const Int128 peak = workspace_ + (shares ? std::max(SourceBytes(), TargetBytes())
                                           : SourceBytes() + TargetBytes());
  const struct {
    std::string_view name;
    int64_t stated;
    Int128 right;
  } fields[] = {{"collectives", total.collectives, collectives},
                {"bytes_sent", total.bytes_sent, sent_},
                {"est_ns", total.est_ns, ns_},
                {"workspace_bytes", total.workspace_bytes, workspace_},
                {"peak_bytes", total.peak_bytes, peak}};
  for (const auto& field : fields) {
    if (field.stated == Saturated(field.right)) continue;
    return Fault({}, "total", "total {} is {}; it should be {}", field.name, field.stated,
                 Saturated(field.right));
  }
  if (Result fault = CheckLimit(total.peak_bytes)) return fault;
  const LowerBound& bound = plan_.lower_bound;
  const struct {
    std::string_view name;
    int64_t bound;
    int64_t total;
  } bounds[] = {{"bytes_sent", bound.bytes_sent, total.bytes_sent},
                {"est_ns", bound.est_ns, total.est_ns}};
  for (const auto& field : bounds) {
    if (0 <= field.bound && field.bound <= field.total) continue;
    return Fault({}, "lower_bound", "lower bound {} is {}; the plan's total is {}", field.name,
                 field.bound, field.total);
  }
  return std::nullopt;
}

// Checks the limits max_value and max_memory of the options.
Result Verifier::CheckLimit(int64_t peak_bytes) const {
  const PlannerOptions& options = plan_.inputs.options;
  for (size_t i = 0; options.max_value && i + 1 < plan_.steps.size(); ++i) {
    if (plan_.steps[i].bytes_out <= *options.max_value) continue;
    return Fault(static_cast<int>(i), "max_value",
                 "the value after step {} has {} bytes; max_value is {}", i,
                 plan_.steps[i].bytes_out, *options.max_value);
  }
  if (options.max_memory && peak_bytes > *options.max_memory) {
    return Fault({}, "max_memory", "peak_bytes is {}; max_memory is {}", peak_bytes,
                 *options.max_memory);
  }
  return std::nullopt;
}

Result CheckFingerprint(const Plan& plan) {
  const Fingerprint right = Fingerprint::Of(plan.CanonicalText());
  if (plan.fingerprint() == right) return std::nullopt;
  return Fault({}, "fingerprint", "fingerprint is {}; it should be {}",
               plan.fingerprint().ToString(), right.ToString());
}

}  // namespace

Verdict Verify(const Plan& plan, const VerifyOptions& options) {
  WorkBudget budget(options.max_work);
  return Verify(plan, options, budget);
}

Verdict Verify(const Plan& plan, const VerifyOptions& options, WorkBudget& budget) {
  if (Result fault = CheckEnds(plan.fields())) return {std::move(fault)};
  if (std::optional<RootedFault> fault = FindRootedFault(plan.fields())) {
    return {PlanFault{fault->step, "op", std::move(fault->message)}};
  }
  const PlanFields& fields = plan.fields();
  Result fault;
  if (!HasAt(fields)) {
    fault = Verifier(fields, /*has_owners=*/false, budget).Run();
    // A cut with one owner may also be read as At.
    if (fault && OwnsAny(fields) && Verifier(fields, true, budget).Run() == std::nullopt) {
      fault.reset();
    }
  } else {
    fault = Verifier(WithOpsOnCuts(fields), /*has_owners=*/true, budget).Run();
  }
  if (fault) return {std::move(fault)};
  if (!options.check_fingerprint) return {};
  return {CheckFingerprint(plan)};
}

}  // namespace meshift
