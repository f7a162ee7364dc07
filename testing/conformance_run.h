// Runs the conformance cases on an engine, whose ranks may be in several processes, and checks each
// rank's result with the oracle (meshift/testing.h).
//
//   // on every rank, with its own engine:
//   MESHIFT_ASSIGN_OR_RETURN(ConformanceReport report,
//                            RunConformance(ConformanceCases(n, 2000), *engine, *bootstrap));
//   report.ok();                        // equal on all ranks
#ifndef MESHIFT_TESTING_CONFORMANCE_RUN_H_
#define MESHIFT_TESTING_CONFORMANCE_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "meshift/planner.h"
#include "testing/conformance_cases.h"

namespace meshift::testkit {

struct ConformanceReport {
  int64_t cases = 0;
  int64_t whole = 0;            // cases on meshes of all ranks
  int64_t runs = 0;             // redistributions
  int64_t wrong = 0;            // cases with a wrong element
  int64_t replicas_differ = 0;  // cases with replicas that differ
  int64_t miscounted = 0;       // cases in which a rank sent other bytes than planned
  std::string first;            // describes the first failed case; empty: none failed
  bool ok() const { return first.empty(); }
  std::string ToString() const;  // "9 cases, 27 runs, 0 wrong, ..", without `first`
};

// Runs each case with exact, rounding and special values, planned with `planning` and the case's
// reduce dtype. Collective over all ranks of the engine, which must be those of the bootstrap. An
// error of one rank is returned by all.
absl::StatusOr<ConformanceReport> RunConformance(absl::Span<const ConformanceCase> cases,
                                                 Engine& engine, Bootstrap& bootstrap,
                                                 const PlannerOptions& planning = {});

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_CONFORMANCE_RUN_H_
