// Renders the output of `meshift run`: the plan's preamble, a table of steps with planned and
// counted bytes and measured times, and the verdict.
//
//   io.out << RenderRun(plan, report, options);
//   return IsRight(plan, report) ? kExitOk : kExitCheckFailed;
//
// Each report must come from a run of its plan (cli/execute.h).
#ifndef MESHIFT_CLI_RENDER_RUN_H_
#define MESHIFT_CLI_RENDER_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/execute.h"
#include "cli/model_plan.h"
#include "cli/problem.h"
#include "meshift/plan.h"

namespace meshift::cli {

// Whether the plan keeps the requested promise and the run does not show the contrary: replicas or
// repeats with different bits. A run without repeats or replicas shows less.
bool KeepsPromise(const Plan& plan, const RunReport& report);
// Whether no element is wrong, the promise is kept, every rank sent the planned bytes, and none
// took more memory than planned. Replicas may differ if the promise does not cover them.
bool IsRight(const Plan& plan, const RunReport& report);

// `loaded`: the folder of the sources, if they were loaded.
std::string RenderRun(const Plan& plan, const RunReport& report, const ExecuteOptions& options,
                      const std::optional<std::string>& loaded = std::nullopt);

// A line per row of `model`, then totals: bytes and times over all parameters, wrong elements,
// differing replicas and groups over the runs. REQUIRES: `model` has rows, and `reports` one report
// for each, in order.
std::string RenderModelRun(const ModelPlan& model, const std::vector<RunReport>& reports,
                           const ProblemFlags& flags, const ExecuteOptions& options);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RENDER_RUN_H_
