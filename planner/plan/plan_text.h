// Plans as text that people read, and back: what `meshift plan` prints.
//
//   std::string text = PlanToText(plan);
//     // # meshift plan: bf16[4096,512], P,P,R -> R,R,R
//     // # mesh ddp=8,fsdp=5,tp=1 (40 ranks)
//     // # topology h100, engine local, planner best, reproducibility replicas
//     // # step  op          mesh dims  groups  after     in    out       sent       est  how
//     // 0       all_reduce  ddp,fsdp   1 x 40  R,R,R  4 MiB  4 MiB  8178893 B  68.72 us  sum ...
//     // total: 1 collective, sent 8178893 B, est 68.72 us, peak 8 MiB, workspace 0 B
//     // ...
//   absl::StatusOr<Plan> again = PlanFromText(text);   // *again == plan
//
// Nothing is rounded: what is not a short decimal fraction of a larger unit is in bytes.
// docs/plan_format.md states the form.
#ifndef MESHIFT_PLANNER_PLAN_PLAN_TEXT_H_
#define MESHIFT_PLANNER_PLAN_PLAN_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "planner/plan/quantity.h"

namespace meshift {

std::string PlanToText(const Plan& plan);

// Errors and faults as PlanFromJson.
absl::StatusOr<Plan> PlanFromText(std::string_view text, PlanFault* fault = nullptr);

// Either form: text begins with '#'.
absl::StatusOr<Plan> ReadPlan(std::string_view text, PlanFault* fault = nullptr);

// Parts, for those who put other tables between them. The "#" lines; `verb` is "plan" or "run".
std::string PlanPreamble(const Plan& plan, std::string_view verb);
// The last of them: "# topology flat, engine local, planner best".
std::string PlanInputsLine(const Plan& plan);
// The steps, a row each, below a line of titles.
std::string PlanStepsTable(const Plan& plan);
// "1 x 40": one group of 40; "-" for local steps.
std::string GroupText(const Step& step);
// "ddp,fsdp", or "-".
std::string MeshDimsText(const Step& step);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_PLAN_TEXT_H_
