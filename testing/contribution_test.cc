// The recipes' promise: sums, products and quotients are exact in any order, in every dtype.
#include "testing/contribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "meshift/placement.h"
#include "meshift/testing.h"
#include "testing/number.h"
#include "testing/random.h"

namespace meshift::testkit {
namespace {

template <typename T>
std::vector<typename T::Bits> ContributionsTo(const Recipe& recipe, int64_t element) {
  std::vector<typename T::Bits> parts(recipe.partials);
  WithMode<T>(recipe.mode, [&](auto mode) {
    for (uint64_t p = 0; p < recipe.partials; ++p) {
      parts[p] = Contribution<T, mode()>(recipe, ElementHash(recipe, element), Place(recipe, p));
    }
  });
  return parts;
}

// Reduces the parts one by one in random order, with each result rounded to T.
template <typename T>
typename T::Bits Folded(ReduceOp op, std::vector<typename T::Bits> parts, Random& random) {
  random.Shuffle(parts);
  typename T::Bits total = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    total = T::Encode(Fold<T>(op, T::Decode(total), T::Decode(parts[i])));
  }
  return total;
}

template <typename T>
class FloatTest : public ::testing::Test {};
using Floats = ::testing::Types<F16, BF16, F32, F64, F8E4M3, F8E5M2, C64, C128>;
TYPED_TEST_SUITE(FloatTest, Floats);

template <typename T>
class NumberTypeTest : public ::testing::Test {};
using Numbers = ::testing::Types<I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64, F8E4M3,
                                 F8E5M2, C64, C128>;
TYPED_TEST_SUITE(NumberTypeTest, Numbers);

constexpr int64_t kPartials[] = {1, 2, 3, 7, 8, 9, 17, 40, 64, 100, 256, 1000};

TYPED_TEST(NumberTypeTest, SumsAndProductsAreExactInAnyOrder) {
  using T = TypeParam;
  Random random(1);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) {
    for (const int64_t partials : kPartials) {
      const Recipe recipe = MakeRecipe<T>({.op = op, .partials = partials, .seed = 3});
      std::set<int64_t> contributors;
      for (int64_t element = 0; element < 300; ++element) {
        const auto parts = ContributionsTo<T>(recipe, element);
        // In the wide type, which is exact.
        typename T::Wide want = T::Decode(parts[0]);
        for (size_t p = 1; p < parts.size(); ++p) want = Fold<T>(op, want, T::Decode(parts[p]));
        const auto got = T::Decode(Folded<T>(op, parts, random));
        if constexpr (T::kFamily == Family::kComplex) {
          ASSERT_EQ(got.re, want.re) << partials;
          ASSERT_EQ(got.im, want.im) << partials;
        } else {
          ASSERT_TRUE(got == T::Decode(T::Encode(want))) << partials;
          if constexpr (T::kFamily == Family::kFloat) {
            ASSERT_EQ(got, want) << partials;
          }
        }
        int64_t counting = 0;
        for (size_t p = 0; p < parts.size(); ++p) {
          const bool counts = op == ReduceOp::kSum ? !(parts[p] == typename T::Bits{})
                                                   : !(parts[p] == Identity<T>(ReduceOp::kProduct));
          counting += counts ? 1 : 0;
          if (counts) contributors.insert(static_cast<int64_t>(p));
        }
        ASSERT_LE(counting, 8);
      }
      // No rank contributes nothing everywhere.
      if (partials <= 100) {
        EXPECT_EQ(std::ssize(contributors), partials);
      }
    }
  }
}

// Divided at once or in two steps, before or after parts of the sum: the bits are the same.
TYPED_TEST(NumberTypeTest, AveragesAreExactInParts) {
  using T = TypeParam;
  Random random(1);
  constexpr int64_t kFactors[][2] = {{2, 2}, {3, 1}, {8, 5}, {3, 7}, {17, 1}, {11, 13}, {16, 16}};
  for (const auto& [outer, inner] : kFactors) {
    const Recipe recipe = MakeRecipe<T>({.op = ReduceOp::kAvg,
                                         .partials = outer * inner,
                                         .divisor = outer * inner,
                                         .divided_in_parts = true,
                                         .seed = 5});
    for (int64_t element = 0; element < 200; ++element) {
      const auto parts = ContributionsTo<T>(recipe, element);
      const auto at_once = T::Encode(
          Quotient<T>(T::Decode(Folded<T>(ReduceOp::kSum, parts, random)), recipe.divisor));
      std::vector<typename T::Bits> averages;
      for (int64_t o = 0; o < outer; ++o) {
        const std::vector<typename T::Bits> some(parts.begin() + o * inner,
                                                 parts.begin() + (o + 1) * inner);
        averages.push_back(
            T::Encode(Quotient<T>(T::Decode(Folded<T>(ReduceOp::kSum, some, random)), inner)));
      }
      const auto in_parts =
          T::Encode(Quotient<T>(T::Decode(Folded<T>(ReduceOp::kSum, averages, random)), outer));
      ASSERT_TRUE(at_once == in_parts) << outer << " x " << inner;
    }
  }
}

TYPED_TEST(FloatTest, RoundingValuesRoundAndDoNotOverflow) {
  using T = TypeParam;
  Random random(1);
  for (const int64_t partials : {2, 40, 1000}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) {
      const Recipe recipe =
          MakeRecipe<T>({.op = op, .partials = partials, .values = Values::kRounding, .seed = 3});
      EXPECT_FALSE(IsExactMode(recipe.mode));
      const Tolerance tolerance = ToleranceOf<T>(recipe, partials + 1);
      int differing = 0;
      for (int64_t element = 0; element < 200; ++element) {
        const auto parts = ContributionsTo<T>(recipe, element);
        const auto one = Folded<T>(op, parts, random);
        const auto two = Folded<T>(op, parts, random);
        differing += one == two ? 0 : 1;
        if constexpr (T::kFamily == Family::kFloat) {
          double want = T::Decode(parts[0]);
          double magnitude = std::abs(want);
          for (size_t p = 1; p < parts.size(); ++p) {
            const double part = T::Decode(parts[p]);
            want = Fold<T>(op, want, part);
            magnitude = op == ReduceOp::kSum ? magnitude + std::abs(part) : std::abs(want);
          }
          ASSERT_LE(std::abs(T::Decode(one) - want),
                    tolerance.relative * magnitude + tolerance.absolute);
        }
      }
      // Two contributions have only one order.
      if (partials > 2 && (op == ReduceOp::kSum || T::kMantissaBits > 3)) {
        EXPECT_GT(differing, 40) << partials;
      }
      if (partials == 2) {
        EXPECT_EQ(differing, 0);
      }
    }
  }
}

TEST(RecipeTest, SpecialValuesMeetZerosInfinitiesAndNans) {
  const Recipe recipe =
      MakeRecipe<F16>({.op = ReduceOp::kMin, .partials = 4, .values = Values::kSpecial, .seed = 1});
  int nans = 0, infinities = 0, both_zeros = 0, payloads = 0;
  for (int64_t element = 0; element < 400; ++element) {
    bool plus = false, minus = false;
    for (const uint16_t bits : ContributionsTo<F16>(recipe, element)) {
      nans += std::isnan(F16::Decode(bits)) ? 1 : 0;
      payloads += std::isnan(F16::Decode(bits)) && bits != F16::kNan ? 1 : 0;
      infinities += std::isinf(F16::Decode(bits)) ? 1 : 0;
      plus = plus || bits == 0;
      minus = minus || bits == F16::kSign;
    }
    both_zeros += plus && minus ? 1 : 0;
  }
  EXPECT_GT(nans, 50);
  EXPECT_GT(payloads, 50);
  EXPECT_GT(infinities, 50);
  EXPECT_GT(both_zeros, 50);
}

TEST(RecipeTest, ExactMinAndMaxMeetNoSpecialValues) {
  for (const int64_t partials : {1, 5}) {
    const Recipe recipe = MakeRecipe<F8E4M3>({.op = ReduceOp::kMax, .partials = partials});
    std::set<int> seen;
    for (int64_t element = 0; element < 5000; ++element) {
      for (const uint8_t bits : ContributionsTo<F8E4M3>(recipe, element)) seen.insert(bits);
    }
    EXPECT_EQ(seen.size(), 252u);  // all but two zeros and two NaNs
    EXPECT_EQ(seen.count(0) + seen.count(0x80) + seen.count(0x7f) + seen.count(0xff), 0u);
  }
}

TEST(RecipeTest, SeedsAndElementsDiffer) {
  const auto text = [](uint64_t seed, int64_t element) {
    const Recipe recipe = MakeRecipe<F32>({.op = ReduceOp::kSum, .partials = 40, .seed = seed});
    return ContributionsTo<F32>(recipe, element);
  };
  EXPECT_EQ(text(1, 5), text(1, 5));
  EXPECT_NE(text(1, 5), text(2, 5));
  EXPECT_NE(text(1, 5), text(1, 6));
}

TEST(RecipeTest, PlacesAreAPermutation) {
  for (const int64_t partials : kPartials) {
    const Recipe recipe = MakeRecipe<F32>({.op = ReduceOp::kSum, .partials = partials});
    std::set<uint64_t> places;
    for (int64_t p = 0; p < partials; ++p) places.insert(Place(recipe, static_cast<uint64_t>(p)));
    EXPECT_EQ(std::ssize(places), partials);
    EXPECT_EQ(*places.rbegin(), static_cast<uint64_t>(partials - 1));
  }
}

}  // namespace
}  // namespace meshift::testkit
