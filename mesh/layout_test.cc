// layout.h states the laws as @post conditions; each Test... helper checks those of the function in
// its name.
#include "mesh/layout.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"

namespace meshift {
namespace {

using ::testing::ElementsAre;
using Values = std::vector<int64_t>;

Layout Parsed(const std::string& text) {
  absl::StatusOr<Layout> layout = Layout::Parse(text);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

// The error message of `layout`.
std::string Refusal(const absl::StatusOr<Layout>& layout) {
  if (layout.ok()) return "accepted: " + layout->ToString();
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
  return Message(layout.status());
}

std::string Text(const absl::StatusOr<Layout>& layout) {
  return layout.ok() ? layout->ToString() : layout.status().ToString();
}

// All layouts of up to `max_modes` modes of these sizes and strides.
std::vector<Layout> AllLayouts(int max_modes, const Values& sizes, const Values& strides) {
  std::vector<Layout> layouts = {Layout()};
  size_t first = 0;  // the first with the most modes
  for (int m = 0; m < max_modes; ++m) {
    const size_t end = layouts.size();
    for (; first < end; ++first) {
      for (int64_t size : sizes) {
        for (int64_t stride : strides) {
          Layout::Modes modes = layouts[first].modes();
          modes.push_back({size, stride});
          layouts.push_back(*Layout::Create(std::move(modes)));
        }
      }
    }
  }
  return layouts;
}

std::vector<Layout> SmallLayouts() { return AllLayouts(3, {1, 2, 3}, {0, 1, 2, 3, 4, 6}); }

bool IsBijectionOntoWorld(const Layout& layout, int64_t world_size) {
  Values values = layout.Indices();
  std::sort(values.begin(), values.end());
  Values world(world_size);
  std::iota(world.begin(), world.end(), 0);
  return values == world;
}

void TestCoalesce(const Layout& layout) {
  const Layout result = Coalesce(layout);
  SCOPED_TRACE(layout.ToString() + " -> " + result.ToString());
  ASSERT_EQ(result.Size(), layout.Size());
  ASSERT_EQ(result.Indices(), layout.Indices());
  for (int m = 0; m < result.NumModes(); ++m) {
    ASSERT_GT(result.mode(m).size, 1);
    if (m == 0) continue;
    ASSERT_NE(result.mode(m - 1).stride, result.mode(m).size * result.mode(m).stride);
  }
}

void TestComplement(const Layout& layout, int64_t world_size) {
  const absl::StatusOr<Layout> result = Complement(layout, world_size);
  SCOPED_TRACE(layout.ToString() + " -> " + Text(result));
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(IsBijectionOntoWorld(*Concatenate(*result, layout), world_size));
  const Values values = result->Indices();
  ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
  ASSERT_EQ(Coalesce(*result), *result);
}

void TestConcatenate(const Layout& outer, const Layout& inner) {
  const Layout result = *Concatenate(outer, inner);
  for (int64_t i = 0; i < outer.Size(); ++i) {
    for (int64_t j = 0; j < inner.Size(); ++j) {
      ASSERT_EQ(result(i * inner.Size() + j), outer(i) + inner(j));
    }
  }
}

void TestComposition(const Layout& a, const Layout& b) {
  const absl::StatusOr<Layout> result = Composition(a, b);
  SCOPED_TRACE(a.ToString() + " after " + b.ToString() + " -> " + Text(result));
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->Size(), b.Size());
  for (int64_t i = 0; i < b.Size(); ++i) ASSERT_EQ((*result)(i), a(b(i)));
  // Each mode of b is the product of the next modes of the result.
  int m = 0;
  for (const Layout::Mode& mode : b.modes()) {
    ASSERT_LT(m, result->NumModes());
    int64_t size = result->mode(m++).size;
    while (size < mode.size && m < result->NumModes()) size *= result->mode(m++).size;
    ASSERT_EQ(size, mode.size);
  }
  ASSERT_EQ(m, result->NumModes());
}

TEST(LayoutTest, IsAFunctionOfTheIndex) {
  const Layout layout = Parsed("(2,3):(12,1)");
  EXPECT_EQ(layout.NumModes(), 2);
  EXPECT_EQ(layout.mode(0), (Layout::Mode{2, 12}));
  EXPECT_EQ(layout.Size(), 6);
  EXPECT_EQ(layout.Cosize(), 15);
  EXPECT_EQ(layout(4), 13);
  EXPECT_THAT(layout.Indices(), ElementsAre(0, 1, 2, 12, 13, 14));
  EXPECT_EQ(Layout().Size(), 1);
  EXPECT_EQ(Layout().Cosize(), 1);
  EXPECT_THAT(Layout().Indices(), ElementsAre(0));
  EXPECT_EQ(Text(Layout::RowMajor({8, 5})), "(8,5):(5,1)");
  EXPECT_EQ(Text(Layout::RowMajor({})), "():()");
}

TEST(LayoutTest, PrintsWhatParses) {
  for (const Layout& layout : SmallLayouts()) ASSERT_EQ(Parsed(layout.ToString()), layout);
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(AllLayouts(2, {1, 2, 3}, {0, 1, 2})));
}

TEST(LayoutTest, IndicesAreTheValues) {
  for (const Layout& layout : SmallLayouts()) {
    const Values values = layout.Indices();
    ASSERT_EQ(static_cast<int64_t>(values.size()), layout.Size());
    for (int64_t i = 0; i < layout.Size(); ++i) ASSERT_EQ(values[i], layout(i));
    ASSERT_EQ(*std::max_element(values.begin(), values.end()) + 1, layout.Cosize());
    const bool injective = std::set<int64_t>(values.begin(), values.end()).size() == values.size();
    ASSERT_EQ(layout.IsInjective(), injective) << layout.ToString();
  }
}

TEST(LayoutTest, RowMajorIsTheIdentity) {
  for (const Values& sizes : {Values{}, Values{7}, Values{2, 3, 4}, Values{1, 5, 1}}) {
    const Layout layout = *Layout::RowMajor(sizes);
    ASSERT_TRUE(IsBijectionOntoWorld(layout, layout.Size()));
    for (int64_t i = 0; i < layout.Size(); ++i) ASSERT_EQ(layout(i), i);
  }
}

// Would not end, or not fit into memory, if the indices were listed.
TEST(LayoutTest, HugeLayouts) {
  const Layout mesh = *Layout::RowMajor({1 << 20, 1 << 20, 1 << 20});
  EXPECT_TRUE(mesh.IsInjective());
  EXPECT_FALSE(Parsed("(1099511627776,2):(1,1)").IsInjective());
  EXPECT_EQ(Coalesce(mesh).ToString(), "(1152921504606846976):(1)");
  EXPECT_EQ(Text(Complement(*mesh.Select({0, 2}), mesh.Size())), "(1048576):(1048576)");
  EXPECT_EQ(Text(Composition(mesh, Parsed("(1048576):(1048577)"))), "(1048576):(1048577)");
  EXPECT_EQ(Refusal(Complement(Parsed("(3):(4611686018427387903)"), 12)),
            "layout (3):(4611686018427387903) does not tile any world below 2^63");
}

TEST(LayoutTest, Select) {
  const Layout mesh = *Layout::RowMajor({2, 3, 4});
  EXPECT_EQ(Text(mesh.Select({0, 2})), "(2,4):(12,1)");
  EXPECT_EQ(Text(mesh.Select({2, 0})), "(4,2):(1,12)");
  EXPECT_EQ(Text(mesh.Select({})), "():()");
  EXPECT_EQ(Refusal(mesh.Select({3})), "layout (2,3,4):(12,4,1) has no mode 3");
  EXPECT_EQ(Refusal(mesh.Select({-1})), "layout (2,3,4):(12,4,1) has no mode -1");
  EXPECT_EQ(Refusal(mesh.Select({1, 1})), "mode 1 of layout (2,3,4):(12,4,1) is selected twice");
}

TEST(LayoutTest, Concatenate) {
  EXPECT_EQ(Text(Concatenate(Parsed("(2):(12)"), Parsed("(4):(1)"))), "(2,4):(12,1)");
  const std::vector<Layout> layouts = AllLayouts(2, {1, 2, 3}, {0, 1, 3});
  for (const Layout& outer : layouts) {
    for (const Layout& inner : layouts) TestConcatenate(outer, inner);
  }
}

TEST(LayoutTest, Coalesce) {
  EXPECT_EQ(Coalesce(Parsed("(8,5):(5,1)")).ToString(), "(40):(1)");
  EXPECT_EQ(Coalesce(Parsed("(2,1,3):(3,7,1)")).ToString(), "(6):(1)");
  EXPECT_EQ(Coalesce(Parsed("(2,3):(12,1)")).ToString(), "(2,3):(12,1)");
  EXPECT_EQ(Coalesce(Parsed("(2,3):(0,0)")).ToString(), "(6):(0)");
  EXPECT_EQ(Coalesce(Parsed("(1):(7)")).ToString(), "():()");
  for (const Layout& layout : SmallLayouts()) TestCoalesce(layout);
}

TEST(LayoutTest, Complement) {
  EXPECT_EQ(Text(Complement(Parsed("(2,3):(12,1)"), 24)), "(4):(3)");
  EXPECT_EQ(Text(Complement(Parsed("(4):(2)"), 24)), "(3,2):(8,1)");
  EXPECT_EQ(Text(Complement(Layout(), 24)), "(24):(1)");
  EXPECT_EQ(Text(Complement(Parsed("(24):(1)"), 24)), "():()");
  EXPECT_EQ(Refusal(Complement(Parsed("(4):(2)"), 12)),
            "layout (4):(2) does not tile a world of 12, which is not a multiple of 8");
  EXPECT_EQ(Refusal(Complement(Parsed("(2,2):(3,2)"), 12)),
            "layout (2,2):(3,2) does not tile any world: stride 3 is not a positive multiple of 4");
  EXPECT_EQ(Refusal(Complement(Parsed("(2):(0)"), 12)),
            "layout (2):(0) does not tile any world: stride 0 is not a positive multiple of 1");
  EXPECT_EQ(Refusal(Complement(Layout(), 0)), "the world size is 0; it must be 1 or more");
}

// The values of `layout`, all below 32, as bits; 0 where two are equal.
uint32_t Mask(const Layout& layout) {
  uint32_t mask = 0;
  for (int64_t value : layout.Indices()) {
    if (mask >> value & 1) return 0;
    mask |= uint32_t{1} << value;
  }
  return mask;
}

// Complement() finds a tiling if and only if an exhaustive search of small layouts finds one.
TEST(LayoutTest, ComplementIsExact) {
  constexpr int64_t kMaxWorld = 24;
  Values sizes(kMaxWorld), strides(kMaxWorld);
  std::iota(sizes.begin(), sizes.end(), 1);
  std::iota(strides.begin(), strides.end(), 0);
  std::set<uint32_t> masks;
  std::vector<Layout> layouts;  // of values below kMaxWorld
  for (const Layout& layout : AllLayouts(2, sizes, strides)) {
    if (layout.Cosize() > kMaxWorld) continue;
    masks.insert(Mask(layout));
    if (Coalesce(layout) == layout) layouts.push_back(layout);
  }
  masks.erase(0);
  for (int64_t world_size = 1; world_size <= kMaxWorld; ++world_size) {
    const uint32_t world = (uint32_t{1} << world_size) - 1;
    for (const Layout& layout : layouts) {
      if (Complement(layout, world_size).ok()) {
        TestComplement(layout, world_size);
        continue;
      }
      const Values values = layout.Indices();
      for (uint32_t shifts : masks) {
        if (std::popcount(shifts) * layout.Size() != world_size) continue;
        uint32_t tiled = 0;
        bool overlap = false;
        for (int64_t value : values) {
          overlap |= (tiled & (shifts << value)) != 0 || (shifts >> (32 - value - 1)) > 1;
          tiled |= shifts << value;
        }
        ASSERT_FALSE(!overlap && tiled == world) << layout.ToString() << " in " << world_size;
      }
    }
  }
}

TEST(LayoutTest, ComplementListsTheBasesOfGroups) {
  const Layout mesh = *Layout::RowMajor({2, 3, 4});
  EXPECT_EQ(Text(Complement(*mesh.Select({1}), 24)), "(2,4):(12,1)");
  EXPECT_EQ(Text(Complement(*mesh.Select({0, 1}), 24)), "(4):(1)");
  EXPECT_EQ(Text(Complement(*mesh.Select({0, 2}), 24)), "(3):(4)");
}

TEST(LayoutTest, Composition) {
  const Layout a = Parsed("(2,3,4):(1,2,6)");
  EXPECT_EQ(Text(Composition(a, Parsed("(6):(4)"))), "(2,3):(1,2)");
  EXPECT_EQ(Text(Composition(a, Parsed("(3,2):(4,2)"))), "(3,2):(2,12)");
  EXPECT_EQ(Text(Composition(a, Parsed("(2,1):(0,9)"))), "(2,1):(0,0)");
  EXPECT_EQ(Text(Composition(Parsed("(4,5):(5,1)"), Parsed("(10):(2)"))), "(10):(2)");
  EXPECT_EQ(Text(Composition(Parsed("(4,5):(1,4)"), Parsed("(3):(2)"))), "(3):(8)");
  EXPECT_EQ(Refusal(Composition(a, Parsed("(7):(4)"))),
            "(2,3,4):(1,2,6) after (7):(4): value 24 is beyond the 24 indices of the first layout");
  EXPECT_EQ(Refusal(Composition(a, Parsed("(3):(3)"))),
            "(2,3,4):(1,2,6) after (3):(3): mode (3):(3) does not cut mode (4):(6) evenly");
  EXPECT_EQ(Refusal(Composition(a, Parsed("(6):(1)"))),
            "(2,3,4):(1,2,6) after (6):(1): mode (6):(1) does not cut mode (4):(6) evenly");
  EXPECT_EQ(
      Refusal(Composition(a, Parsed("(2,2):(2,2)"))),
      "(2,3,4):(1,2,6) after (2,2):(2,2): modes of the second layout add up beyond mode (4):(6)");
}

TEST(LayoutTest, CompositionOfSmallLayouts) {
  const std::vector<Layout> layouts = AllLayouts(2, {1, 2, 3, 4}, {0, 1, 2, 3, 4, 6, 8});
  int64_t composed = 0;
  for (const Layout& a : layouts) {
    const Layout identity = *Layout::RowMajor(Values{a.Size()});
    TestComposition(a, identity);
    TestComposition(*Layout::RowMajor(Values{a.Cosize()}), a);
    for (const Layout& b : layouts) {
      if (b.Cosize() > a.Size() || !Composition(a, b).ok()) continue;
      TestComposition(a, b);
      ++composed;
    }
  }
  EXPECT_GT(composed, 100000);
}

TEST(LayoutTest, CompositionIsAssociative) {
  const std::vector<Layout> layouts = AllLayouts(2, {2, 3, 4}, {0, 1, 2, 4, 6});
  for (const Layout& a : layouts) {
    for (const Layout& b : layouts) {
      const absl::StatusOr<Layout> ab = Composition(a, b);
      if (!ab.ok()) continue;
      for (const Layout& c : AllLayouts(1, {2, 3, 4}, {1, 2, 3})) {
        const absl::StatusOr<Layout> bc = Composition(b, c);
        if (!bc.ok()) continue;
        const absl::StatusOr<Layout> left = Composition(*ab, c);
        const absl::StatusOr<Layout> right = Composition(a, *bc);
        if (!left.ok() || !right.ok()) continue;
        ASSERT_EQ(left->Indices(), right->Indices());
      }
    }
  }
}

TEST(LayoutTest, CreateRefuses) {
  EXPECT_EQ(Refusal(Layout::Create({{2, 1}, {0, 1}})),
            "layout (2,0):(1,1) has size 0; sizes are 1 or more");
  EXPECT_EQ(Refusal(Layout::Create({{2, -1}})),
            "layout (2):(-1) has stride -1; strides are 0 or more");
  EXPECT_EQ(Refusal(Layout::Create({{INT64_MAX, 0}, {2, 0}})),
            "layout (9223372036854775807,2):(0,0) reaches beyond 2^63 - 1");
  EXPECT_EQ(Refusal(Layout::Create({{2, INT64_MAX}})),
            "layout (2):(9223372036854775807) reaches beyond 2^63 - 1");
  EXPECT_EQ(Refusal(Layout::RowMajor({INT64_MAX, 2})),
            "sizes (9223372036854775807,2) multiply to more than 2^63 - 1");
  EXPECT_EQ(Refusal(Layout::RowMajor({2, 0})),
            "layout (2,0):(0,1) has size 0; sizes are 1 or more");
}

TEST(LayoutTest, ParseRefuses) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "expected '(' at the end"},
      {"8:5", "expected '(' at '8:5'"},
      {"(8", "expected ',' or ')' after the number at '8'"},
      {"(", "expected a 64-bit number at the end"},
      {"(8,):(1,1)", "expected a 64-bit number at '):(1,1)'"},
      {"(9223372036854775808):(1)", "expected a 64-bit number at '9223372036854775808):(1)'"},
      {"(8 ):(1)", "expected ',' or ')' after the number at '8 ):(1)'"},
      {"(8)", "expected ':' at the end"},
      {"(8):", "expected '(' at the end"},
      {"(8):(1)x", "'x' follows the end of the layout"},
      {"(8,5):(1)", "the number of strides is 1; expected 2, one for each size"},
      {"(-8):(1)", "layout (-8):(1) has size -8; sizes are 1 or more"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(Refusal(Layout::Parse(text)), "layout '" + text + "': " + message);
  }
}

// Groups of meshes beyond the exhaustive ones.
RC_GTEST_PROP(LayoutProperty, GroupsOfAMeshAndTheirBasesTileIt, ()) {
  const Values sizes = *rc::gen::resize(5, rc::gen::container<Values>(rc::gen::inRange(1, 6)));
  const Layout mesh = *Layout::RowMajor(sizes);
  std::vector<int> chosen;
  for (int m = 0; m < mesh.NumModes(); ++m) {
    if (*rc::gen::arbitrary<bool>()) chosen.push_back(m);
  }
  TestComplement(*mesh.Select(chosen), mesh.Size());
  RC_ASSERT(!testing::Test::HasFailure());
}

}  // namespace
}  // namespace meshift
