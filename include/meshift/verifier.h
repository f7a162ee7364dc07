// Proves a plan, sharing no code with the planner's transitions: follows which global elements,
// with which partial contributions, every rank holds after every step, on one mesh or two.
//
//   Verdict verdict = Verify(plan);
//   if (!verdict.ok()) fmt::print("{}: {}\n", verdict.fault->rule, verdict.fault->message);
//
// What is judged, in this order: that every step can be done as it says and leaves what `after`
// says; that the last step leaves the target; that no value is lost or added twice; the promise
// about bits (`kept`); bytes and totals; the fingerprint, last. Rules are named in docs/errors.md.
#ifndef MESHIFT_VERIFIER_H_
#define MESHIFT_VERIFIER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

struct Verdict {
  std::optional<PlanFault> fault;  // the first rule that is broken
  bool ok() const { return !fault.has_value(); }
};

struct VerifyOptions {
  // Off: for plans that were put together without one, by hand or by a test.
  bool check_fingerprint = true;
  // The work that the proof may take, in the units of PlannerOptions::max_work. The default ends
  // any proof within some seconds and about 1 GiB.
  int64_t max_work = kDefaultMaxWork;
};

// Never fails, whatever the plan says; what is too large to be followed, or takes more work than
// max_work, breaks the rule "scale". On
// a row-major mesh O(steps * kinds of groups), whatever the number of ranks; with listed ranks, and
// from mesh to mesh, O(ranks + messages). A pure function; safe for concurrent use.
Verdict Verify(const Plan& plan, const VerifyOptions& options = {});

}  // namespace meshift

#endif  // MESHIFT_VERIFIER_H_
