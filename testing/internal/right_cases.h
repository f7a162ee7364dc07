// Handwritten valid plans on one mesh: the verifier accepts them, and engines run them.
//
//   for (const Case& c : RightCases()) EXPECT_EQ(Judge(c), "");
#ifndef MESHIFT_TESTING_INTERNAL_RIGHT_CASES_H_
#define MESHIFT_TESTING_INTERNAL_RIGHT_CASES_H_

#include <vector>

#include "testing/internal/plan_cases.h"

namespace meshift {

// All kinds of steps except casts, on at most 40 ranks.
std::vector<Case> RightCases();

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_RIGHT_CASES_H_
