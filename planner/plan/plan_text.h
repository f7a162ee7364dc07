// Formats parts of a plan's text form (PlanToText). Commands print tables of their own between
// these parts.
//
//   PlanPreamble(plan, "plan") + PlanStepsTable(plan)
//     // # meshift plan: bf16[4096,512], P,P,R -> R,R,R
//     // # mesh ddp=8,fsdp=5,tp=1 (40 ranks)
//     // # topology h100, engine local, planner best, reproducibility replicas
//     // # step  op          mesh dims  groups  after     in    out       sent       est  how
//     // 0       all_reduce  ddp,fsdp   1 x 40  R,R,R  4 MiB  4 MiB  8178893 B  68.72 us  sum ...
//
// Bytes and times are exact, with units (quantity.h); nothing is rounded. REQUIRES: each step's
// mesh dims exist; plans that were read or made by the planner keep this. Safe for concurrent use.
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

// The "#" lines before the table; `verb` is "plan", "run" or "explain".
std::string PlanPreamble(const Plan& plan, std::string_view verb);
// The last of them: "# topology flat, engine local, planner best, reproducibility replicas".
std::string PlanInputsLine(const Plan& plan);
// A line of titles, and a row for each step.
std::string PlanStepsTable(const Plan& plan);
// "1 x 40": one group of 40; "-" if the step states neither number, as local steps do.
std::string GroupText(const Step& step);
// "ddp,fsdp", or "-".
std::string MeshDimsText(const Step& step);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_PLAN_TEXT_H_
