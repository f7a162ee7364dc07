#include "tests/plan_runner.h"

#include <fmt/format.h>

#include <chrono>
#include <string>

#include "comm/local/reduction_order.h"
#include "meshift/status.h"
#include "meshift/testing.h"
#include "planner/plan/rank_bytes.h"

namespace meshift {

// A damaged plan may leave a collective without members: it must end soon.
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
  const auto differ = [&](const std::string& who, int64_t sent, int64_t planned) {
    ++outcome.bytes_differ;
    if (outcome.message.empty()) {
      outcome.message = fmt::format("{} sends {} bytes, planned {}", who, sent, planned);
    }
  };
  const DeviceMesh& mesh = runner_->mesh();
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    if (run.bytes_sent[i] != plan.steps()[i].bytes_sent) {
      differ(fmt::format("step {}", i), run.bytes_sent[i], plan.steps()[i].bytes_sent);
      continue;
    }
    for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
      const int64_t rank = mesh.RankAt(position);
      const int64_t sent = run.rank_bytes_sent[position][i];
      const int64_t planned = BytesSent(plan, static_cast<int>(i), rank);
      if (sent == planned) continue;
      differ(fmt::format("rank {} in step {}", rank, i), sent, planned);
      break;
    }
  }
  return outcome;
}

}  // namespace meshift
