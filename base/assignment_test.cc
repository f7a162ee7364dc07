#include "base/assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace meshift {
namespace {

// The total weight of an assignment, and the number of rows in the column of the same number.
struct Worth {
  __int128 total = 0;
  int64_t own = 0;
  friend bool operator<(const Worth& a, const Worth& b) {
    return a.total != b.total ? a.total < b.total : a.own < b.own;
  }
};

Worth WorthOf(const std::vector<int64_t>& columns, const std::vector<int64_t>& weights) {
  const int64_t n = static_cast<int64_t>(columns.size());
  Worth worth;
  for (int64_t row = 0; row < n; ++row) {
    worth.total += weights[row * n + columns[row]];
    worth.own += columns[row] == row ? 1 : 0;
  }
  return worth;
}

std::vector<int64_t> Identity(int64_t n) {
  std::vector<int64_t> columns(n);
  std::iota(columns.begin(), columns.end(), 0);
  return columns;
}

TEST(MaxAssignment, IsAsGoodAsTheBestPermutation) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) {
    const int64_t n = static_cast<int64_t>(random() % 8);
    // Few different weights: many assignments are equally good.
    const uint64_t values = i % 3 == 0 ? 2 : i % 3 == 1 ? 5 : uint64_t{1} << 62;
    std::vector<int64_t> weights(n * n);
    for (int64_t& weight : weights) {
      weight = static_cast<int64_t>(random() % values) - (i % 2 == 0 ? 0 : 3);
    }
    std::vector<int64_t> columns = Identity(n);
    Worth best = WorthOf(columns, weights);
    do {
      best = std::max(best, WorthOf(columns, weights));
    } while (std::next_permutation(columns.begin(), columns.end()));
    const std::vector<int64_t> found = MaxAssignment(n, weights);
    std::vector<int64_t> sorted = found;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(sorted, Identity(n));
    const Worth worth = WorthOf(found, weights);
    ASSERT_TRUE(worth.total == best.total && worth.own == best.own) << "case " << i;
  }
}

TEST(MaxAssignment, FindsAHiddenPermutation) {
  constexpr int64_t kN = 300;
  std::vector<int64_t> hidden = Identity(kN);
  std::mt19937_64 random(2);
  std::shuffle(hidden.begin(), hidden.end(), random);
  std::vector<int64_t> weights(kN * kN, 0);
  for (int64_t row = 0; row < kN; ++row) weights[row * kN + hidden[row]] = 1;
  EXPECT_EQ(MaxAssignment(kN, weights), hidden);
}

TEST(MaxAssignment, TakesTheLargestWeights) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(MaxAssignment(3, {0, kMax, 0, kMax, 0, 1, kMax, kMax, -kMax}),
            (std::vector<int64_t>{1, 2, 0}));
  EXPECT_EQ(MaxAssignment(0, {}), std::vector<int64_t>());
}

}  // namespace
}  // namespace meshift
