// Copying boxes of strided tensors: dims that lie behind each other on both sides are merged, in
// whatever order they are given; what is then contiguous is copied by memcpy, and the rest element
// by element.
//
//   MESHIFT_ASSIGN_OR_RETURN(StridedCopy copy, StridedCopy::Create(box_copy, DType::kBF16));
//   copy.Run();
#ifndef MESHIFT_COMM_KERNELS_COPY_H_
#define MESHIFT_COMM_KERNELS_COPY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/kernels/copy_rows.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/sharding.h"

namespace meshift {

// A BoxCopy made ready to run. Does not own the memory. Parts of it may run at once.
class StridedCopy {
 public:
  // INVALID_ARGUMENT where the ranks of shape and strides differ, a size is negative, a pointer is
  // null although there are elements, or packed f4e2m1 elements would be cut inside a byte.
  static absl::StatusOr<StridedCopy> Create(const BoxCopy& copy, DType dtype);
  // Of nothing.
  StridedCopy() = default;
  // Becomes what Create makes, in place; of no use after an error.
  absl::Status Reset(const BoxCopy& copy, DType dtype);
  // The two halves of that: all but the addresses, which are null then; and these, which are not
  // checked.
  absl::Status Lay(const Shape& shape, const Shape& src_strides, const Shape& dst_strides,
                   DType dtype);
  void Place(const char* src, char* dst) {
    src_ = src;
    dst_ = dst;
  }

  int64_t bytes() const { return bytes_; }
  // The copy as it is made: contiguous runs of run_bytes(), at all indices of shape(), outermost
  // dim first (the last is that of the least stride in the target); strides in bytes.
  const char* src() const { return src_; }
  char* dst() const { return dst_; }
  int64_t run_bytes() const { return run_bytes_; }
  const Shape& shape() const { return shape_; }
  const Shape& src_strides() const { return src_strides_; }
  const Shape& dst_strides() const { return dst_strides_; }

  // The copy can be cut into this many units of equal bytes; 0 where there is nothing to do.
  int64_t units() const { return units_; }
  // Copies the units [begin, end). A copy of `stream_bytes` or more goes past the caches where that
  // pays.
  void RunUnits(int64_t begin, int64_t end, int64_t stream_bytes = kStreamBytes) const;
  void Run(int64_t stream_bytes = kStreamBytes) const { RunUnits(0, units_, stream_bytes); }

 private:
  // The dim along which elements are side by side in the source where they are so along the last
  // one in the target: a transposing copy. -1: none.
  int DenseInSource() const;
  bool MayStreamRuns() const;

  const char* src_ = nullptr;
  char* dst_ = nullptr;
  int64_t run_bytes_ = 0;  // of the contiguous inner part
  int64_t bytes_ = 0;
  int64_t units_ = 0;
  // The dims around the contiguous part, outermost first; strides in bytes. Without any, a unit is
  // a byte of the run, else an index of the first of them.
  Shape shape_;
  Shape src_strides_;
  Shape dst_strides_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_COPY_H_
