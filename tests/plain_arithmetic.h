// The arithmetic of docs/dtypes.md, implemented again slowly and without the library's kernels, for
// bit-for-bit comparisons in tests.
//
//   PlainArithmetic plain(DType::kF16);
//   plain.Reduce(ReduceOp::kSum, 1, {{0x3c00}, {0x4000}});   // {0x4200}: 1 + 2 = 3
//   plain.Identity(ReduceOp::kMax);                          // {0xfc00}: -inf
//
// A value is given by its bits, for complex numbers by those of both parts. Contributions are
// combined from left to right. Small floats are rounded by searching the list of all values.
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
  // `has_infinity`: as in IEEE 754; else the largest exponent is an ordinary one, and all ones is
  // NaN.
  SmallFormat(int exponent_bits, int mantissa_bits, bool has_infinity);

  double Decode(uint64_t bits) const;
  // Rounds to nearest, ties to even. Values beyond the largest become infinity, or NaN without one.
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
  // For sums, averages and products of floats: combines `block` > 0 contributions first, then the
  // results of the blocks, and rounds once. Other ops as above.
  Bits ReduceBlocks(ReduceOp op, int64_t divisor, int64_t block,
                    const std::vector<Bits>& contributions) const;
  Bits Identity(ReduceOp op) const;  // not for avg
  // For a real float: the NaN of every result.
  uint64_t CanonicalNaN() const;
  bool IsNaN(uint64_t bits) const;

  bool IsComplex() const { return is_complex_; }
  bool IsFloat() const { return is_float_; }
  bool IsSmallFloat() const { return is_float_ && width_ <= 16; }
  bool IsBool() const { return dtype_ == DType::kBool; }
  int width() const { return width_; }  // in bits; for complex numbers of one part
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
  __int128 Number(uint64_t bits) const;  // the value of an integer
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
