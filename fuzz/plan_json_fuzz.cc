// Plans as JSON: an accepted plan prints a text that is read as the same plan; the verifier ends,
// and has the same verdict on both.
#include <cstdint>
#include <string>

#include "fuzz/fuzz.h"
#include "fuzz/plan_laws.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace fuzz = meshift::fuzz;
  meshift::PlanFault fault;
  const auto plan = meshift::PlanFromJson(fuzz::Text(data, size), &fault);
  if (!plan.ok()) {
    fuzz::Require(!plan.status().message().empty(), "an error has a message");
    fuzz::Require(!fault.rule.empty(), "a fault has a rule");
    return 0;
  }
  const std::string text = PlanToJson(*plan);
  const auto again = meshift::PlanFromJson(text);
  fuzz::Require(again.ok(), "what prints is read", again.ok() ? "" : again.status().ToString());
  fuzz::Require(PlanToJson(*again) == text, "what prints is read to the same", text);
  fuzz::RequireSameVerdict(*plan, *again);
  return 0;
}
