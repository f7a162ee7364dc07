// Plans as text: what is read prints, and reads to the same, also by way of JSON; the verifier
// ends, and says the same of both.
#include <cstdint>
#include <string>

#include "fuzz/fuzz.h"
#include "fuzz/plan_laws.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "planner/plan/plan_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace fuzz = meshift::fuzz;
  meshift::PlanFault fault;
  const auto plan = meshift::PlanFromText(fuzz::Text(data, size), &fault);
  if (!plan.ok()) {
    fuzz::Require(!plan.status().message().empty(), "an error says what is wrong");
    fuzz::Require(!fault.rule.empty(), "a fault has a rule");
    return 0;
  }
  const std::string text = PlanToText(*plan);
  const auto again = meshift::PlanFromText(text);
  fuzz::Require(again.ok(), "what prints is read",
                again.ok() ? "" : again.status().ToString() + "\n" + text);
  fuzz::Require(PlanToText(*again) == text, "what prints is read to the same", text);
  const std::string json = PlanToJson(*plan);
  fuzz::Require(PlanToJson(*again) == json, "what prints is read to the same plan", json);
  const auto by_json = meshift::PlanFromJson(json);
  fuzz::Require(by_json.ok(), "what is read is a plan in JSON too",
                by_json.ok() ? "" : by_json.status().ToString() + "\n" + json);
  fuzz::Require(PlanToText(*by_json) == text, "both forms say the same", json);
  fuzz::RequireSameVerdict(*plan, *again);
  return 0;
}
