#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "meshift/sharding.h"

namespace meshift {
namespace {

// Global indices, in row-major order: what a box means.
std::vector<Shape> ElementsOf(const Box& box) {
  std::vector<Shape> elements = {{}};
  for (size_t d = 0; d < box.size.size(); ++d) {
    std::vector<Shape> longer;
    for (const Shape& element : elements) {
      for (int64_t i = 0; i < box.size[d]; ++i) {
        longer.push_back(element);
        longer.back().push_back(box.offset[d] + i);
      }
    }
    elements = longer;
  }
  return elements;
}

// All boxes inside [0, limit) per dim.
std::vector<Box> AllBoxes(int rank, int64_t limit) {
  std::vector<Box> boxes = {{}};
  for (int d = 0; d < rank; ++d) {
    std::vector<Box> longer;
    for (const Box& box : boxes) {
      for (int64_t offset = 0; offset <= limit; ++offset) {
        for (int64_t size = 0; offset + size <= limit; ++size) {
          longer.push_back(box);
          longer.back().offset.push_back(offset);
          longer.back().size.push_back(size);
        }
      }
    }
    boxes = longer;
  }
  return boxes;
}

TEST(Box, Facts) {
  const Box box{{4, 0}, {2, 8}};
  EXPECT_EQ(box.NumElements(), 16);
  EXPECT_EQ(box.ToString(), "[4:6, 0:8]");
  EXPECT_EQ(Intersect(box, {{5, 4}, {9, 2}}), (Box{{5, 4}, {1, 2}}));
  EXPECT_TRUE(Intersect(box, {{6, 0}, {1, 8}}).IsEmpty());
  EXPECT_TRUE(IsContiguousIn(box, {{3, 0}, {9, 8}}));
  EXPECT_FALSE(IsContiguousIn(box, {{3, 0}, {9, 9}}));
  EXPECT_EQ(OffsetIn(box, {{3, 0}, {9, 9}}), 9);
}

TEST(Box, RankZeroIsOneElement) {
  const Box scalar;
  EXPECT_EQ(scalar.NumElements(), 1);
  EXPECT_FALSE(scalar.IsEmpty());
  EXPECT_EQ(scalar.ToString(), "[]");
  EXPECT_EQ(Intersect(scalar, scalar), scalar);
  // A rank has this box of a scalar that it does not hold.
  const Box none{{0}, {0}};
  EXPECT_EQ(Intersect(scalar, none), none);
  EXPECT_EQ(Intersect(none, scalar), none);
  EXPECT_EQ(CommonElements(none, scalar), 0);
  EXPECT_FALSE(Contains(none, scalar));
  EXPECT_TRUE(Contains(scalar, none));
  EXPECT_TRUE(Contains(scalar, scalar));
  EXPECT_TRUE(IsContiguousIn(scalar, scalar));
  EXPECT_EQ(OffsetIn(scalar, scalar), 0);
}

TEST(Box, EmptyAnywhereIsContained) {
  EXPECT_TRUE(Contains({{0, 0}, {2, 2}}, {{7, 7}, {3, 0}}));
  EXPECT_TRUE(Contains({{0, 0}, {0, 0}}, {{7, 7}, {3, 0}}));
  EXPECT_FALSE(Contains({{0, 0}, {0, 2}}, {{0, 0}, {1, 1}}));
}

// Compares every pair of boxes of a small space with their lists of elements.
void ComparePairs(int rank, int64_t limit) {
  const std::vector<Box> boxes = AllBoxes(rank, limit);
  std::vector<std::vector<Shape>> elements(boxes.size());
  std::transform(boxes.begin(), boxes.end(), elements.begin(), ElementsOf);
  for (size_t a = 0; a < boxes.size(); ++a) {
    const Box& outer = boxes[a];
    ASSERT_EQ(outer.NumElements(), elements[a].size());
    for (size_t b = 0; b < boxes.size(); ++b) {
      const Box& inner = boxes[b];
      std::vector<Shape> common;
      std::set_intersection(elements[a].begin(), elements[a].end(), elements[b].begin(),
                            elements[b].end(), std::back_inserter(common));
      ASSERT_EQ(CommonElements(outer, inner), static_cast<int64_t>(common.size()));
      ASSERT_EQ(ElementsOf(Intersect(outer, inner)), common)
          << outer.ToString() << " " << inner.ToString();
      const bool contains = common == elements[b];
      ASSERT_EQ(Contains(outer, inner), contains) << outer.ToString() << " " << inner.ToString();
      if (!contains) continue;
      const auto run = std::search(elements[a].begin(), elements[a].end(), elements[b].begin(),
                                   elements[b].end());
      ASSERT_EQ(IsContiguousIn(inner, outer), elements[b].empty() || run != elements[a].end())
          << outer.ToString() << " " << inner.ToString();
      if (inner.IsEmpty()) continue;
      const auto first = std::find(elements[a].begin(), elements[a].end(), elements[b][0]);
      ASSERT_EQ(OffsetIn(inner, outer), first - elements[a].begin());
    }
  }
}

TEST(Box, AllPairsOfRankOne) { ComparePairs(1, 6); }
TEST(Box, AllPairsOfRankTwo) { ComparePairs(2, 4); }
TEST(Box, AllPairsOfRankThree) { ComparePairs(3, 2); }

}  // namespace
}  // namespace meshift
