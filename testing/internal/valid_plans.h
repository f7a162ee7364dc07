// Handwritten valid plans on one mesh: the verifier accepts them, and engines run them.
//
//   for (const Case& c : ValidPlans()) EXPECT_EQ(Judge(c), "");
#ifndef MESHIFT_TESTING_INTERNAL_VALID_PLANS_H_
#define MESHIFT_TESTING_INTERNAL_VALID_PLANS_H_

#include <vector>

#include "testing/internal/plan_cases.h"

namespace meshift {

// All kinds of steps except casts, on at most 40 ranks.
std::vector<Case> ValidPlans();

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_VALID_PLANS_H_
