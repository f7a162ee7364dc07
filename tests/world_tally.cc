#include "tests/world_tally.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "meshift/planner.h"
#include "meshift/union_mesh.h"
#include "meshift/verifier.h"

namespace meshift {

std::string WorldTally::ToString() const {
  const auto taken = std::chrono::steady_clock::now() - start;
  std::string text = fmt::format(
      "{} cases in {} ms: {} refused, {} not proven, {} wrong, {} with differing replicas, {} "
      "with other bytes than planned; ops",
      cases, std::chrono::duration_cast<std::chrono::milliseconds>(taken).count(), refused,
      unproven, wrong, differing, miscounted);
  for (const auto& [op, count] : ops) text += fmt::format(" {} {}", op, count);
  return text;
}

PlanRunner& Runners::For(const DeviceMesh& mesh) {
  std::unique_ptr<PlanRunner>& runner = runners_[mesh.ToString()];
  if (runner == nullptr) runner = std::make_unique<PlanRunner>(mesh);
  return *runner;
}

PlanRunner& Runners::For(const Sharding& from, const Sharding& to) {
  return For(UnionMesh(from.mesh(), to.mesh()).value());
}

void JudgeCase(const Sharding& from, const Sharding& to, const PlannerOptions& options,
               PlanRunner& runner, WorldTally* tally) {
  ++tally->cases;
  const auto fail = [&](int64_t* count, const std::string& why) {
    if (++*count > 3) return;
    ADD_FAILURE() << from.ToString() << " -> " << to.ToString()
                  << (options.reduce_dtype
                          ? fmt::format(", reduced in {}", Name(*options.reduce_dtype))
                          : "")
                  << ": " << why;
  };
  const absl::StatusOr<Plan> plan = MakePlan(from, to, options);
  if (!plan.ok()) return fail(&tally->refused, plan.status().ToString());
  std::string steps;
  for (const Step& step : plan->steps()) {
    const bool adds = IsCrossing(step) && step.reduce_op;
    ++tally->ops[fmt::format("{}{}", Name(step.op), adds ? "{adds}" : "")];
    steps += step.ToString() + "; ";
  }
  if (plan->kept() < options.reproducibility) fail(&tally->unproven, "promise not kept");
  const Verdict verdict = Verify(*plan);
  if (!verdict.ok()) {
    fail(&tally->unproven, steps + verdict.fault->rule + ": " + verdict.fault->message);
  }
  const absl::StatusOr<RunOutcome> outcome = runner.Run(*plan);
  if (!outcome.ok()) return fail(&tally->wrong, steps + outcome.status().ToString());
  if (outcome->wrong > 0) fail(&tally->wrong, steps + outcome->message);
  if (outcome->replicas_differ > 0) fail(&tally->differing, steps + outcome->message);
  if (outcome->bytes_differ > 0) fail(&tally->miscounted, steps + outcome->message);
}

}  // namespace meshift
