#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <utility>
#include <vector>

#include "comm/local/reduction_order.h"
#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/status.h"
#include "meshift/testing.h"
#include "meshift/union_mesh.h"
#include "meshift/verifier.h"
#include "testing/plan_runner.h"

namespace meshift::testkit {
namespace {

// "all_reduce{ddp,fsdp}"
std::string StepName(const Step& step) {
  const std::string text = step.ToString();
  return text.substr(0, text.find(" -> "));
}

}  // namespace

bool RedistributionResult::ok() const {
  const bool may_differ = plan.kept() == Reproducibility::kNone;
  return !fault.has_value() && wrong == 0 && (replicas_differ == 0 || may_differ) &&
         first_bytes_differ.empty();
}

std::string RedistributionResult::ToString() const {
  std::vector<std::string> lines;
  if (fault.has_value()) {
    const std::string step = fault->step.has_value() ? fmt::format("step {}: ", *fault->step) : "";
    lines.push_back(
        fmt::format("refused by the verifier: {}{}: {}", step, fault->rule, fault->message));
  }
  if (wrong > 0) lines.push_back(fmt::format("{} wrong elements: {}", wrong, first_wrong));
  if (replicas_differ > 0) {
    lines.push_back(
        fmt::format("{} replicated elements differ: {}", replicas_differ, first_difference));
  }
  if (!first_bytes_differ.empty()) lines.push_back(first_bytes_differ);
  return fmt::format("{}", fmt::join(lines, "\n"));
}

absl::StatusOr<RedistributionResult> RunAndCheck(const Plan& plan, uint64_t seed) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, UnionMesh(plan.from().mesh(), plan.to().mesh()));
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<PlanRunner> runner, PlanRunner::Create(mesh));
  const Pass passes[] = {
      {.fill = {.values = Values::kExact, .seed = seed}},
      {.fill = {.values = Values::kExact, .seed = seed + 1}},
      {.fill = {.values = Values::kSpecial, .seed = seed + 2}},
      {.fill = {.values = Values::kRounding, .seed = seed + 3}},
      {.fill = {.values = Values::kRounding, .seed = seed + 4},
       .order = ReductionOrder::kAdversarial},
  };
  MESHIFT_ASSIGN_OR_RETURN(PlanRun run, runner->Run(plan, passes));
  RedistributionResult result{.plan = plan,
                              .fault = Verify(plan).fault,
                              .wrong = run.data.wrong,
                              .replicas_differ = run.data.replicas_differ,
                              .first_wrong = std::move(run.data.first_wrong),
                              .first_difference = std::move(run.data.first_difference),
                              .first_bytes_differ = ""};
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const Step& step = plan.steps()[i];
    result.bytes_planned += step.bytes_sent;
    result.bytes_counted += run.bytes_sent[i];
    if (run.bytes_sent[i] == step.bytes_sent || !result.first_bytes_differ.empty()) continue;
    result.first_bytes_differ = fmt::format("step {} ({}) sends {} bytes, planned {}", i,
                                            StepName(step), run.bytes_sent[i], step.bytes_sent);
  }
  return result;
}

absl::StatusOr<RedistributionResult> RedistributeAndCheck(const RedistributionCheck& check) {
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(check.from, check.to, check.planner));
  return RunAndCheck(plan, check.seed);
}

}  // namespace meshift::testkit
