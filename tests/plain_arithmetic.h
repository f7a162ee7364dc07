// The arithmetic of docs/dtypes.md, written down once more, slowly and without the library's
// kernels, for tests to compare with bit for bit.
//
//   PlainArithmetic plain(DType::kF16);
//   plain.Reduce(ReduceOp::kSum, 1, {{0x3c00}, {0x4000}});   // {0x4200}: 1 + 2 = 3
//   plain.Identity(ReduceOp::kMax);                          // {0xfc00}: -inf
//
// A value is its bits, of complex numbers those of the two parts. Contributions are combined from
// left to right. Small floats are rounded by looking for the nearest in the list of all of them.
#ifndef MESHIFT_TESTS_PLAIN_ARITHMETIC_H_
#define MESHIFT_TESTS_PLAIN_ARITHMETIC_H_

#include <array>
#include <cstdint>
#include <vector>

#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {

using Bits = std::array<uint64_t, 2>;

// A float of 16 or 8 bits.
class SmallFormat {
 public:
  // `has_infinity`: as IEEE 754; else the largest exponent is an ordinary one, and all ones is NaN.
  SmallFormat(int exponent_bits, int mantissa_bits, bool has_infinity);

  double Decode(uint64_t bits) const;
  // To nearest, ties to even; what is beyond the largest becomes infinity, or NaN without one.
  uint64_t Encode(double value) const;
  uint64_t nan() const;  // positive, quiet, no payload
  uint64_t sign() const { return uint64_t{1} << (exponent_bits_ + mantissa_bits_); }
  uint64_t largest() const { return finite_.size() - 1; }
  // Infinity, or the largest finite value without one.
  uint64_t highest() const { return has_infinity_ ? finite_.size() : largest(); }

 private:
  const int exponent_bits_;
  const int mantissa_bits_;
  const bool has_infinity_;
  std::vector<double> finite_;  // by bits: all values from +0 up
};

class PlainArithmetic {
 public:
  explicit PlainArithmetic(DType dtype);

  // REQUIRES: the dtype has the op.
  Bits Reduce(ReduceOp op, int64_t divisor, const std::vector<Bits>& contributions) const;
  // Of sums, averages and products of floats, `block` > 0 contributions first, and then what comes
  // of these, rounded once; else as above.
  Bits ReduceBlocks(ReduceOp op, int64_t divisor, int64_t block,
                    const std::vector<Bits>& contributions) const;
  Bits Identity(ReduceOp op) const;  // not of avg
  // Of a real float; what every NaN that comes out is.
  uint64_t CanonicalNaN() const;
  bool IsNaN(uint64_t bits) const;

  bool IsComplex() const { return is_complex_; }
  bool IsFloat() const { return is_float_; }
  bool IsSmallFloat() const { return is_float_ && width_ <= 16; }
  bool IsBool() const { return dtype_ == DType::kBool; }
  int width() const { return width_; }  // in bits, of a part of a complex number
  const SmallFormat& small() const { return small_; }

 private:
  template <typename Float>
  Float Decode(uint64_t bits) const;
  template <typename Float>
  uint64_t Encode(Float value) const;
  template <typename Float>
  Bits ReduceFloats(ReduceOp op, int64_t divisor, int64_t block,
                    const std::vector<Bits>& contributions) const;
  uint64_t MinMax(bool max, const std::vector<Bits>& contributions) const;
  uint64_t ReduceIntegers(ReduceOp op, int64_t divisor,
                          const std::vector<Bits>& contributions) const;
  __int128 Number(uint64_t bits) const;  // of an integer
  uint64_t Mask() const { return width_ == 64 ? ~uint64_t{0} : (uint64_t{1} << width_) - 1; }

  const DType dtype_;
  bool is_float_ = false;
  bool is_complex_ = false;
  bool is_signed_ = false;
  int width_ = 0;
  SmallFormat small_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTS_PLAIN_ARITHMETIC_H_
