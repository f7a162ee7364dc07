// Writes the plans of many tensors as one JSON document (docs/plan_format.md, "Plans of many
// tensors").
//
//   io.out << PlansToJson(model, /*with_traffic=*/true) << "\n";
#ifndef MESHIFT_CLI_PLANS_JSON_H_
#define MESHIFT_CLI_PLANS_JSON_H_

#include <string>

#include "cli/model_plan.h"

namespace meshift::cli {

// {"format", "version", "model", "rows": [{"count", "first", "plan"}], "total", "lower_bound"}; of
// plans made together also "together": {"busiest": {"rank", "level", "direction", "ns"},
// "bound_ns"}; with traffic also "traffic": {"ranks", "bytes_sent", "busiest": {"rank",
// "bytes_sent"}, "levels": [{"name", "bytes_sent", "busiest"}]}. The format is "meshift.plans" for
// plans made together, else "meshift.model_plan".
std::string PlansToJson(const ModelPlan& model, bool with_traffic);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_PLANS_JSON_H_
