#include "testing/cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "base/status.h"
#include "testing/contribution.h"

namespace meshift::testkit {
namespace {

template <typename T>
class Cast {
 public:
  using Bits = typename T::Bits;

  static Number Load(const std::byte* from, int64_t index) {
    Bits bits;
    std::memcpy(&bits, from + index * kBytes, sizeof(Bits));
    return ToNumber<T>(bits);
  }

  static void Store(const Number& number, std::byte* to, int64_t index) {
    Write(FromNumber<T>(number), to, index);
  }

  static Number Round(const Number& number) { return ToNumber<T>(FromNumber<T>(number)); }

  static uint64_t Multiples(int64_t divisor) {
    if constexpr (T::kFamily == Family::kBool) {
      return divisor == 1 ? 1 : 0;
    } else {
      return ExactMultiples<T>(divisor);
    }
  }

  static Number Any(uint64_t w) { return ToNumber<T>(AnyValue<T>(w)); }

  static Number Landmark(uint64_t w) {
    const uint64_t kind = w & 7;
    w = Mix(w);
    if constexpr (T::kFamily == Family::kComplex) {
      Number number = Cast<typename T::Part>::Landmark(w);
      number.im = Cast<typename T::Part>::Landmark(Mix(w)).re;
      return number;
    } else if constexpr (T::kFamily == Family::kBool) {
      constexpr double kNumbers[] = {0, -0.0, 0.25, -1, 2, 256, 0x1p-149, 0x1p-1074};
      return {.is_integer = false, .re = kNumbers[kind]};
    } else if constexpr (T::kFamily == Family::kInteger) {
      const auto least = static_cast<Int128>(T::Decode(T::kMin));
      const auto most = static_cast<Int128>(T::Decode(T::kMax));
      constexpr double kParts[] = {0, 0.25, 0.5, 0.75};
      const double part = kParts[w & 3];
      switch (kind) {
        case 0:
          return {.integer = most};
        case 1:
          return {.integer = most + 1};
        case 2:
          return {.integer = least};
        case 3:
          return {.integer = least - 1};
        case 4:  // near zero
          return {.is_integer = false, .re = static_cast<double>(w >> 2 & 7) - 4 + part};
        case 5:
          return {.is_integer = false, .re = static_cast<double>(most >> (w >> 2 & 7)) + part};
        case 6:
          return {.is_integer = false, .re = static_cast<double>(least >> (w >> 2 & 7)) - part};
        default:
          return Any(w);
      }
    } else {
      // Bits of a magnitude whose successor is finite.
      constexpr Bits kEnds[] = {0, 1, T::kMaxBits - 1, T::kMaxBits, Bits{1} << T::kMantissaBits};
      const auto drawn = static_cast<Bits>(AnyValue<T>(w) & ~T::kSign);
      const Bits bits = kind == 0 ? kEnds[ScaleTo(w, std::size(kEnds))] : drawn;
      double value = T::Decode(bits);
      if (kind < 4) {
        // Half a unit up: exact in f64 for all dtypes except f64.
        const double step = bits == T::kMaxBits ? value - T::Decode(bits - 1)
                                                : T::Decode(static_cast<Bits>(bits + 1)) - value;
        value += step / 2;
      }
      return {.is_integer = false, .re = (w & 1) != 0 ? -value : value};
    }
  }

  static Bits Probe(const Number& landmark, bool special, uint64_t w) {
    const uint64_t kind = w & 7;
    w = Mix(w);
    if constexpr (T::kFamily == Family::kComplex) {
      using Part = Cast<typename T::Part>;
      const Number im = {.is_integer = false, .re = landmark.im};
      return {Part::Probe(landmark, special, w), Part::Probe(im, special, Mix(w))};
    } else if constexpr (T::kFamily == Family::kFloat) {
      const Bits sign = (w & 1) != 0 ? T::kSign : Bits{0};
      if (special && kind == 0) return static_cast<Bits>(sign | T::kInfinity);
      if (special && kind == 1) {
        return static_cast<Bits>(sign | T::kNan | (w >> 8 & T::kMantissaMask));
      }
      if (kind < 3) return AnyValue<T>(w);
      const Bits bits = FromNumber<T>(landmark);
      const auto magnitude = static_cast<Bits>(bits & ~T::kSign);
      // A neighbour of the landmark. Without `special`, overflows become the largest finite value.
      if (magnitude > T::kMaxBits) return static_cast<Bits>((bits & T::kSign) | T::kMaxBits);
      if (kind == 3 && magnitude < T::kMaxBits) return static_cast<Bits>(bits + 1);
      if (kind == 4 && magnitude > 0) return static_cast<Bits>(bits - 1);
      return bits;
    } else if constexpr (T::kFamily == Family::kInteger) {
      if (kind < 3) return AnyValue<T>(w);
      Number number = landmark;
      if (!number.is_integer && (w & 1) != 0) {
        // Most floats lie outside this range: take a number inside it with the same significand.
        int exponent;
        const double fraction = std::frexp(number.re, &exponent);
        const auto digits = static_cast<uint64_t>(std::bit_width(T::kMax));
        number.re = std::ldexp(fraction, static_cast<int>(ScaleTo(w, digits)) + 1);
      }
      const Bits bits = FromNumber<T>(number);
      return static_cast<Bits>(kind == 3 ? bits + 1 : kind == 4 ? bits - 1 : bits);
    } else {
      return AnyValue<T>(w);
    }
  }

  static void StoreProbe(const Number& landmark, bool special, uint64_t w, std::byte* to,
                         int64_t index) {
    Write(Probe(landmark, special, w), to, index);
  }

  static void StoreDisturbed(const Number& number, const NumberOps& back, uint64_t w, std::byte* to,
                             int64_t index) {
    const Bits right = FromNumber<T>(number);
    Write(right, to, index);
    const Number want = back.round(ToNumber<T>(right));
    const auto write_if_right = [&](Bits bits) {
      if (bits == right || !SameNumber(back.round(ToNumber<T>(bits)), want)) return false;
      Write(bits, to, index);
      return true;
    };
    if constexpr (T::kFamily == Family::kInteger) {
      // Changes the bits that a narrower integer drops; otherwise any bits.
      const int kept = back.is_integer && back.bytes < kBytes ? 8 * back.bytes : 0;
      write_if_right(static_cast<Bits>(right ^ AnyValue<T>(w) << kept));
    } else if constexpr (T::kFamily == Family::kFloat) {
      // Tries the largest possible disturbance first.
      for (int shift = T::kMantissaBits - 1; shift > std::max(0, T::kMantissaBits - 12); --shift) {
        const auto delta = static_cast<Bits>((AnyValue<T>(w) | 1) & ((Bits{1} << shift) - 1));
        if (write_if_right(static_cast<Bits>((w & 1) != 0 ? right + delta : right - delta))) return;
      }
    }
  }

  static NumberOps Ops(DType dtype) {
    double largest = 1;
    int digits = 1;
    if constexpr (T::kFamily == Family::kComplex) {
      largest = T::Part::Decode(T::Part::kMaxBits);
      digits = T::kMantissaBits + 1;
    } else if constexpr (T::kFamily == Family::kFloat) {
      largest = T::Decode(T::kMaxBits);
      digits = T::kMantissaBits + 1;
    } else {
      largest = static_cast<double>(T::Decode(T::kMax));
      digits = std::bit_width(T::kMax);
    }
    return {.dtype = dtype,
            .bytes = static_cast<int>(kBytes),
            .is_signed = T::kSigned,
            .is_integer = T::kFamily == Family::kInteger || T::kFamily == Family::kBool,
            .digits = digits,
            .largest = largest,
            .load = &Load,
            .store = &Store,
            .round = &Round,
            .multiples = &Multiples,
            .any = &Any,
            .landmark = &Landmark,
            .store_probe = &StoreProbe,
            .store_disturbed = &StoreDisturbed};
  }

 private:
  static constexpr auto kBytes = static_cast<int64_t>(sizeof(Bits));

  static void Write(Bits bits, std::byte* to, int64_t index) {
    std::memcpy(to + index * kBytes, &bits, sizeof(Bits));
  }
};

// In the order of the enum; the entry of f4e2m1 is not used.
const std::vector<NumberOps>& AllNumberOps() {
  static const auto& all = *new std::vector<NumberOps>{
      Cast<Bool>::Ops(DType::kBool),     Cast<I8>::Ops(DType::kI8),
      Cast<I16>::Ops(DType::kI16),       Cast<I32>::Ops(DType::kI32),
      Cast<I64>::Ops(DType::kI64),       Cast<U8>::Ops(DType::kU8),
      Cast<U16>::Ops(DType::kU16),       Cast<U32>::Ops(DType::kU32),
      Cast<U64>::Ops(DType::kU64),       Cast<F16>::Ops(DType::kF16),
      Cast<BF16>::Ops(DType::kBF16),     Cast<F32>::Ops(DType::kF32),
      Cast<F64>::Ops(DType::kF64),       Cast<F8E4M3>::Ops(DType::kF8E4M3),
      Cast<F8E5M2>::Ops(DType::kF8E5M2), Cast<U8>::Ops(DType::kF4E2M1),
      Cast<C64>::Ops(DType::kC64),       Cast<C128>::Ops(DType::kC128)};
  return all;
}

}  // namespace

bool SameNumber(const Number& a, const Number& b) {
  if (a.is_integer && b.is_integer) return a.integer == b.integer;
  if (a.is_integer) return SameNumber(b, a);
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  if (!b.is_integer) return same(a.re, b.re) && same(a.im, b.im);
  return a.im == 0 && std::abs(a.re) < 0x1p100 && a.re == std::trunc(a.re) &&
         static_cast<Int128>(a.re) == b.integer;
}

const NumberOps& NumberOpsOf(DType dtype) { return AllNumberOps()[static_cast<size_t>(dtype)]; }

absl::Status CheckCastOf(DType from, DType to) {
  const bool packed = from == DType::kF4E2M1 || to == DType::kF4E2M1;
  const bool drops = IsComplex(from) && !IsComplex(to);
  if (from == to || (!packed && !drops)) return absl::OkStatus();
  return InvalidArgument("Cannot cast {} to {}", Name(from), Name(to));
}

bool IsExact(DType from, DType to) {
  if (from == to) return true;
  const NumberOps& target = NumberOpsOf(to);
  std::vector<Number> witnesses;
  const auto add = [&]<typename T>(T /*type*/) {
    if constexpr (T::kFamily == Family::kFloat) {
      for (const typename T::Bits bits : {T::kMaxBits, typename T::Bits{1}, T::kInfinity}) {
        witnesses.push_back(ToNumber<T>(bits));
      }
      // 1.1...1
      witnesses.push_back(ToNumber<T>(static_cast<typename T::Bits>(T::Encode(2) - 1)));
    } else {
      witnesses.push_back(ToNumber<T>(T::kMin));
      witnesses.push_back(ToNumber<T>(T::kMax));
    }
  };
  switch (from) {
    case DType::kBool:
      add(Bool());
      break;
    case DType::kI8:
      add(I8());
      break;
    case DType::kI16:
      add(I16());
      break;
    case DType::kI32:
      add(I32());
      break;
    case DType::kI64:
      add(I64());
      break;
    case DType::kU8:
      add(U8());
      break;
    case DType::kU16:
      add(U16());
      break;
    case DType::kU32:
      add(U32());
      break;
    case DType::kU64:
      add(U64());
      break;
    case DType::kF16:
      add(F16());
      break;
    case DType::kBF16:
      add(BF16());
      break;
    case DType::kF32:
    case DType::kC64:  // both parts are f32
      add(F32());
      break;
    case DType::kF8E4M3:
      add(F8E4M3());
      break;
    case DType::kF8E5M2:
      add(F8E5M2());
      break;
    default:
      add(F64());
      break;
  }
  return std::all_of(witnesses.begin(), witnesses.end(), [&](const Number& number) {
    return SameNumber(target.round(number), number);
  });
}

DType ReduceDTypeOf(DType from, DType to) {
  if (IsExact(from, to)) return from;
  const bool small = from == DType::kF16 || from == DType::kBF16 || from == DType::kF8E4M3 ||
                     from == DType::kF8E5M2;
  return small ? DType::kF32 : from;
}

}  // namespace meshift::testkit
