// Runs a plan with the contributions of an OrderedCase on the in-process engine.
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

// Returns "" if every rank of the target holds the bits of the case's reference loop and each step
// sent the planned bytes; otherwise the first difference, or the reason why the plan cannot run.
// `domain`: for LocalWorld::SetReductionOrder. The plan is not verified; its target must not be
// partial.
std::string FindOtherBits(const OrderedCase& c, const Plan& plan, ReductionOrder order,
                          int64_t domain = 3);

}  // namespace meshift

#endif  // MESHIFT_TESTS_ORDERED_RUN_H_
