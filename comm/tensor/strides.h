// How the elements of a strided tensor lie in memory: element (i0, i1, ...) at i0 * strides[0] +
// i1 * strides[1] + ... elements from element (0, 0, ...). Strides may be negative or zero.
//
//   ExtentOf({4, 2}, {1, 4});               // {0, 8}: the columns of a 2x4 matrix
//   FindOverlap({4, 2}, {1, 3});            // kYes: (3, 0) lies where (0, 1) does
//   RowMajorStrides({4, 2});                // {2, 1}
#ifndef MESHIFT_COMM_TENSOR_STRIDES_H_
#define MESHIFT_COMM_TENSOR_STRIDES_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "meshift/sharding.h"

namespace meshift {

Shape RowMajorStrides(absl::Span<const int64_t> shape);

// Whether the elements lie in one run in row-major order. Strides of dims of size 1 do not matter.
bool IsRowMajor(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);

// The least position of an element, and one behind the largest. Empty tensors: {0, 0}.
struct StridedExtent {
  int64_t low = 0;
  int64_t high = 0;
  friend bool operator==(const StridedExtent&, const StridedExtent&) = default;
};
// None where a position (or one times 16, so that its bytes do not overflow) is beyond 2^63 - 1.
// Says nothing of dims of size 1. REQUIRES: equal ranks, no negative size.
std::optional<StridedExtent> ExtentOf(absl::Span<const int64_t> shape,
                                      absl::Span<const int64_t> strides);

// Whether two elements lie at one position. kUnknown, which only contrived layouts come to: it
// would take too long to find out. REQUIRES: ExtentOf is not none. Does not allocate.
enum class Overlap : uint8_t { kNo, kYes, kUnknown };
Overlap FindOverlap(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);

}  // namespace meshift

#endif  // MESHIFT_COMM_TENSOR_STRIDES_H_
