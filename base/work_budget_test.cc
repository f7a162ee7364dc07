#include "base/work_budget.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/status.h"

namespace meshift {
namespace {

TEST(WorkBudget, IsExhaustedBeyondItsLimitAndStaysSo) {
  WorkBudget budget(10);
  EXPECT_TRUE(budget.Charge(4));
  EXPECT_TRUE(budget.Charge(3, 2));
  EXPECT_FALSE(budget.exhausted());
  EXPECT_FALSE(budget.Charge(1));
  EXPECT_TRUE(budget.exhausted());
  EXPECT_FALSE(budget.Charge(0));
  EXPECT_EQ(budget.done(), 11);
}

TEST(WorkBudget, CountsSaturate) {
  WorkBudget budget(INT64_MAX);
  EXPECT_TRUE(budget.Charge(INT64_MAX, INT64_MAX));
  EXPECT_TRUE(budget.Charge(INT64_MAX));
  EXPECT_EQ(budget.done(), INT64_MAX);
  WorkBudget less(INT64_MAX - 1);
  EXPECT_FALSE(less.Charge(INT64_MAX / 2, 3));
}

TEST(WorkBudget, RefusalNamesTheLimitAndHowToRaiseIt) {
  const absl::Status status = WorkBudget(1000).Refusal("planning");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(status),
            "planning takes more work than max_work = 1000 allows; raise max_work (--max-work)");
}

}  // namespace
}  // namespace meshift
