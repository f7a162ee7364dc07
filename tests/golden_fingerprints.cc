// Prints tests/data/golden_fingerprints.txt again after a change of plans:
//
//   ./bazelw run //tests:golden_fingerprints > tests/data/golden_fingerprints.txt
#include <fmt/format.h>

#include <cstdio>

#include "meshift/planner.h"
#include "tests/golden_cases.h"

int main() {
  for (const meshift::GoldenCase& golden : meshift::GoldenCases()) {
    const absl::StatusOr<meshift::Plan> plan =
        meshift::MakePlan(golden.from, golden.to, golden.options);
    if (!plan.ok()) {
      fmt::print(stderr, "{}\n", plan.status().ToString());
      return 1;
    }
    fmt::print("{}\n", meshift::GoldenLine(golden, *plan));
  }
  return 0;
}
