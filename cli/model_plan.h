// Plans all parameters of a model file (cli/model.h), each distinct problem once. Renders the
// result as text; cli/plans_json.h writes it as JSON. Runs no plan.
//
//   MESHIFT_ASSIGN_OR_RETURN(ModelPlan model, PlanModel(flags, io, /*together=*/false));
//   io.out << RenderModelPlan(model, flags);
#ifndef MESHIFT_CLI_MODEL_PLAN_H_
#define MESHIFT_CLI_MODEL_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/io.h"
#include "cli/problem.h"
#include "meshift/plan.h"
#include "meshift/planner.h"

namespace meshift::cli {

// Parameters with the same dtype, shape and placements.
struct ModelRow {
  int64_t count = 0;
  std::string first;  // the name of the first of them
  Plan plan;
  std::string from;  // placements to show: the plan's, but with the word EP for an expert's cut
  std::string to;
};

// The busiest link of plans that are made together.
struct TogetherTotals {
  BusiestLink busiest;
  int64_t busiest_ns = 0;
  int64_t bound_ns = 0;
};

struct ModelPlan {
  std::string name;
  std::vector<ModelRow> rows;  // in order of their first parameters
  int64_t setup_ns = 0;  // to create the groups that do not exist yet, over --expected-uses, or 0

  std::optional<TogetherTotals> together = std::nullopt;  // none: each plan is made alone

  int64_t NumParameters() const;
  // Sums over all parameters; peak and workspace are the largest; setup_ns counts each group once.
  PlanTotals Total() const;
  LowerBound Bound() const;
};

// Reads the options of a problem (cli/problem.h). INVALID_ARGUMENT: --tensor is given, or --from or
// --to is given beside --rules, or a value is wrong or missing; it names the option or the
// parameter. RESOURCE_EXHAUSTED: all plans together need more work than --max-work. Other errors
// are those of MakePlan, and of BadFile (cli/io.h). The result has a row.
// `together`: with MakePlans (meshift/planner.h).
absl::StatusOr<ModelPlan> PlanModel(const ProblemFlags& flags, Io& io, bool together = false);

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
