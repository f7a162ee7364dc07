#include "comm/kernels/cast.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "comm/kernels/small_float.h"
#include "placement/cast.h"
#include "placement/dtype.h"

namespace meshift {
namespace {

// `value` as f32, toward zero and with the last bit set where that drops anything: rounding the
// result to a float of at most 22 digits is rounding `value` itself.
float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  bits -= std::fabs(back) > std::fabs(value) ? 1 : 0;
  bits |= back != value ? 1 : 0;  // NaN stays one
  return std::bit_cast<float>(bits);
}

// Likewise an integer as f64.
double RoundToOdd(uint64_t value) {
  constexpr uint64_t kDropped = (1 << 11) - 1;
  if (value >> 53 != 0 && (value & kDropped) != 0) value = (value & ~kDropped) | (kDropped + 1);
  return static_cast<double>(value);
}
double RoundToOdd(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  return value < 0 ? -RoundToOdd(-bits) : RoundToOdd(bits);
}

// A codec per dtype: how it is stored, the type in which its values are computed with, and the way
// there from any other such type.

struct BoolCodec {
  using Stored = uint8_t;
  static bool Decode(Stored bits) { return bits != 0; }
  template <typename V>
  static Stored Encode(V value) {
    return value != V{0} ? 1 : 0;
  }
};

template <typename Int>
struct IntCodec {
  using Stored = Int;
  static Int Decode(Stored bits) { return bits; }
  template <typename V>
  static Stored Encode(V value) {
    if constexpr (std::is_floating_point_v<V>) {
      // The power of two at which the type ends is a float, its largest value need not be.
      constexpr int kDigits = std::numeric_limits<Int>::digits;
      constexpr V kEnd = 2 * static_cast<V>(uint64_t{1} << (kDigits - 1));
      if (value >= kEnd) return std::numeric_limits<Int>::max();
      if (std::is_signed_v<Int> && value < -kEnd) return std::numeric_limits<Int>::min();
      if (!std::is_signed_v<Int> && value < 0) return 0;
      return std::isnan(value) ? 0 : static_cast<Int>(value);
    } else {
      return static_cast<Int>(value);
    }
  }
};

template <typename Format>
struct SmallCodec {
  using Stored = typename Format::Bits;
  static float Decode(Stored bits) { return Format::ToFloat(bits); }
  template <typename V>
  static Stored Encode(V value) {
    if constexpr (std::is_same_v<V, double>) {
      return Format::FromFloat(RoundToOdd(value));
    } else if constexpr (std::is_integral_v<V> && sizeof(V) == 8) {
      return Format::FromFloat(RoundToOdd(RoundToOdd(value)));
    } else if constexpr (std::is_integral_v<V> && sizeof(V) == 4) {
      return Format::FromFloat(RoundToOdd(static_cast<double>(value)));
    } else {
      return Format::FromFloat(static_cast<float>(value));  // exact
    }
  }
};

template <typename T, typename BitsT, BitsT kNaN>
struct WideCodec {
  using Stored = BitsT;
  static T Decode(Stored bits) { return std::bit_cast<T>(bits); }
  template <typename V>
  static Stored Encode(V value) {
    const auto result = static_cast<T>(value);
    const auto bits = std::bit_cast<BitsT>(result);
    return std::isnan(result) ? kNaN : bits;
  }
};

template <typename Part>
struct ComplexCodec {
  using Component = Part;
};

template <DType kDType>
constexpr auto CodecFor() {
  using enum DType;
  using F32 = WideCodec<float, uint32_t, 0x7fc00000>;
  using F64 = WideCodec<double, uint64_t, 0x7ff8000000000000>;
  // clang-format off
  if constexpr (kDType == kBool) { return BoolCodec(); }
  else if constexpr (kDType == kI8) { return IntCodec<int8_t>(); }
  else if constexpr (kDType == kI16) { return IntCodec<int16_t>(); }
  else if constexpr (kDType == kI32) { return IntCodec<int32_t>(); }
  else if constexpr (kDType == kI64) { return IntCodec<int64_t>(); }
  else if constexpr (kDType == kU8) { return IntCodec<uint8_t>(); }
  else if constexpr (kDType == kU16) { return IntCodec<uint16_t>(); }
  else if constexpr (kDType == kU32) { return IntCodec<uint32_t>(); }
  else if constexpr (kDType == kU64) { return IntCodec<uint64_t>(); }
  else if constexpr (kDType == kF16) { return SmallCodec<F16>(); }
  else if constexpr (kDType == kBF16) { return SmallCodec<BF16>(); }
  else if constexpr (kDType == kF32) { return F32(); }
  else if constexpr (kDType == kF64) { return F64(); }
  else if constexpr (kDType == kF8E4M3) { return SmallCodec<F8E4M3>(); }
  else if constexpr (kDType == kF8E5M2) { return SmallCodec<F8E5M2>(); }
  else if constexpr (kDType == kC64) { return ComplexCodec<F32>(); }
  else if constexpr (kDType == kC128) { return ComplexCodec<F64>(); }
  // clang-format on
}

// Memory is read and written through memcpy, as buffers have no type and need no alignment.
template <typename From, typename To>
void CastReal(const void* src, void* dst, int64_t count) {
  using In = typename From::Stored;
  using Out = typename To::Stored;
  const char* __restrict in = static_cast<const char*>(src);
  char* __restrict out = static_cast<char*>(dst);
  for (int64_t i = 0; i < count; ++i) {
    In stored;
    std::memcpy(&stored, in + i * static_cast<int64_t>(sizeof(In)), sizeof(In));
    const Out result = To::Encode(From::Decode(stored));
    std::memcpy(out + i * static_cast<int64_t>(sizeof(Out)), &result, sizeof(Out));
  }
}

template <typename From, typename To>
void CastRealToComplex(const void* src, void* dst, int64_t count) {
  using In = typename From::Stored;
  using Out = typename To::Stored;
  const char* __restrict in = static_cast<const char*>(src);
  char* __restrict out = static_cast<char*>(dst);
  for (int64_t i = 0; i < count; ++i) {
    In stored;
    std::memcpy(&stored, in + i * static_cast<int64_t>(sizeof(In)), sizeof(In));
    const Out result[2] = {To::Encode(From::Decode(stored)), 0};
    std::memcpy(out + i * static_cast<int64_t>(sizeof(result)), result, sizeof(result));
  }
}

template <typename From, typename To>
void CastComplex(const void* src, void* dst, int64_t count) {
  CastReal<From, To>(src, dst, 2 * count);
}

template <int kBits>
void CopyElements(const void* src, void* dst, int64_t count) {
  if (count > 0) std::memcpy(dst, src, count * kBits / 8);
}

constexpr bool IsComplexDType(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

// Null where CheckCast refuses, and where the two dtypes are one.
template <DType kFrom, DType kTo>
constexpr CastFunction Find() {
  if constexpr (kFrom == kTo || kFrom == DType::kF4E2M1 || kTo == DType::kF4E2M1) {
    return nullptr;
  } else {
    using From = decltype(CodecFor<kFrom>());
    using To = decltype(CodecFor<kTo>());
    if constexpr (IsComplexDType(kFrom) && IsComplexDType(kTo)) {
      return &CastComplex<typename From::Component, typename To::Component>;
    } else if constexpr (IsComplexDType(kFrom)) {
      return nullptr;
    } else if constexpr (IsComplexDType(kTo)) {
      return &CastRealToComplex<From, typename To::Component>;
    } else {
      return &CastReal<From, To>;
    }
  }
}

template <int kFrom, int... kTo>
constexpr std::array<CastFunction, kNumDTypes> MakeRow(std::integer_sequence<int, kTo...>) {
  return {Find<static_cast<DType>(kFrom), static_cast<DType>(kTo)>()...};
}

template <int... kFrom>
constexpr auto MakeTable(std::integer_sequence<int, kFrom...>) {
  return std::array<std::array<CastFunction, kNumDTypes>, kNumDTypes>{
      MakeRow<kFrom>(std::make_integer_sequence<int, kNumDTypes>())...};
}

constexpr auto kFunctions = MakeTable(std::make_integer_sequence<int, kNumDTypes>());

CastFunction CopyFunction(DType dtype) {
  switch (BitWidth(dtype)) {
    case 4:
      return &CopyElements<4>;
    case 8:
      return &CopyElements<8>;
    case 16:
      return &CopyElements<16>;
    case 32:
      return &CopyElements<32>;
    case 64:
      return &CopyElements<64>;
    default:
      return &CopyElements<128>;
  }
}

}  // namespace

absl::StatusOr<CastFunction> CastFunctionOf(DType from, DType to) {
  MESHIFT_RETURN_IF_ERROR(CheckCast(from, to));
  if (from == to) return CopyFunction(from);
  return kFunctions[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

}  // namespace meshift
