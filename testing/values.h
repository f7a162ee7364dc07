// The kinds of values that the definition oracle fills tensors with.
#ifndef MESHIFT_TESTING_VALUES_H_
#define MESHIFT_TESTING_VALUES_H_

#include <cstdint>

namespace meshift::testkit {

enum class Values : uint8_t {
  // Every result is exact in any order of evaluation, and compared bit for bit. Partial sums: small
  // integers (avg: multiples of the divisor) at up to 8 partial coordinates, zero at the others;
  // products: 1, 2 and -1 (integers 1, 2, 3); min, max, and, or, xor: any values of the type, but
  // of floats neither zeros, infinities nor NaN. What is not partial: any bits.
  kExact,
  // Floats: sums have full mantissas in (-2, 2) everywhere, products a few between 1/2 and 2;
  // compared within a sound bound. This shows replicas whose bits differ; a lost contribution it
  // may
  // hide. Integers: full range, which wraps; compared bit for bit. Other ops as in kExact.
  kRounding,
  // As kExact; min and max of floats also meet zeros of both signs, infinities and NaN.
  kSpecial,
};

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_VALUES_H_
