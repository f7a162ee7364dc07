// Redistributions whose plans' fingerprints are written down (tests/data/golden_fingerprints.txt):
// every compiler and every optimisation must find the same.
//
//   for (const GoldenCase& golden : GoldenCases()) {
//     Plan plan = MakePlan(golden.from, golden.to, golden.options).value();
//   }
#ifndef MESHIFT_TESTS_GOLDEN_CASES_H_
#define MESHIFT_TESTS_GOLDEN_CASES_H_

#include <string>
#include <vector>

#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"

namespace meshift {

struct GoldenCase {
  Sharding from;
  Sharding to;
  PlannerOptions options;
};

// Named cases, and random ones of up to four mesh dims; on flat and on two-level topologies, with
// casts and without. In a fixed order.
std::vector<GoldenCase> GoldenCases();

// The line of the file: "FINGERPRINT  FROM -> TO on TOPOLOGY".
std::string GoldenLine(const GoldenCase& golden, const Plan& plan);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GOLDEN_CASES_H_
