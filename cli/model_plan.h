// Plans all parameters of a model file (cli/model.h), each distinct problem once. Renders the
// result as text; cli/plans_json.h writes it as JSON. Runs no plan.
//
//   MESHIFT_ASSIGN_OR_RETURN(ModelPlan model, PlanModel(flags, io, {.together = true}));
//   io.out << RenderModelPlan(model, flags);
#ifndef MESHIFT_CLI_MODEL_PLAN_H_
#define MESHIFT_CLI_MODEL_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/work_budget.h"
#include "cli/io.h"
#include "cli/problem.h"
#include "meshift/plan.h"
#include "meshift/planner.h"

namespace meshift::cli {

// Parameters with the same dtype, shape and placements.
struct ModelRow {
  int64_t count = 0;
  std::string first = {};  // the name of the first of them
  Plan plan;
  std::string from =
      {};  // placements to show: the plan's, but with the word EP for an expert's cut
  std::string to = {};
  std::optional<std::string> id = std::nullopt;  // of a line of a batch: JSON text
};

// The terms of the objective of plans that are made together, as in PlanSet.
struct TogetherTotals {
  BusiestLink busiest;
  int64_t busiest_ns = 0;
  int64_t starts_ns = 0;
  int64_t copies_ns = 0;
  int64_t bound_ns = 0;
};

struct ModelPlan {
  std::optional<std::string> name;  // none: the rows are lines of a batch
  std::vector<ModelRow> rows = {};  // in order of their first parameters
  int64_t setup_ns = 0;  // to create the groups that do not exist yet, over --expected-uses, or 0

  std::optional<TogetherTotals> together = std::nullopt;  // none: each plan is made alone
  std::optional<int64_t> bucket_bytes = std::nullopt;     // none: there are no rounds
  std::vector<Round> rounds = {};                         // moves are rows

  int64_t NumParameters() const;
  // Sums over all parameters; peak and workspace are the largest; setup_ns counts each group once.
  PlanTotals Total() const;
  LowerBound Bound() const;
};

// How parameters are planned besides their planner options.
struct PlanningMode {
  bool together = false;                               // with MakePlans (meshift/planner.h)
  std::optional<int64_t> bucket_bytes = std::nullopt;  // of rounds: 1 or more
};

// Reads the options of a problem (cli/problem.h). INVALID_ARGUMENT: --tensor is given, or --from or
// --to is given beside --rules, or a value is wrong or missing; it names the option or the
// parameter. RESOURCE_EXHAUSTED: all plans together need more work than --max-work. Other errors
// are those of MakePlan, and of BadFile (cli/io.h). The result has a row.
absl::StatusOr<ModelPlan> PlanModel(const ProblemFlags& flags, Io& io,
                                    const PlanningMode& mode = {});
// Plans the moves with MakePlans, and sets all of *result but its name. row(i, plan) makes a row.
// Errors are those of MakePlans, but name a move by name(i).
absl::Status PlanRowsTogether(absl::Span<const TensorMove> moves, const PlannerOptions& options,
                              std::optional<int64_t> bucket_bytes, WorkBudget& budget,
                              absl::FunctionRef<std::string(size_t i)> name,
                              absl::FunctionRef<ModelRow(size_t i, Plan plan)> row,
                              ModelPlan* result);
// The time to create the groups of all plans, each once. REQUIRES: the verifier accepts the plans,
// and so does the planner. RESOURCE_EXHAUSTED: the budget.
absl::StatusOr<int64_t> SetupNs(const std::vector<ModelRow>& rows, WorkBudget& budget);

// Preamble, one row per distinct (tensor, placements, steps), totals, promise. Plans that differ
// only in the expert's place share a row, with the bytes and time of the worst. With --rules,
// --to-mesh or --relabel-ranks also the bytes that ranks send (cli/model_traffic.h).
std::string RenderModelPlan(const ModelPlan& model, const ProblemFlags& flags);
// The promise line: for all plans, or for the first that does not keep it.
std::string RenderModelPromise(const ModelPlan& model);
// Whether the output has the bytes that ranks send.
bool ShowsTraffic(const ProblemFlags& flags);

// "slice{tp}; all_reduce{dp}", or "nothing to do".
std::string StepsText(const Plan& plan);
// The "#" lines above a table of parameters.
std::string RenderModelPreamble(const ModelPlan& model, const ProblemFlags& flags,
                                const std::string& verb);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MODEL_PLAN_H_
