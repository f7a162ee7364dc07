#include "tests/plain_arithmetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

namespace meshift {
namespace {

SmallFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return SmallFormat(8, 7, true);
    case DType::kF8E5M2:
      return SmallFormat(5, 2, true);
    case DType::kF8E4M3:
      return SmallFormat(4, 3, false);
    default:
      return SmallFormat(5, 10, true);  // f16
  }
}

}  // namespace

SmallFormat::SmallFormat(int exponent_bits, int mantissa_bits, bool has_infinity)
    : exponent_bits_(exponent_bits), mantissa_bits_(mantissa_bits), has_infinity_(has_infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top = 1 << exponent_bits;  // exponents
  const int mantissas = 1 << mantissa_bits;
  for (int e = 0; e < (has_infinity ? top - 1 : top); ++e) {
    for (int m = 0; m < mantissas; ++m) {
      if (e == top - 1 && m == mantissas - 1) break;  // NaN
      finite_.push_back(e == 0 ? std::ldexp(m, 1 - bias - mantissa_bits)
                               : std::ldexp(mantissas + m, e - bias - mantissa_bits));
    }
  }
}

double SmallFormat::Decode(uint64_t bits) const {
  const uint64_t magnitude = bits & (sign() - 1);
  double value = std::numeric_limits<double>::quiet_NaN();
  if (magnitude < finite_.size()) value = finite_[magnitude];
  if (has_infinity_ && magnitude == finite_.size()) {
    value = std::numeric_limits<double>::infinity();
  }
  return (bits & sign()) != 0 ? -value : value;
}

uint64_t SmallFormat::Encode(double value) const {
  if (std::isnan(value)) return nan();
  const uint64_t sign_bit = std::signbit(value) ? sign() : 0;
  const double magnitude = std::abs(value);
  // Assume one more value follows; a result that rounds to it, or is beyond it, has overflowed.
  const double beyond = 2 * finite_.back() - finite_[finite_.size() - 2];
  uint64_t nearest = finite_.size();
  if (magnitude < beyond) {
    const auto above = std::lower_bound(finite_.begin(), finite_.end(), magnitude);
    nearest = above - finite_.begin();
    const double upper = nearest < finite_.size() ? finite_[nearest] : beyond;
    if (upper != magnitude) {
      const uint64_t lower = nearest - 1;
      const double down = magnitude - finite_[lower];
      const double up = upper - magnitude;
      if (down < up || (down == up && lower % 2 == 0)) nearest = lower;
    }
  }
  if (nearest == finite_.size() && !has_infinity_) return nan();
  return sign_bit | nearest;
}

uint64_t SmallFormat::nan() const {
  return has_infinity_ ? finite_.size() + (uint64_t{1} << (mantissa_bits_ - 1)) : finite_.size();
}

PlainArithmetic::PlainArithmetic(DType dtype) : dtype_(dtype), small_(FormatOf(dtype)) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      width_ = 8;
      break;
    case DType::kU16:
      width_ = 16;
      break;
    case DType::kU32:
      width_ = 32;
      break;
    case DType::kU64:
      width_ = 64;
      break;
    case DType::kI8:
      is_signed_ = true;
      width_ = 8;
      break;
    case DType::kI16:
      is_signed_ = true;
      width_ = 16;
      break;
    case DType::kI32:
      is_signed_ = true;
      width_ = 32;
      break;
    case DType::kI64:
      is_signed_ = true;
      width_ = 64;
      break;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      is_float_ = true;
      width_ = 8;
      break;
    case DType::kF16:
    case DType::kBF16:
      is_float_ = true;
      width_ = 16;
      break;
    case DType::kF32:
    case DType::kC64:
      is_float_ = true;
      width_ = 32;
      break;
    case DType::kF64:
    case DType::kC128:
      is_float_ = true;
      width_ = 64;
      break;
    case DType::kF4E2M1:
      break;  // it has no op
  }
  is_complex_ = dtype == DType::kC64 || dtype == DType::kC128;
}

uint64_t PlainArithmetic::CanonicalNaN() const {
  if (IsSmallFloat()) return small_.nan();
  return width_ == 32 ? 0x7fc00000 : 0x7ff8000000000000;
}

bool PlainArithmetic::IsNaN(uint64_t bits) const {
  return is_float_ && std::isnan(Decode<double>(bits));
}

template <typename Float>
Float PlainArithmetic::Decode(uint64_t bits) const {
  if (IsSmallFloat()) return static_cast<Float>(small_.Decode(bits));
  if (width_ == 32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return static_cast<Float>(std::bit_cast<double>(bits));
}

template <typename Float>
uint64_t PlainArithmetic::Encode(Float value) const {
  if (std::isnan(value)) return CanonicalNaN();
  if (IsSmallFloat()) return small_.Encode(value);
  if (width_ == 32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<uint64_t>(static_cast<double>(value));
}

// Sums, averages and products in `Float`, by blocks, rounded once at the end.
template <typename Float>
Bits PlainArithmetic::ReduceFloats(ReduceOp op, int64_t divisor, int64_t block,
                                   const std::vector<Bits>& contributions) const {
  struct Number {
    Float re;
    Float im;
  };
  const auto combine = [&](Number& to, const Number& from) {
    const auto [re, im] = to;
    const auto [x, y] = from;
    if (op != ReduceOp::kProduct) {
      to = {re + x, im + y};
    } else if (!is_complex_) {
      to = {re * x, 0};
    } else {
      to = {re * x - im * y, re * y + im * x};
    }
  };
  std::vector<Number> sums;  // of the blocks
  for (size_t i = 0; i < contributions.size(); ++i) {
    const Number number = {Decode<Float>(contributions[i][0]),
                           is_complex_ ? Decode<Float>(contributions[i][1]) : 0};
    if (i % static_cast<size_t>(block) == 0) {
      sums.push_back(number);
    } else {
      combine(sums.back(), number);
    }
  }
  Number total = sums[0];
  for (size_t b = 1; b < sums.size(); ++b) combine(total, sums[b]);
  auto [re, im] = total;
  if (op == ReduceOp::kAvg) {
    re = re / static_cast<Float>(divisor);
    im = im / static_cast<Float>(divisor);
  }
  return {Encode(re), is_complex_ ? Encode(im) : 0};
}

// -0 < +0, and a NaN wins.
uint64_t PlainArithmetic::MinMax(bool max, const std::vector<Bits>& contributions) const {
  uint64_t best = contributions[0][0];
  for (const Bits& bits : contributions) {
    if (IsNaN(bits[0])) return CanonicalNaN();
    const auto a = Decode<double>(bits[0]);
    const auto b = Decode<double>(best);
    const bool less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
    const bool greater = a > b || (a == b && !std::signbit(a) && std::signbit(b));
    if (max ? greater : less) best = bits[0];
  }
  return best;
}

__int128 PlainArithmetic::Number(uint64_t bits) const {
  const bool negative = is_signed_ && (bits >> (width_ - 1) & 1) != 0;
  return negative ? static_cast<__int128>(bits) - (static_cast<__int128>(1) << width_)
                  : static_cast<__int128>(bits);
}

uint64_t PlainArithmetic::ReduceIntegers(ReduceOp op, int64_t divisor,
                                         const std::vector<Bits>& contributions) const {
  uint64_t result = contributions[0][0];
  for (size_t i = 1; i < contributions.size(); ++i) {
    const uint64_t x = contributions[i][0];
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        result = (result + x) & Mask();
        break;
      case ReduceOp::kProduct:
        result = (result * x) & Mask();
        break;
      case ReduceOp::kMin:
        if (Number(x) < Number(result)) result = x;
        break;
      case ReduceOp::kMax:
        if (Number(x) > Number(result)) result = x;
        break;
      case ReduceOp::kAnd:
        result &= x;
        break;
      case ReduceOp::kOr:
        result |= x;
        break;
      case ReduceOp::kXor:
        result ^= x;
        break;
    }
  }
  if (op == ReduceOp::kAvg) {  // towards zero
    result = static_cast<uint64_t>(Number(result) / divisor) & Mask();
  }
  return result;
}

Bits PlainArithmetic::Reduce(ReduceOp op, int64_t divisor,
                             const std::vector<Bits>& contributions) const {
  return ReduceBlocks(op, divisor, 0, contributions);
}

Bits PlainArithmetic::ReduceBlocks(ReduceOp op, int64_t divisor, int64_t block,
                                   const std::vector<Bits>& contributions) const {
  if (!is_float_) return {ReduceIntegers(op, divisor, contributions), 0};
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    return {MinMax(op == ReduceOp::kMax, contributions), 0};
  }
  if (block == 0) block = static_cast<int64_t>(contributions.size());
  return width_ == 64 ? ReduceFloats<double>(op, divisor, block, contributions)
                      : ReduceFloats<float>(op, divisor, block, contributions);
}

Bits PlainArithmetic::Identity(ReduceOp op) const {
  if (is_float_) {
    const uint64_t sign = uint64_t{1} << (width_ - 1);
    const uint64_t highest = IsSmallFloat() ? small_.highest()
                             : width_ == 32 ? 0x7f800000
                                            : 0x7ff0000000000000;
    switch (op) {
      case ReduceOp::kProduct:
        return {Encode<double>(1), 0};
      case ReduceOp::kMin:
        return {highest, 0};
      case ReduceOp::kMax:
        return {sign | highest, 0};
      default:
        return {sign, is_complex_ ? sign : 0};  // -0
    }
  }
  const uint64_t ones = IsBool() ? 1 : Mask();
  const uint64_t largest = is_signed_ ? ones >> 1 : ones;
  switch (op) {
    case ReduceOp::kProduct:
      return {1, 0};
    case ReduceOp::kMin:
      return {largest, 0};
    case ReduceOp::kMax:
      return {is_signed_ ? largest + 1 : 0, 0};
    case ReduceOp::kAnd:
      return {ones, 0};
    default:
      return {0, 0};
  }
}

}  // namespace meshift
