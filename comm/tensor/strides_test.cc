#include "comm/tensor/strides.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>

namespace meshift {
namespace {

TEST(Strides, RowMajor) {
  EXPECT_EQ(RowMajorStrides({4, 3, 2}), (Shape{6, 2, 1}));
  EXPECT_TRUE(IsRowMajor({4, 1, 2}, {2, 77, 1}));
  EXPECT_FALSE(IsRowMajor({4, 2}, {1, 4}));
  EXPECT_TRUE(IsRowMajor({}, {}));
  EXPECT_TRUE(IsRowMajor({0, 3}, {5, 5}));
}

TEST(Strides, ExtentsReachFromTheLeastToTheLargestPosition) {
  EXPECT_EQ(ExtentOf({4, 2}, {1, 4}), (StridedExtent{0, 8}));
  EXPECT_EQ(ExtentOf({4, 2}, {-1, 4}), (StridedExtent{-3, 5}));
  EXPECT_EQ(ExtentOf({4, 2}, {0, 0}), (StridedExtent{0, 1}));
  EXPECT_EQ(ExtentOf({4, 0}, {INT64_MAX, 1}), (StridedExtent{0, 0}));
  EXPECT_EQ(ExtentOf({1, 2}, {INT64_MAX, 1}), (StridedExtent{0, 2}));
  EXPECT_EQ(ExtentOf({3, 2}, {INT64_MAX, 1}), std::nullopt);
  EXPECT_EQ(ExtentOf({2}, {INT64_MIN}), std::nullopt);
  EXPECT_EQ(ExtentOf({2, 2}, {INT64_MAX / 2, INT64_MAX / 2}), std::nullopt);
}

TEST(Strides, OverlapIsSeen) {
  EXPECT_EQ(FindOverlap({4, 2}, {1, 4}), Overlap::kNo);
  EXPECT_EQ(FindOverlap({4, 2}, {1, 3}), Overlap::kYes);
  EXPECT_EQ(FindOverlap({4, 2}, {1, 0}), Overlap::kYes);
  EXPECT_EQ(FindOverlap({1, 2}, {0, 1}), Overlap::kNo);
  EXPECT_EQ(FindOverlap({0, 2}, {0, 0}), Overlap::kNo);
  // Interleaved, but without overlap.
  EXPECT_EQ(FindOverlap({2, 2}, {3, 2}), Overlap::kNo);
  EXPECT_EQ(FindOverlap({3, 3}, {3, 2}), Overlap::kNo);
  EXPECT_EQ(FindOverlap({3, 4}, {3, 2}), Overlap::kYes);  // 2 * 3 = 3 * 2
}

// Random strides of three small dims, against a comparison of all positions.
TEST(Strides, OverlapIsExact) {
  std::mt19937_64 random(3);
  const auto pick = [&](int n) { return static_cast<int64_t>(random() % n); };
  int overlapping = 0;
  for (int round = 0; round < 20000; ++round) {
    const Shape shape = {1 + pick(4), 1 + pick(4), 1 + pick(4)};
    const Shape strides = {pick(31) - 15, pick(31) - 15, pick(31) - 15};
    std::set<int64_t> seen;
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < shape[1]; ++j) {
        for (int64_t k = 0; k < shape[2]; ++k) {
          seen.insert(i * strides[0] + j * strides[1] + k * strides[2]);
        }
      }
    }
    const bool overlaps = static_cast<int64_t>(seen.size()) < NumElements(shape);
    overlapping += overlaps ? 1 : 0;
    ASSERT_EQ(FindOverlap(shape, strides), overlaps ? Overlap::kYes : Overlap::kNo)
        << shape[0] << "," << shape[1] << "," << shape[2] << " " << strides[0] << "," << strides[1]
        << "," << strides[2];
    const StridedExtent extent = ExtentOf(shape, strides).value();
    ASSERT_EQ(extent.low, *seen.begin());
    ASSERT_EQ(extent.high, *seen.rbegin() + 1);
  }
  EXPECT_GT(overlapping, 4000);
  EXPECT_LT(overlapping, 16000);
}

TEST(Strides, HopelessLayoutsAreLeftOpen) {
  EXPECT_EQ(FindOverlap(Shape(9, 6),
                        {289546311528, 189700432462, 153463659930, 260950575246, 200900931384,
                         169333006409, 210200328628, 166868390665, 213240686848}),
            Overlap::kUnknown);
}

}  // namespace
}  // namespace meshift
