// Writes the plans of many tensors as one JSON document, and checks such documents.
// docs/plan_format.md, "Plans of many tensors", has the keys.
//
//   io.out << PlansToJson(model, /*with_traffic=*/true) << "\n";
//   MESHIFT_ASSIGN_OR_RETURN(const auto verdict, CheckPlans(text, kDefaultMaxWork));
//   if (verdict) io.out << *verdict << "\n";    // "ok 12 plans of 723 tensors"
//
// Documents are untrusted.
#ifndef MESHIFT_CLI_PLANS_JSON_H_
#define MESHIFT_CLI_PLANS_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/model_plan.h"

namespace meshift::cli {

// The format is "meshift.plans" for plans made together, else "meshift.model_plan".
// `with_traffic`: has the key "traffic" (cli/model_traffic.h).
std::string PlansToJson(const ModelPlan& model, bool with_traffic);

struct PlansVerdict {
  bool ok = false;
  std::string text;  // without a newline, printable: "ok 12 plans of 723 tensors", "wrong: ..."
};

// Proves each plan of a document, then compares all else with what the plans give: totals, the
// busiest link, traffic, rounds. nullopt: `text` is not such a document. INVALID_ARGUMENT or
// UNIMPLEMENTED: a key is missing or has a wrong type, a number is out of range, or the version is
// newer; the message names the key and the value. `max_work`: of all proofs together; more breaks
// the rule "scale".
absl::StatusOr<std::optional<PlansVerdict>> CheckPlans(std::string_view text, int64_t max_work);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_PLANS_JSON_H_
