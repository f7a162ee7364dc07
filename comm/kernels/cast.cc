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
#include "base/status.h"
#include "comm/kernels/codec.h"
#include "comm/kernels/codes.h"
#include "comm/kernels/float_environment.h"
#include "comm/kernels/simd.h"
#include "meshift/dtype.h"
#include "meshift/status.h"
#include "placement/cast.h"

namespace meshift {
namespace {

static_assert(static_cast<int>(DType::kBool) == kCodeBool &&
              static_cast<int>(DType::kF64) == kCodeF64 &&
              static_cast<int>(DType::kF4E2M1) == kCodeF4E2M1 &&
              static_cast<int>(DType::kC128) == kCodeC128 && kNumDTypes == kCodeC128 + 1);

// Reads and writes memory through memcpy, since buffers are untyped and may be unaligned.
template <typename From, typename To>
void CastReal(const void* src, void* dst, int64_t count) {
  using In = typename From::Stored;
  using Out = typename To::Stored;
  const DefaultFloatMode mode;
  RunAtBestSimdLevel([=](auto) MESHIFT_INLINE {
    const char* __restrict in = static_cast<const char*>(src);
    char* __restrict out = static_cast<char*>(dst);
    for (int64_t i = 0; i < count; ++i) {
      In stored;
      std::memcpy(&stored, in + i * static_cast<int64_t>(sizeof(In)), sizeof(In));
      const Out result = To::Encode(From::Decode(stored));
      std::memcpy(out + i * static_cast<int64_t>(sizeof(Out)), &result, sizeof(Out));
    }
  });
}

template <typename From, typename To>
void CastRealToComplex(const void* src, void* dst, int64_t count) {
  using In = typename From::Stored;
  using Out = typename To::Stored;
  const DefaultFloatMode mode;
  RunAtBestSimdLevel([=](auto) MESHIFT_INLINE {
    const char* __restrict in = static_cast<const char*>(src);
    char* __restrict out = static_cast<char*>(dst);
    for (int64_t i = 0; i < count; ++i) {
      In stored;
      std::memcpy(&stored, in + i * static_cast<int64_t>(sizeof(In)), sizeof(In));
      const Out result[2] = {To::Encode(From::Decode(stored)), 0};
      std::memcpy(out + i * static_cast<int64_t>(sizeof(result)), result, sizeof(result));
    }
  });
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

// Null if CheckCast fails, or the dtypes are equal.
template <DType kFrom, DType kTo>
constexpr CastFunction Find() {
  if constexpr (kFrom == kTo || kFrom == DType::kF4E2M1 || kTo == DType::kF4E2M1) {
    return nullptr;
  } else {
    using From = decltype(CodecFor<static_cast<int>(kFrom)>());
    using To = decltype(CodecFor<static_cast<int>(kTo)>());
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

absl::StatusOr<CastFunction> CheckedCast(const void* src, DType from, const void* dst, DType to,
                                         int64_t count) {
  MESHIFT_ASSIGN_OR_RETURN(const CastFunction function, CastFunctionOf(from, to));
  if (count < 0) return InvalidArgument("a count of {} to cast is negative", count);
  if (count > 0 && (src == nullptr || dst == nullptr)) {
    return InvalidArgument("the {} of a cast of {} elements is null",
                           src == nullptr ? "source" : "target", count);
  }
  if (from == DType::kF4E2M1) {  // to itself
    return InvalidArgument("a cast of f4e2m1 to itself is a copy");
  }
  return function;
}

}  // namespace meshift
