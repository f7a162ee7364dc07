// Plans as text: an accepted plan prints a text that is read as the same plan, and so does its
// JSON; the verifier ends, and has the same verdict on all.
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
    fuzz::Require(!plan.status().message().empty(), "an error has a message");
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
  fuzz::Require(by_json.ok(), "the plan is also valid as JSON",
                by_json.ok() ? "" : by_json.status().ToString() + "\n" + json);
  fuzz::Require(PlanToText(*by_json) == text, "both forms say the same", json);
  fuzz::RequireSameVerdict(*plan, *again);
  return 0;
}
