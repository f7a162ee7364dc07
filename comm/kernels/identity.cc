#include "comm/kernels/identity.h"

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/kernels/small_float.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/status.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

using Element = std::array<uint8_t, 16>;

template <typename T>
Element Encode(T value) {
  Element element = {};
  std::memcpy(element.data(), &value, sizeof(value));
  return element;
}

template <typename T>
Element OfInteger(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct:
      return Encode<T>(1);
    case ReduceOp::kMin:
      return Encode<T>(std::numeric_limits<T>::max());
    case ReduceOp::kMax:
      return Encode<T>(std::numeric_limits<T>::min());
    case ReduceOp::kAnd:
      return Encode<T>(static_cast<T>(-1));
    default:
      return Encode<T>(0);
  }
}

Element OfBool(ReduceOp op) {
  return Encode<uint8_t>(op == ReduceOp::kAnd || op == ReduceOp::kMin ? 1 : 0);
}

template <typename T>
Element OfFloat(ReduceOp op) {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  switch (op) {
    case ReduceOp::kProduct:
      return Encode<T>(1);
    case ReduceOp::kMin:
      return Encode<T>(kInf);
    case ReduceOp::kMax:
      return Encode<T>(-kInf);
    default:
      return Encode<T>(-T{0});
  }
}

template <typename Format, bool kHasInf>
Element OfSmallFloat(ReduceOp op) {
  using Bits = typename Format::Bits;
  constexpr Bits kLargest = kHasInf ? Format::kBeyond : Format::kMaxFinite;
  switch (op) {
    case ReduceOp::kProduct:
      return Encode<Bits>(Format::FromFloat(1.0F));
    case ReduceOp::kMin:
      return Encode<Bits>(kLargest);
    case ReduceOp::kMax:
      return Encode<Bits>(static_cast<Bits>(kLargest | Format::kSignBit));
    default:
      return Encode<Bits>(Format::kSignBit);
  }
}

template <typename T>
Element OfComplex(ReduceOp op) {
  if (op == ReduceOp::kProduct) return Encode(std::complex<T>(1, 0));
  return Encode(std::complex<T>(-T{0}, -T{0}));
}

template <typename T>
void Fill(const Element& element, void* data, int64_t count) {
  T value;
  std::memcpy(&value, element.data(), sizeof(T));
  char* out = static_cast<char*>(data);
  for (int64_t i = 0; i < count; ++i) std::memcpy(out + i * sizeof(T), &value, sizeof(T));
}

struct Pair {
  uint64_t first;
  uint64_t second;
};

}  // namespace

absl::StatusOr<std::array<uint8_t, 16>> IdentityOf(DType dtype, ReduceOp op) {
  MESHIFT_RETURN_IF_ERROR(CheckReduce(op, dtype));
  if (op == ReduceOp::kAvg) {
    return InvalidArgument("avg has no identity: P(avg) keeps its value on every coordinate");
  }
  switch (dtype) {
    case DType::kBool:
      return OfBool(op);
    case DType::kI8:
      return OfInteger<int8_t>(op);
    case DType::kI16:
      return OfInteger<int16_t>(op);
    case DType::kI32:
      return OfInteger<int32_t>(op);
    case DType::kI64:
      return OfInteger<int64_t>(op);
    case DType::kU8:
      return OfInteger<uint8_t>(op);
    case DType::kU16:
      return OfInteger<uint16_t>(op);
    case DType::kU32:
      return OfInteger<uint32_t>(op);
    case DType::kU64:
      return OfInteger<uint64_t>(op);
    case DType::kF16:
      return OfSmallFloat<F16, true>(op);
    case DType::kBF16:
      return OfSmallFloat<BF16, true>(op);
    case DType::kF32:
      return OfFloat<float>(op);
    case DType::kF64:
      return OfFloat<double>(op);
    case DType::kF8E4M3:
      return OfSmallFloat<F8E4M3, false>(op);
    case DType::kF8E5M2:
      return OfSmallFloat<F8E5M2, true>(op);
    case DType::kC64:
      return OfComplex<float>(op);
    case DType::kC128:
      return OfComplex<double>(op);
    case DType::kF4E2M1:
      break;  // refused above
  }
  return Internal("dtype {} is unknown", static_cast<int>(dtype));
}

void FillElements(const std::array<uint8_t, 16>& element, int64_t bytes, void* data,
                  int64_t count) {
  if (count <= 0) return;
  const bool one_byte = std::all_of(element.begin(), element.begin() + bytes,
                                    [&](uint8_t b) { return b == element[0]; });
  if (one_byte) {
    std::memset(data, element[0], count * bytes);
    return;
  }
  switch (bytes) {
    case 2:
      return Fill<uint16_t>(element, data, count);
    case 4:
      return Fill<uint32_t>(element, data, count);
    case 8:
      return Fill<uint64_t>(element, data, count);
    default:
      return Fill<Pair>(element, data, count);
  }
}

absl::Status FillIdentity(DType dtype, ReduceOp op, void* data, int64_t count) {
  MESHIFT_ASSIGN_OR_RETURN(const Element element, IdentityOf(dtype, op));
  if (count < 0) return InvalidArgument("a count of {} is negative", count);
  if (count > 0 && data == nullptr)
    return InvalidArgument("the buffer to fill is null, but the count is {}", count);
  FillElements(element, BitWidth(dtype) / 8, data, count);
  return absl::OkStatus();
}

}  // namespace meshift
