// Verify: proves a plan. It tracks the global elements and partial contributions that every rank
// holds after every step, on one mesh or two. It shares no code with the planner's transitions.
//
//   Verdict verdict = Verify(plan);
//   if (!verdict.ok()) fmt::print("{}: {}\n", verdict.fault->rule, verdict.fault->message);
//
// It checks in this order: the meshes and shapes of source and target fit; each step is possible
// and its result is `after`; the last step gives the target; no value is rounded twice; no value is
// lost or added twice; the promise about bits (`kept`); bytes, totals and limits; groups; the
// fingerprint. docs/errors.md lists the rules. It does not check that the plan is the cheapest, nor
// the estimate of each step's time, except that it is not negative.
#ifndef MESHIFT_VERIFIER_H_
#define MESHIFT_VERIFIER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

class WorkBudget;  // base/work_budget.h

struct Verdict {
  std::optional<PlanFault> fault;  // the first broken rule
  bool ok() const { return !fault.has_value(); }
};

struct VerifyOptions {
  // False: for plans without a fingerprint, made by hand or by a test.
  bool check_fingerprint = true;
  // The limit on the work of the proof, in the units of PlannerOptions::max_work. The default
  // allows a few seconds and about 1 GiB.
  int64_t max_work = kDefaultMaxWork;
};

// Returns a verdict for any plan. A plan that is too large to track, or takes more work than
// max_work, breaks the rule "scale". On a row-major mesh the time grows with the sizes of the
// groups in which data moves, and the kinds of such groups; with listed ranks, and from mesh to
// mesh, also with ranks and messages. A pure function; safe for concurrent use.
Verdict Verify(const Plan& plan, const VerifyOptions& options = {});
// The same, but charges the work to `budget`, which several proofs share, instead of
// options.max_work.
Verdict Verify(const Plan& plan, const VerifyOptions& options, WorkBudget& budget);

}  // namespace meshift

#endif  // MESHIFT_VERIFIER_H_
