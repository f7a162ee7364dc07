#include "planner/cost/envelope.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/checked_math.h"
#include "gtest/gtest.h"
#include "testing/random.h"

namespace meshift {
namespace {

using Lines = Envelope<int>;

int64_t At(const Lines::Line& line, int64_t x) {
  return line.start + MulDivCeil(x, line.times, line.over);
}

TEST(EnvelopeTest, IsTheLeastOfAllLines) {
  testkit::Random random(5);
  for (int round = 0; round < 3000; ++round) {
    Lines least;
    std::vector<Lines::Line> all;
    for (int64_t n = 1 + random.Below(6); n > 0; --n) {
      all.push_back(
          {.start = random.Below(50) * 10, .times = random.Below(7), .over = 1 + random.Below(4)});
      least.Add(all.back());
    }
    least.Seal();
    EXPECT_LE(least.size(), all.size());
    for (int64_t x = 0; x < 300; x += 1 + random.Below(3)) {
      int64_t wanted = INT64_MAX;
      for (const Lines::Line& line : all) wanted = std::min(wanted, At(line, x));
      ASSERT_EQ(At(least.At(x), x), wanted) << x;
    }
  }
}

TEST(EnvelopeTest, OfEqualLinesTheFirst) {
  Lines least;
  least.Add({.start = 1, .times = 2, .over = 1, .what = 7});
  least.Add({.start = 1, .times = 4, .over = 2, .what = 8});
  least.Seal();
  EXPECT_EQ(least.size(), 1);
  EXPECT_EQ(least.At(5).what, 7);
}

TEST(EnvelopeTest, NothingOverflows) {
  Lines least;
  least.Add({.start = 0, .times = INT64_MAX, .over = INT64_MAX});
  least.Add({.start = INT64_MAX, .times = 1, .over = INT64_MAX});
  least.Seal();
  EXPECT_EQ(least.At(1).start, 0);
}

}  // namespace
}  // namespace meshift
