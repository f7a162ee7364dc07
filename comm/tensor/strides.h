// The memory layout of strided tensors: row-major strides, the range of positions, and whether
// elements overlap. Strides and positions count elements; strides may be negative or zero. The
// position of element (i0, i1) relative to element (0, 0) is i0 * strides[0] + i1 * strides[1].
//
//   ExtentOf({4, 2}, {1, 4});               // {0, 8}: the columns of a 2x4 matrix
//   FindOverlap({4, 2}, {1, 3});            // kYes: (3, 0) and (0, 1) have the same position
//   RowMajorStrides({4, 2});                // {2, 1}
//
// Pure functions. REQUIRES: strides and shape have equal lengths; no size is negative; the product
// of the sizes other than 0 fits into 64 bits.
#ifndef MESHIFT_COMM_TENSOR_STRIDES_H_
#define MESHIFT_COMM_TENSOR_STRIDES_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "meshift/sharding.h"

namespace meshift {

Shape RowMajorStrides(absl::Span<const int64_t> shape);

// Whether the elements are contiguous in row-major order. Strides of dims of size 1 do not matter.
bool IsRowMajor(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);

// The smallest position of an element, and the largest plus 1. Empty tensors: {0, 0}.
struct StridedExtent {
  int64_t low = 0;
  int64_t high = 0;
  friend bool operator==(const StridedExtent&, const StridedExtent&) = default;
};
// nullopt if a position is beyond +-2^63 / 32, so that offsets in bytes never overflow. Ignores
// dims of size 1.
std::optional<StridedExtent> ExtentOf(absl::Span<const int64_t> shape,
                                      absl::Span<const int64_t> strides);

// Whether two elements have the same position. kUnknown: the search was given up after 65,536
// steps. Strides that each exceed the span of the dims with smaller strides need no search.
// REQUIRES: ExtentOf is not nullopt. Does not allocate for up to 16 dims.
enum class Overlap : uint8_t { kNo, kYes, kUnknown };
Overlap FindOverlap(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);

}  // namespace meshift

#endif  // MESHIFT_COMM_TENSOR_STRIDES_H_
