// A plan as text: a preamble of "#" lines, one line per step, totals with the lower bound, the
// promise, the fingerprint. Steps are numbered from 0, as `meshift check` names them. Bytes are
// those of the worst rank.
//
//   io.out << RenderPlan(plan);
#ifndef MESHIFT_CLI_RENDER_TEXT_H_
#define MESHIFT_CLI_RENDER_TEXT_H_

#include <string>

#include "planner/plan.h"

namespace meshift::cli {

std::string RenderPlan(const Plan& plan);

// Its parts, for those who put other tables between them.
std::string RenderPreamble(const Plan& plan, const std::string& verb);
// The last line of the preamble: "# topology flat, engine local, planner best".
std::string RenderInputs(const Plan& plan);
// "promise replicas: kept (why)" or "promise replicas: NOT kept (why)".
std::string RenderPromise(Reproducibility asked, bool kept, const std::string& why);
// "1 x 40": one group of 40; "-" for local steps.
std::string GroupText(const Step& step);
// "ddp,fsdp"
std::string MeshDimsText(const Step& step);

// The messages of all steps that have any, one line each.
std::string RenderMessages(const Plan& plan);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RENDER_TEXT_H_
