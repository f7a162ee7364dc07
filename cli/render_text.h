// Renders whether a plan keeps its promise about bits (docs/reproducibility.md), and the messages
// that its ranks send. A plan's own text is in planner/plan/plan_text.h.
//
//   MESHIFT_RETURN_IF_ERROR(CheckMessages(plan));    // cli/messages.h
//   io.out << RenderMessages(plan);
#ifndef MESHIFT_CLI_RENDER_TEXT_H_
#define MESHIFT_CLI_RENDER_TEXT_H_

#include <string>

#include "meshift/plan.h"

namespace meshift::cli {

// "promise replicas: kept (why)" or "promise replicas: NOT kept (why)", and a line end. `why` must
// be printable.
std::string RenderPromise(Reproducibility asked, bool kept, const std::string& why);
// A table of the messages that MessagesOf() lists for all steps, one line each, with exact bytes.
// Reductions have none. REQUIRES: CheckMessages(plan) is OK (cli/messages.h).
std::string RenderMessages(const Plan& plan);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RENDER_TEXT_H_
