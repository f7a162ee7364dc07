// Laws of the verifier for plans that a fuzzer made.
#ifndef MESHIFT_FUZZ_PLAN_LAWS_H_
#define MESHIFT_FUZZ_PLAN_LAWS_H_

#include <cstdint>

#include "fuzz/fuzz.h"
#include "meshift/plan.h"
#include "meshift/verifier.h"

namespace meshift::fuzz {

// Whether a proof takes little time: the verifier may take O(ranks) per step.
inline bool IsSmall(const Plan& plan) {
  constexpr int64_t kMaxRanks = 512;
  return plan.from().mesh().NumRanks() <= kMaxRanks && plan.to().mesh().NumRanks() <= kMaxRanks &&
         plan.steps().size() <= 16;
}

// Requires that equal plans have the same verdict. Skips big plans.
inline void RequireSameVerdict(const Plan& plan, const Plan& again) {
  if (!IsSmall(plan)) return;
  const Verdict verdict = Verify(plan);
  const Verdict repeated = Verify(again);
  Require(verdict.ok() == repeated.ok(), "equal plans have equal verdicts");
  if (verdict.ok()) return;
  Require(!verdict.fault->rule.empty() && !verdict.fault->message.empty(), "a fault says why");
  Require(verdict.fault->rule == repeated.fault->rule &&
              verdict.fault->message == repeated.fault->message &&
              verdict.fault->step == repeated.fault->step,
          "equal plans have equal faults", verdict.fault->message);
}

}  // namespace meshift::fuzz

#endif  // MESHIFT_FUZZ_PLAN_LAWS_H_
