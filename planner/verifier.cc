#include "planner/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/verifier_boxes.h"
#include "planner/verifier_bytes.h"
#include "planner/verifier_casts.h"
#include "planner/verifier_promise.h"
#include "planner/verifier_state.h"
#include "planner/verifier_step.h"

namespace meshift {
namespace {

using verifier_internal::Broken;
using verifier_internal::BytesOf;
using verifier_internal::BytesOfElements;
using verifier_internal::ChangeOf;
using verifier_internal::CheckCasts;
using verifier_internal::CheckData;
using verifier_internal::CheckFields;
using verifier_internal::CheckOp;
using verifier_internal::CheckPromise;
using verifier_internal::Contains;
using verifier_internal::DimState;
using verifier_internal::LargestLocal;
using verifier_internal::State;
using verifier_internal::StateOf;
using verifier_internal::StepBytes;
using verifier_internal::StepView;
using verifier_internal::Wide;
using verifier_internal::WorkspaceOf;
using verifier_internal::World;

using Result = std::optional<PlanFault>;

template <typename... Args>
PlanFault Fault(std::optional<int> step, std::string_view rule, fmt::format_string<Args...> format,
                Args&&... args) {
  return {step, std::string(rule), fmt::format(format, std::forward<Args>(args)...)};
}

// What does not fit is stated as the largest number.
int64_t Saturated(Wide value) {
  return value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value);
}

// What must hold before the steps can be looked at.
Result CheckEnds(const PlanFields& plan) {
  const auto meshes = static_cast<int>(plan.meshes.size());
  for (const int mesh : {plan.from_mesh, plan.to_mesh}) {
    if (mesh < 0 || mesh >= meshes) {
      return Fault({}, "mesh", "mesh {} is out of range for a plan of {} mesh(es)", mesh, meshes);
    }
  }
  if (plan.from_mesh != plan.to_mesh) {
    return Fault({}, "mesh", "'from' is on mesh {}, 'to' on mesh {}; no op of version 1 changes it",
                 plan.from_mesh, plan.to_mesh);
  }
  if (meshes > 1) return Fault({}, "mesh", "{} meshes are listed, one is used", meshes);
  const DeviceMesh& mesh = plan.meshes[plan.from_mesh];
  if (plan.from.mesh() != mesh || plan.to.mesh() != mesh) {
    return Fault({}, "mesh", "'from' or 'to' is not on mesh {} of the list", plan.from_mesh);
  }
  if (plan.from.shape() != plan.to.shape()) {
    return Fault({}, "target", "'from' is of {}, 'to' of {}", plan.from.tensor().ToString(),
                 plan.to.tensor().ToString());
  }
  if (!mesh.IsRowMajor() && mesh.NumRanks() > verifier_internal::kMaxMoving) {
    return Fault({}, "scale", "a list of {} ranks is beyond the {} that can be followed",
                 mesh.NumRanks(), verifier_internal::kMaxMoving);
  }
  return std::nullopt;
}

// Goes through the passes; each looks at all steps.
class Verifier {
 public:
  explicit Verifier(const PlanFields& plan) : plan_(plan), world_(plan.from) {}

  Result Run() {
    if (Result fault = CheckSteps()) return fault;
    if (Result fault = CheckTarget()) return fault;
    if (Result fault = CheckCasts(plan_, views_)) return fault;
    if (Result fault = CheckAllData()) return fault;
    if (Result fault = CheckAverages()) return fault;
    if (Result fault = CheckPromise(plan_, world_, views_)) return fault;
    if (Result fault = CheckBytes()) return fault;
    return CheckTotals();
  }

 private:
  // All ranks' states, before the first step and after each; fills views_.
  Result CheckSteps();
  Result CheckTarget() const;
  Result CheckAllData() const;
  Result CheckAverages() const;
  Result CheckBytes();
  Result CheckTotals() const;

  const PlanFields& plan_;
  const World world_;
  std::vector<State> states_;  // before the first step, after each
  std::vector<StepView> views_;
  Wide sent_ = 0;  // of all steps
  Wide ns_ = 0;
  Wide workspace_ = 0;
};

Result Verifier::CheckSteps() {
  const size_t n = plan_.steps.size();
  states_.reserve(n + 1);  // views_ refer into it
  views_.reserve(n);
  states_.push_back(StateOf(plan_.from));
  for (size_t i = 0; i < n; ++i) {
    const Step& step = plan_.steps[i];
    const auto index = static_cast<int>(i);
    if (std::optional<Broken> broken =
            CheckOp(step, plan_.from, plan_.from_mesh, states_[i].dtype)) {
      return PlanFault{index, std::move(broken->rule), std::move(broken->message)};
    }
    states_.push_back(StateOf(step.after));
    views_.push_back(
        {world_, step, states_[i], states_[i + 1], ChangeOf(world_, states_[i], states_[i + 1])});
    if (std::optional<Broken> broken = CheckFields(views_.back())) {
      return PlanFault{index, std::move(broken->rule), std::move(broken->message)};
    }
  }
  return std::nullopt;
}

Result Verifier::CheckTarget() const {
  const State to = StateOf(plan_.to);
  const State& last = states_.back();
  if (last == to) return std::nullopt;
  const std::string_view who = plan_.steps.empty() ? "the source" : "the last step";
  if (last.dtype != to.dtype) {
    return Fault({}, "target", "{} leaves {}; the target is of {}", who, Name(last.dtype),
                 Name(to.dtype));
  }
  for (size_t d = 0; d < to.dims.size(); ++d) {
    const DimState& have = last.dims[d];
    const DimState& want = to.dims[d];
    if (have == want || (!have.IsPartial() && !want.IsPartial())) continue;
    return Fault({}, "target", "{} leaves mesh dim {} as {}; the target has {}", who,
                 world_.mesh.dim(static_cast<int>(d)).name, have.ToString(), want.ToString());
  }
  return Fault(
      {}, "target", "{} leaves {}; the target is {}", who,
      plan_.steps.empty() ? plan_.from.PlacementsText() : plan_.steps.back().after.PlacementsText(),
      plan_.to.PlacementsText());
}

Result Verifier::CheckAllData() const {
  for (size_t i = 0; i < views_.size(); ++i) {
    if (std::optional<Broken> broken = CheckData(views_[i])) {
      return PlanFault{static_cast<int>(i), std::move(broken->rule), std::move(broken->message)};
    }
  }
  return std::nullopt;
}

// Averages of integers: truncated once, after all sums; and not of copies, whose sum may wrap.
Result Verifier::CheckAverages() const {
  DimSet copies;  // mesh dims that were masked to P(avg)
  std::optional<int> averaged;
  for (size_t i = 0; i < views_.size(); ++i) {
    const StepView& view = views_[i];
    const auto index = static_cast<int>(i);
    for (const int d : view.step.mesh_dims) {
      if (view.step.op == StepOp::kMask && view.after.dims[d].op == ReduceOp::kAvg) {
        copies.push_back(d);
      }
    }
    if (!IsReduction(view.step.op) || !IsInteger(view.before.dtype)) continue;
    if (averaged) {
      return Fault(averaged, "data", "an average of {} is not the last reduction; step {} reduces",
                   Name(view.before.dtype), i);
    }
    if (view.step.reduce_op != ReduceOp::kAvg) continue;
    averaged = index;
    for (const int d : view.step.mesh_dims) {
      if (!Contains(copies, d)) continue;
      return Fault(index, "data", "the sum of the copies of {} on mesh dim {} may wrap",
                   Name(view.before.dtype), view.Name(d));
    }
  }
  return std::nullopt;
}

Result Verifier::CheckBytes() {
  for (size_t i = 0; i < views_.size(); ++i) {
    const Step& step = plan_.steps[i];
    const auto index = static_cast<int>(i);
    const StepBytes bytes = BytesOf(views_[i]);
    const struct {
      std::string_view name;
      int64_t stated;
      Wide right;
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
    workspace_ = std::max(workspace_, WorkspaceOf(bytes, i == 0, i + 1 == views_.size()));
  }
  return std::nullopt;
}

Result Verifier::CheckTotals() const {
  const PlanTotals& total = plan_.total;
  const auto collectives = std::count_if(plan_.steps.begin(), plan_.steps.end(),
                                         [](const Step& step) { return IsCollective(step.op); });
  const State& first = states_.front();
  const State last = StateOf(plan_.to);
  const Wide peak = BytesOfElements(first.dtype, LargestLocal(world_, first)) +
                    BytesOfElements(last.dtype, LargestLocal(world_, last)) + workspace_;
  const struct {
    std::string_view name;
    int64_t stated;
    Wide right;
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

Result CheckFingerprint(const Plan& plan) {
  const Fingerprint right = Fingerprint::Of(plan.CanonicalText());
  if (plan.fingerprint() == right) return std::nullopt;
  return Fault({}, "fingerprint", "fingerprint is {}; it should be {}",
               plan.fingerprint().ToString(), right.ToString());
}

}  // namespace

Verdict Verify(const Plan& plan, const VerifyOptions& options) {
  if (Result fault = CheckEnds(plan.fields())) return {std::move(fault)};
  if (Result fault = Verifier(plan.fields()).Run()) return {std::move(fault)};
  if (!options.check_fingerprint) return {};
  return {CheckFingerprint(plan)};
}

}  // namespace meshift
