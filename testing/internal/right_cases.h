// Plans on one mesh that are right, written by hand: the verifier accepts them, and engines run
// them.
//
//   for (const Case& c : RightCases()) EXPECT_EQ(Judge(c), "");
#ifndef MESHIFT_TESTING_INTERNAL_RIGHT_CASES_H_
#define MESHIFT_TESTING_INTERNAL_RIGHT_CASES_H_

#include <vector>

#include "testing/internal/plan_cases.h"

namespace meshift {

// Of steps of all kinds but casts, on 40 ranks at most.
std::vector<Case> RightCases();

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_RIGHT_CASES_H_
