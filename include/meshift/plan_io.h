// PlanToJson, PlanFromJson and others: write and read plans as JSON or as text.
//
//   std::string text = PlanToJson(plan);              // one object; docs/plan_format.md
//   PlanFault fault;
//   absl::StatusOr<Plan> again = PlanFromJson(text, &fault);
//
// Readers check the format only: meshift/verifier.h proves the plan and its fingerprint. They take
// untrusted text; JSON may be nested at most 100 deep, with at most 10,000 keys in an object, each
// once. Pure functions; safe for concurrent use.
#ifndef MESHIFT_PLAN_IO_H_
#define MESHIFT_PLAN_IO_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// The step and the rule of docs/errors.md at which a plan fails.
struct PlanFault {
  std::optional<int> step;  // from 0; null for a rule about the whole plan
  std::string rule;
  std::string message;
};

// `indent`: spaces per level; -1 = one line. Ends without a newline.
std::string PlanToJson(const Plan& plan, int indent = 2);

// Reads the output of PlanToJson; unknown keys are ignored. Errors: INVALID_ARGUMENT, or
// UNIMPLEMENTED for a newer version; the message names the step and the value. Then `fault`, unless
// null, is filled in. Its rule is "format" if the text is not a plan (not JSON, truncated, newer, a
// missing key or a wrong type), else the rule of the invalid field (a mesh dim that the mesh does
// not have, an `after` that does not parse).
absl::StatusOr<Plan> PlanFromJson(std::string_view json, PlanFault* fault = nullptr);

// The plan as readable text, the output of `meshift plan`.
//
//   # meshift plan: bf16[4096,512], P,P,R -> R,R,R
//   # mesh ddp=8,fsdp=5,tp=1 (40 ranks)
//   # topology h100, engine local, planner best, reproducibility replicas
//   # step  op          mesh dims  groups  after     in    out       sent       est  how
//   0       all_reduce  ddp,fsdp   1 x 40  R,R,R  4 MiB  4 MiB  8178893 B  68.72 us  sum ...
//   total: 1 collective, sent 8178893 B, est 68.72 us, peak 8 MiB, workspace 0 B
//   ...
//
// Nothing is rounded: a size without a short decimal form in a larger unit is in bytes.
// docs/plan_format.md defines the format.
std::string PlanToText(const Plan& plan);
// Errors and faults as PlanFromJson.
absl::StatusOr<Plan> PlanFromText(std::string_view text, PlanFault* fault = nullptr);
// Either form: text begins with '#'.
absl::StatusOr<Plan> ReadPlan(std::string_view text, PlanFault* fault = nullptr);

}  // namespace meshift

#endif  // MESHIFT_PLAN_IO_H_
