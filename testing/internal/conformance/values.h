// The ranks' contributions in the conformance tests, and the right results of each op: an
// independent reference in plain integers.
//
//   Contribution(DType::kF32, ReduceOp::kSum, /*rank=*/1, /*count=*/37);   // one rank's
//   Result(DType::kF32, ReduceOp::kSum, /*size=*/4, /*first=*/0, 37);      // of four ranks
#ifndef MESHIFT_TESTING_INTERNAL_CONFORMANCE_VALUES_H_
#define MESHIFT_TESTING_INTERNAL_CONFORMANCE_VALUES_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift::conformance {

using Bytes8 = std::vector<uint8_t>;

// `count` elements of a rank: small, so that sums and products of eight ranks are exact or round in
// only one way. A dropped or doubled contribution is detected.
Bytes8 Contribution(DType dtype, ReduceOp op, int64_t rank, int64_t count);
// Elements first .. first+count-1 of the reduction over ranks 0 .. size-1; averages divide by size.
Bytes8 Result(DType dtype, ReduceOp op, int64_t size, int64_t first, int64_t count);
// Averages that Result does not support: in wider types a third has other digits than in f32.
bool IsInexactAverage(DType dtype, ReduceOp op, int64_t size);

// Arbitrary bytes, for collectives that only copy.
Bytes8 Pattern(int64_t seed, int64_t bytes);
// Elements with random bits.
Bytes8 AnyBits(DType dtype, ReduceOp op, int64_t rank, int64_t bytes);
// Block counts, all even. Kind 0: all 0; 1: all on the last member; 2: 0 for some.
std::vector<int64_t> RaggedCounts(int64_t size, int kind);

Bytes8 Slice(const Bytes8& bytes, int64_t first, int64_t count);
void Append(const Bytes8& more, Bytes8* bytes);

template <typename T>
Bytes8 BytesOf(const std::vector<T>& values) {
  Bytes8 bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <typename T>
std::vector<T> ValuesOf(const Bytes8& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// All dtypes and ops, or one in MESHIFT_TEST_FRACTION, selected by `salt`.
void ForEachReduction(int64_t salt, const std::function<void(DType, ReduceOp)>& visit);
// "sum of 37 x f32, rank 1 of 4"
std::string Text(DType dtype, ReduceOp op, int64_t size, int64_t rank, int64_t count);

}  // namespace meshift::conformance

#endif  // MESHIFT_TESTING_INTERNAL_CONFORMANCE_VALUES_H_
