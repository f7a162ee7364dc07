#include "tests/plan_runner.h"

#include <fmt/format.h>

#include <chrono>

#include "base/status_macros.h"
#include "comm/local/reduction_order.h"
#include "testing/values.h"

namespace meshift {

// A damaged plan may leave a collective without its members: that is to end soon.
PlanRunner::PlanRunner(const DeviceMesh& mesh)
    : runner_(*testkit::PlanRunner::Create(mesh, std::chrono::milliseconds(200))) {}

absl::StatusOr<RunOutcome> PlanRunner::Run(const Plan& plan) {
  using testkit::Values;
  const testkit::Pass passes[] = {
      {.fill = {.values = Values::kExact, .seed = 1}},
      {.fill = {.values = Values::kSpecial, .seed = 2}},
      {.fill = {.values = Values::kRounding, .seed = 3}, .order = ReductionOrder::kAdversarial}};
  MESHIFT_ASSIGN_OR_RETURN(const testkit::PlanRun run, runner_->Run(plan, passes));
  RunOutcome outcome{.wrong = run.data.wrong,
                     .replicas_differ = run.data.replicas_differ,
                     .bytes_differ = 0,
                     .message = ""};
  if (!run.data.ok()) {
    outcome.message =
        fmt::format("{}: {}", plan.steps().empty() ? "no steps" : plan.steps()[0].ToString(),
                    run.data.ToString());
  }
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    const int64_t planned = plan.steps()[i].bytes_sent;
    if (run.bytes_sent[i] == planned) continue;
    ++outcome.bytes_differ;
    if (outcome.message.empty()) {
      outcome.message =
          fmt::format("step {} sends {} bytes, planned {}", i, run.bytes_sent[i], planned);
    }
  }
  return outcome;
}

}  // namespace meshift
