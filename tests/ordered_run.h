// Running a plan with the contributions of an OrderedCase on the in-process engine.
//
//   EXPECT_EQ(FindOtherBits(c, plan, ReductionOrder::kAdversarial), "");
#ifndef MESHIFT_TESTS_ORDERED_RUN_H_
#define MESHIFT_TESTS_ORDERED_RUN_H_

#include <cstdint>
#include <string>

#include "comm/local/reduction_order.h"
#include "meshift/plan.h"
#include "tests/ordered_case.h"

namespace meshift {

// "" where every rank of the target then holds the bits of the case's plain loop, and each step has
// sent the bytes of the plan; else what is wrong, or why the plan cannot be run. `domain`: of
// LocalWorld::SetReductionOrder. The plan is not verified; its target is not partial.
std::string FindOtherBits(const OrderedCase& c, const Plan& plan, ReductionOrder order,
                          int64_t domain = 3);

}  // namespace meshift

#endif  // MESHIFT_TESTS_ORDERED_RUN_H_
