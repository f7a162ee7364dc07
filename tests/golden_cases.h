// Redistributions whose plans' fingerprints are recorded in tests/data/golden_fingerprints.txt.
// Every compiler and optimization level must give the same.
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

// Named cases, and random ones of up to four mesh dims, on flat and on two-level topologies, with
// and without casts. In a fixed order.
std::vector<GoldenCase> GoldenCases();

// A line of the file: "FINGERPRINT  FROM -> TO on TOPOLOGY".
std::string GoldenLine(const GoldenCase& golden, const Plan& plan);

}  // namespace meshift

#endif  // MESHIFT_TESTS_GOLDEN_CASES_H_
