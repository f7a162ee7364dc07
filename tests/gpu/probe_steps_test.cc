#include "tests/gpu/probe_steps.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace meshift {
namespace {

TEST(ProbeStepsTest, SumsInEveryOrderAndByEveryTree) {
  EXPECT_EQ(PossibleSums({5}), (std::vector<float>{5}));
  EXPECT_EQ(PossibleSums({1, 2, 4}), (std::vector<float>{7}));
  // 1e8 and its neighbours are 8 apart.
  EXPECT_EQ(PossibleSums({1e8F, 1, -1e8F}), (std::vector<float>{0, 1}));
  // (1e8 + 3) + (3 - 1e8) is 0, 1e8 + (3 + 3) - 1e8 is 8, and so on.
  EXPECT_EQ(PossibleSums({1e8F, 3, -1e8F, 3}), (std::vector<float>{0, 3, 6, 8}));
}

TEST(ProbeStepsTest, StepsHaveNamesOfTheirOwnAndEnd) {
  std::set<std::string> names;
  for (const ProbeStep& step : ProbeSteps()) {
    EXPECT_TRUE(names.insert(std::string(step.name)).second) << step.name;
    EXPECT_NE(step.run, nullptr) << step.name;
    EXPECT_GT(step.limit.count(), 0) << step.name;
  }
  EXPECT_GE(names.size(), 10U);
}

}  // namespace
}  // namespace meshift
