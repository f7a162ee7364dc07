// The contribution of each partial coordinate to each element, as a pure function of a seed.
// Nothing is stored, so a rank of any mesh can be filled and checked alone.
//
//   const Recipe recipe = MakeRecipe<BF16>({.op = ReduceOp::kSum, .partials = 40, .seed = 7});
//   WithMode<BF16>(recipe.mode, [&](auto mode) {
//     // The contribution of partial coordinate 5 to element 3.
//     Contribution<BF16, mode()>(recipe, ElementHash(recipe, 3), Place(recipe, 5));
//   });
//
// In sparse modes at most `active` coordinates contribute something other than the identity to an
// element; which ones, depends on the element. They are numbered by slot, and slot s of an element
// contributes the same value whichever coordinate has it. So the total needs no search for the
// coordinates.
#ifndef MESHIFT_TESTING_CONTRIBUTION_H_
#define MESHIFT_TESTING_CONTRIBUTION_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <type_traits>

#include "meshift/placement.h"
#include "meshift/testing.h"
#include "testing/cast.h"
#include "testing/number.h"

namespace meshift::testkit {

enum class Mode : uint8_t {
  kPlain,         // any finite value of the type
  kModerate,      // full mantissas in (-2, 2), as kMantissa, for values that are not summed
  kOdd,           // any odd integer
  kSpecial,       // floats with zeros of both signs, infinities and NaN
  kMultiple,      // sparse: small multiples of the divisor
  kPair,          // sparse: x and -x
  kFactor,        // sparse: factors whose products are exact
  kClearBits,     // sparse: all ones but a few bits
  kSetBits,       // sparse: a few bits
  kMantissa,      // full mantissas in (-2, 2)
  kRoughFactors,  // sparse: full mantissas of magnitude 1/2 to 2
};

constexpr bool IsSparse(Mode mode) {
  return mode == Mode::kMultiple || mode == Mode::kPair || mode == Mode::kFactor ||
         mode == Mode::kClearBits || mode == Mode::kSetBits || mode == Mode::kRoughFactors;
}
// Whether the total has no rounding error, so that results are compared bit for bit.
constexpr bool IsExactMode(Mode mode) {
  return mode != Mode::kMantissa && mode != Mode::kRoughFactors;
}

struct RecipeInput {
  std::optional<ReduceOp> op;     // avg if any mesh dim is P(avg); nullopt: nothing is partial
  int64_t partials = 1;           // number of partial coordinates
  int64_t divisor = 1;            // product of the sizes of the P(avg) mesh dims
  bool divided_in_parts = false;  // the target keeps some of the source's partial mesh dims
  Values values = Values::kExact;
  uint64_t seed = 0;
  // The dtype in which contributions are held before a cast to the recipe's dtype; null: the same.
  const NumberOps* held = nullptr;
  bool held_is_exact = false;  // whether that cast is exact
  // Results are cast, and their parts combined after that: integers must not wrap.
  bool no_wrap = false;
  // If results are cast: the largest magnitude of values with full mantissas, and of totals of
  // small integers.
  double largest = std::numeric_limits<double>::infinity();
  uint64_t most = uint64_t{1} << 60;
};

struct Recipe {
  Mode mode = Mode::kPlain;
  ReduceOp op = ReduceOp::kSum;
  uint64_t key = 0;
  uint64_t partials = 1;
  uint64_t active = 1;          // contributions that count: slots 0 .. active-1
  uint64_t step = 1, base = 0;  // Place()
  int64_t divisor = 1;
  uint64_t limit = 0;  // kMultiple: |value / divisor| is at most this
  int scale = 0;       // kMantissa: values are divided by 2^scale, so that no sum overflows
  const NumberOps* held = nullptr;  // as in RecipeInput
  bool held_is_exact = false;
};

inline uint64_t Mix(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
inline uint64_t ElementHash(const Recipe& recipe, int64_t element) {
  return Mix(recipe.key + static_cast<uint64_t>(element) * 0x9e3779b97f4a7c15);
}
inline uint64_t ScaleTo(uint64_t hash, uint64_t n) {  // 0 .. n-1
  return static_cast<uint64_t>(static_cast<Uint128>(hash) * n >> 64);
}

// Elements of 16 bytes, which are moved but never computed with.
template <typename T>
inline constexpr bool kIsRaw = T::kFamily == Family::kInteger && sizeof(typename T::Bits) == 16;

// Permutes the partial coordinates, so that an element's active slots are not neighbours.
inline uint64_t Place(const Recipe& recipe, uint64_t partial) {
  return static_cast<uint64_t>((static_cast<Uint128>(partial) * recipe.step + recipe.base) %
                               recipe.partials);
}

// A finite value of any kind, not zero if T is a float. For f64 the last 12 bits are 0 and the
// exponent is moderate, so that small multiples are exact.
template <typename T>
typename T::Bits AnyValue(uint64_t w) {
  using Bits = typename T::Bits;
  if constexpr (T::kFamily == Family::kComplex) {
    return {AnyValue<typename T::Part>(w), AnyValue<typename T::Part>(Mix(~w))};
  } else if constexpr (T::kFamily == Family::kBool) {
    return static_cast<Bits>(w >> 63);
  } else if constexpr (T::kFamily == Family::kInteger) {
    if constexpr (sizeof(Bits) == 16) return static_cast<Bits>(w) << 64 | Mix(~w);
    return static_cast<Bits>(w >> (64 - 8 * sizeof(Bits) % 64) % 64);
  } else if constexpr (sizeof(Bits) == 8) {
    return ((w & ~(uint64_t{3} << 61)) + (uint64_t{1} << 61)) & ~uint64_t{0xfff};
  } else {
    Bits bits = static_cast<Bits>(w >> (64 - 8 * sizeof(Bits)));
    const Bits magnitude = static_cast<Bits>(bits & ~T::kSign);
    if (magnitude == 0) return static_cast<Bits>(bits | 1);
    if (magnitude > T::kMaxBits) return static_cast<Bits>(bits ^ (Bits{1} << T::kMantissaBits));
    return bits;
  }
}

// As AnyValue; a value of the held dtype if all of its values are values of T.
template <typename T>
typename T::Bits AnyHeld(const Recipe& recipe, uint64_t w) {
  if constexpr (kIsRaw<T>) {
    return AnyValue<T>(w);
  } else {
    return recipe.held_is_exact ? FromNumber<T>(recipe.held->any(w)) : AnyValue<T>(w);
  }
}

// The contribution after it was held in another dtype.
template <typename T>
typename T::Bits Held(const Recipe& recipe, typename T::Bits bits) {
  if constexpr (kIsRaw<T>) {
    return bits;
  } else {
    if (recipe.held == nullptr) return bits;
    return FromNumber<T>(recipe.held->round(ToNumber<T>(bits)));
  }
}

// Floats for min and max. By element: a quarter have only zeros of both signs, a quarter one NaN
// with a payload and some infinities, a quarter some infinities, a quarter some zeros.
template <typename T>
typename T::Bits SpecialValue(const Recipe& recipe, uint64_t hash, uint64_t w, uint64_t place) {
  using Bits = typename T::Bits;
  const Bits sign = static_cast<Bits>((w & 1) != 0 ? T::kSign : Bits{0});
  const bool rare = (w & 6) == 0;
  switch (hash & 3) {
    case 0:
      return sign;
    case 1:
      if (ScaleTo(Mix(hash), recipe.partials) == place) {
        const auto payload = static_cast<Bits>(w >> 8 & T::kMantissaMask);
        return static_cast<Bits>(sign | T::kNan | payload);
      }
      [[fallthrough]];
    case 2:
      return rare ? static_cast<Bits>(sign | T::kInfinity) : AnyHeld<T>(recipe, w);
    default:
      return rare ? sign : AnyHeld<T>(recipe, w);
  }
}

// The contribution of slot `s` (sparse modes; REQUIRES s < active) or of place `s` to the element
// with `hash`, before it is held.
template <typename T, Mode kMode>
typename T::Bits Drawn(const Recipe& recipe, uint64_t hash, uint64_t s) {
  using Bits = typename T::Bits;
  using Wide = typename T::Wide;
  const uint64_t w = Mix(hash ^ (s + 1) * 0xd1342543de82ef95);
  if constexpr (T::kFamily == Family::kComplex && kMode != Mode::kPlain && kMode != Mode::kFactor) {
    using Part = typename T::Part;
    return {Drawn<Part, kMode>(recipe, hash, s),
            Drawn<Part, kMode>(recipe, ~hash * 0x9e3779b97f4a7c15, s)};
  } else if constexpr (kMode == Mode::kPlain) {
    return AnyHeld<T>(recipe, w);
  } else if constexpr (kMode == Mode::kOdd) {
    return static_cast<Bits>(AnyValue<T>(w) | 1);
  } else if constexpr (kMode == Mode::kSpecial) {
    return SpecialValue<T>(recipe, hash, w, s);
  } else if constexpr (kMode == Mode::kMultiple) {
    if (!T::kSigned || (recipe.held != nullptr && !recipe.held->is_signed)) {
      return T::Encode(static_cast<Wide>(ScaleTo(w, recipe.limit + 1) * recipe.divisor));
    } else {
      const auto x = static_cast<int64_t>(ScaleTo(w, 2 * recipe.limit + 1)) -
                     static_cast<int64_t>(recipe.limit);
      return T::Encode(static_cast<Wide>(x * recipe.divisor));
    }
  } else if constexpr (kMode == Mode::kPair) {
    const bool negative = (s ^ hash) & 1;
    if (recipe.held != nullptr) {
      return T::Encode(static_cast<Wide>(!recipe.held->is_signed ? 0 : negative ? -1 : 1));
    } else if constexpr (T::kFamily == Family::kFloat) {
      return T::Encode(negative ? -1.0 : 1.0);
    } else if constexpr (T::kSigned) {
      return negative ? static_cast<Bits>(T::kMin + 1) : T::kMax;
    } else {
      return static_cast<Bits>(w & 1);
    }
  } else if constexpr (kMode == Mode::kFactor) {
    if constexpr (T::kFamily == Family::kComplex) {
      constexpr double kParts[][2] = {{1, 0}, {2, 0}, {0, 1}, {-1, 0}, {1, 1}};
      const auto& [re, im] = kParts[ScaleTo(w, 5)];
      return T::Encode({re, im});
    } else if constexpr (T::kFamily == Family::kFloat) {
      return T::Encode(w & 1 ? 1.0 : w & 2 ? 2.0 : -1.0);
    } else {
      return static_cast<Bits>(w & 1 ? 1 : w & 2 ? 2 : 3);
    }
  } else if constexpr (kMode == Mode::kSetBits || kMode == Mode::kClearBits) {
    const auto set =
        static_cast<Bits>(AnyValue<T>(w) & AnyValue<T>(Mix(w + 1)) & AnyValue<T>(Mix(w + 2)));
    return kMode == Mode::kSetBits ? set : static_cast<Bits>(T::kAllOnes ^ set);
  } else {
    const int exponent = kMode == Mode::kRoughFactors
                             ? T::kBias - static_cast<int>(w & 1)
                             : std::max(0, T::kBias - recipe.scale - static_cast<int>(w & 3));
    const auto sign = static_cast<Bits>((w & 4) != 0 ? T::kSign : Bits{0});
    const auto bits =
        static_cast<Bits>(sign | static_cast<Bits>(Bits(exponent) << T::kMantissaBits) |
                          static_cast<Bits>(w >> 8 & T::kMantissaMask));
    // A value that is not summed may still be averaged with itself.
    return kMode == Mode::kModerate && sizeof(Bits) == 8
               ? static_cast<Bits>(bits & ~uint64_t{0xfff})
               : bits;
  }
}

template <typename T, Mode kMode>
typename T::Bits Active(const Recipe& recipe, uint64_t hash, uint64_t s) {
  return Held<T>(recipe, Drawn<T, kMode>(recipe, hash, s));
}

// The contribution of the partial coordinate at `place` to the element with `hash`.
template <typename T, Mode kMode>
typename T::Bits Contribution(const Recipe& recipe, uint64_t hash, uint64_t place) {
  if constexpr (!IsSparse(kMode)) {
    return Active<T, kMode>(recipe, hash, place);
  } else {
    uint64_t slot = place + ScaleTo(hash, recipe.partials);
    if (slot >= recipe.partials) slot -= recipe.partials;
    if (slot < recipe.active) return Active<T, kMode>(recipe, hash, slot);
    if constexpr (kMode == Mode::kFactor || kMode == Mode::kRoughFactors) {
      return Held<T>(recipe, Identity<T>(ReduceOp::kProduct));
    } else if constexpr (kMode == Mode::kClearBits) {
      return Held<T>(recipe, T::kAllOnes);
    } else {
      return typename T::Bits{};
    }
  }
}

// The op of a mode; `op` itself if the mode serves several ops.
constexpr ReduceOp OpOf(Mode mode, ReduceOp op) {
  switch (mode) {
    case Mode::kMultiple:
    case Mode::kPair:
    case Mode::kMantissa:
      return ReduceOp::kSum;
    case Mode::kOdd:
    case Mode::kFactor:
    case Mode::kRoughFactors:
      return ReduceOp::kProduct;
    case Mode::kClearBits:
      return ReduceOp::kAnd;
    case Mode::kSetBits:
      return ReduceOp::kOr;
    default:
      return op;
  }
}

// Whether the mode exists for T.
template <typename T>
constexpr bool Has(Mode mode) {
  if (mode == Mode::kPlain) return true;
  if (sizeof(typename T::Bits) == 16 && T::kFamily == Family::kInteger) return false;
  switch (mode) {
    case Mode::kOdd:
      return T::kFamily == Family::kInteger;
    case Mode::kSpecial:
      return T::kFamily == Family::kFloat;
    case Mode::kMultiple:
    case Mode::kPair:
    case Mode::kFactor:
      return T::kFamily != Family::kBool;
    case Mode::kClearBits:
    case Mode::kSetBits:
      return T::kFamily == Family::kBool || T::kFamily == Family::kInteger;
    default:
      return T::kFamily == Family::kFloat || T::kFamily == Family::kComplex;
  }
}

// visit(std::integral_constant<Mode, mode>). REQUIRES: Has<T>(mode).
template <typename T, typename Visit>
void WithMode(Mode mode, Visit visit) {
  const auto one = [&](auto constant) {
    if constexpr (Has<T>(constant())) visit(constant);
  };
  switch (mode) {
    case Mode::kPlain:
      return one(std::integral_constant<Mode, Mode::kPlain>());
    case Mode::kModerate:
      return one(std::integral_constant<Mode, Mode::kModerate>());
    case Mode::kOdd:
      return one(std::integral_constant<Mode, Mode::kOdd>());
    case Mode::kSpecial:
      return one(std::integral_constant<Mode, Mode::kSpecial>());
    case Mode::kMultiple:
      return one(std::integral_constant<Mode, Mode::kMultiple>());
    case Mode::kPair:
      return one(std::integral_constant<Mode, Mode::kPair>());
    case Mode::kFactor:
      return one(std::integral_constant<Mode, Mode::kFactor>());
    case Mode::kClearBits:
      return one(std::integral_constant<Mode, Mode::kClearBits>());
    case Mode::kSetBits:
      return one(std::integral_constant<Mode, Mode::kSetBits>());
    case Mode::kMantissa:
      return one(std::integral_constant<Mode, Mode::kMantissa>());
    case Mode::kRoughFactors:
      return one(std::integral_constant<Mode, Mode::kRoughFactors>());
  }
}

// The largest |sum of x| such that every sum of x * divisor is exact in T, also in the middle of a
// division in parts. 0: none is.
template <typename T>
uint64_t ExactMultiples(int64_t divisor) {
  constexpr uint64_t kMost = uint64_t{1} << 60;
  const auto d = static_cast<uint64_t>(divisor);
  if constexpr (T::kFamily == Family::kComplex) {
    return ExactMultiples<typename T::Part>(divisor);
  } else if constexpr (T::kFamily == Family::kFloat) {
    // Every sum is a multiple of the divisor's largest power of two, and so needs fewer bits.
    const uint64_t odd = d >> std::countr_zero(d);
    const uint64_t significand = uint64_t{1} << std::min(T::kMantissaBits + 1, 40);
    const double largest = T::Decode(T::kMaxBits);
    const uint64_t finite = largest < 0x1p60 ? static_cast<uint64_t>(largest) : kMost;
    return std::min(significand / odd, finite / d);
  } else {
    return std::min(static_cast<uint64_t>(T::kMax), kMost) / d;
  }
}

// The most active contributions in sparse modes; the product of 8 factors of 2 fits e4m3.
inline constexpr uint64_t kMaxActive = 8;
// The product of 4 factors of 3 fits i8.
inline constexpr uint64_t kMaxUnwrapped = 4;
// The product of four factors between 1/2 and 2 stays a normal number of any float.
inline constexpr uint64_t kMaxRoughFactors = 4;

template <typename T>
Mode ModeOf(const RecipeInput& input, ReduceOp op) {
  constexpr bool kIsInteger = T::kFamily == Family::kInteger;
  constexpr bool kIsBool = T::kFamily == Family::kBool;
  const bool rounding = input.values == Values::kRounding;
  // Only the target makes it partial: in a sum of values of all magnitudes some would get lost.
  if (!input.op.has_value()) {
    if (Has<T>(Mode::kModerate)) return Mode::kModerate;
    return input.no_wrap && Has<T>(Mode::kMultiple) ? Mode::kMultiple : Mode::kPlain;
  }
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      if (rounding && !kIsInteger) return Mode::kMantissa;
      // Division in parts truncates differently, unless every part is a whole multiple.
      if (rounding && !input.no_wrap && !(input.divisor > 1 && input.divided_in_parts)) {
        return Mode::kPlain;
      }
      return Mode::kMultiple;
    case ReduceOp::kProduct:
      if (!rounding || (kIsInteger && input.no_wrap)) return Mode::kFactor;
      return kIsInteger ? Mode::kOdd : Mode::kRoughFactors;
    case ReduceOp::kMin:
      if (kIsBool) return Mode::kClearBits;
      break;
    case ReduceOp::kMax:
      if (kIsBool) return Mode::kSetBits;
      break;
    case ReduceOp::kAnd:
      return Mode::kClearBits;
    case ReduceOp::kOr:
      return Mode::kSetBits;
    case ReduceOp::kXor:
      return Mode::kPlain;
  }
  // A single partial coordinate is not reduced, so a NaN may keep or lose its payload.
  const bool special = input.values == Values::kSpecial && input.partials > 1;
  return special && T::kFamily == Family::kFloat ? Mode::kSpecial : Mode::kPlain;
}

// REQUIRES: T has the op; 1 <= partials < 2^31, 1 <= divisor <= partials.
template <typename T>
Recipe MakeRecipe(const RecipeInput& input) {
  Recipe recipe;
  recipe.op = input.op.value_or(ReduceOp::kSum);
  recipe.mode = ModeOf<T>(input, recipe.op);
  recipe.partials = static_cast<uint64_t>(input.partials);
  recipe.held = input.held;
  recipe.held_is_exact = input.held_is_exact;
  recipe.divisor = input.divisor;
  recipe.key = Mix(input.seed + 0x2545f4914f6cdd1d) ^ static_cast<uint64_t>(input.values);
  recipe.base = ScaleTo(Mix(recipe.key + 1), recipe.partials);
  recipe.step = recipe.partials * 5 / 13 + 1;
  while (std::gcd(recipe.step, recipe.partials) != 1) ++recipe.step;
  recipe.active = recipe.partials;
  if constexpr (Has<T>(Mode::kMultiple)) {
    if (recipe.mode == Mode::kMultiple) {
      const uint64_t multiples = std::min(ExactMultiples<T>(input.divisor), input.most);
      // A held contribution is one term, not a sum.
      const uint64_t held =
          input.held != nullptr ? input.held->multiples(input.divisor) : multiples;
      if (std::min(multiples, held) == 0) recipe.mode = Mode::kPair;
      recipe.active = std::min({recipe.partials, kMaxActive, std::max<uint64_t>(multiples, 2)});
      recipe.limit = std::min(multiples / recipe.active, held);
      if (multiples == 1) recipe.active = recipe.limit = 1;
    }
  }
  if (IsSparse(recipe.mode)) {
    const uint64_t most = recipe.mode == Mode::kPair           ? 2
                          : recipe.mode == Mode::kRoughFactors ? kMaxRoughFactors
                          : input.no_wrap                      ? kMaxUnwrapped
                                                               : kMaxActive;
    recipe.active = std::min(recipe.active, most);
  }
  if constexpr (T::kFamily == Family::kFloat) {
    const double largest = std::min(T::Decode(T::kMaxBits), input.largest);
    while (std::ldexp(4.0 * static_cast<double>(input.partials), -recipe.scale) > largest) {
      ++recipe.scale;
    }
  }
  return recipe;
}

// A bound on the error of any evaluation order in T: relative * m + absolute, with m the sum of the
// terms' magnitudes (for products the magnitude of the value). Zero in exact modes.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

// `operations`: the largest number of consecutive additions, multiplications, divisions and
// conversions.
template <typename T>
Tolerance ToleranceOf(const Recipe& recipe, int64_t operations) {
  if constexpr (T::kFamily == Family::kFloat || T::kFamily == Family::kComplex) {
    if (IsExactMode(recipe.mode)) return {};
    // Each rounding has a relative error of at most half an ulp, and below the normal numbers an
    // absolute one of half of Tiny(). The reference itself rounds as f64 does, so f64 gets twice
    // the bound. A complex multiplication takes a few real ones.
    const double half_ulp = std::ldexp(1.0, -T::kMantissaBits - 1);
    const double n = static_cast<double>(operations) *
                     (T::kFamily == Family::kComplex ? 4.0 : 1.0) *
                     (T::kMantissaBits == 52 ? 2.0 : 1.0);
    return {std::expm1(n * std::log1p(half_ulp)), n * T::Tiny()};
  } else {
    return {};
  }
}

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_CONTRIBUTION_H_
