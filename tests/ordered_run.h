// Running a plan with the contributions of an OrderedCase on the in-process engine.
//
//   EXPECT_EQ(FindOtherBits(c, plan, ReductionOrder::kAdversarial), "");
#ifndef MESHIFT_TESTS_ORDERED_RUN_H_
#define MESHIFT_TESTS_ORDERED_RUN_H_

#include <string>

#include "comm/local/reduction_order.h"
#include "planner/plan.h"
#include "tests/ordered_case.h"

namespace meshift {

// "" where every rank of the target then holds the bits of the case's plain loop; else what is
// wrong, or why the plan cannot be run. The plan is not verified; its target is not partial.
std::string FindOtherBits(const OrderedCase& c, const Plan& plan, ReductionOrder order);

}  // namespace meshift

#endif  // MESHIFT_TESTS_ORDERED_RUN_H_
