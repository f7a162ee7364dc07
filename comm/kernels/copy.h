// Copies boxes of strided tensors on the CPU. Dims that are contiguous with each other on both
// sides are merged, whatever their order. Contiguous runs are copied as a whole. A copy that
// transposes runs of 1, 2, 4, 8 or 16 bytes, in two dims of 4 or more, goes in tiles.
//
//   MESHIFT_ASSIGN_OR_RETURN(StridedCopy copy, StridedCopy::Create(box_copy, DType::kBF16));
//   copy.Execute();
//
// Strides may have any sign. Source and target must not overlap, and all offsets in bits must fit
// in int64_t; neither is checked. Addresses need no alignment.
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

// A BoxCopy that is prepared to execute. Does not own the memory. Threads may execute parts of it
// at the same time.
class StridedCopy {
 public:
  // INVALID_ARGUMENT if the ranks of shape and strides differ, a size is negative, a pointer is
  // null although there are elements, or packed f4e2m1 elements would be cut inside a byte.
  static absl::StatusOr<StridedCopy> Create(const BoxCopy& copy, DType dtype);
  StridedCopy() = default;  // copies nothing
  // As Create, in place. After an error the object must not be executed.
  absl::Status Reset(const BoxCopy& copy, DType dtype);
  // The two halves of Reset: SetLayout prepares the copy without addresses, and SetAddresses sets
  // these, without a check.
  absl::Status SetLayout(const Shape& shape, const Shape& src_strides, const Shape& dst_strides,
                         DType dtype);
  void SetAddresses(const char* src, char* dst) {
    src_ = src;
    dst_ = dst;
  }

  int64_t bytes() const { return bytes_; }
  // The prepared copy: contiguous runs of run_bytes(), at all indices of shape(). The outermost dim
  // is the first; the last dim has the smallest stride in the target, without its sign. Strides are
  // in bytes.
  const char* src() const { return src_; }
  char* dst() const { return dst_; }
  int64_t run_bytes() const { return run_bytes_; }
  const Shape& shape() const { return shape_; }
  const Shape& src_strides() const { return src_strides_; }
  const Shape& dst_strides() const { return dst_strides_; }

  // The copy can be cut into this many units of equal bytes; 0 if there is nothing to copy.
  int64_t units() const { return units_; }
  // Copies the units [begin, end). A copy of `stream_bytes` or more in total uses non-temporal
  // stores (copy_rows.h), which bypass the caches, if runs are long enough.
  void ExecuteUnits(int64_t begin, int64_t end, int64_t stream_bytes = kStreamBytes) const;
  void Execute(int64_t stream_bytes = kStreamBytes) const { ExecuteUnits(0, units_, stream_bytes); }

 private:
  // The dim that is contiguous in the source of a transposing copy, whose last dim is contiguous in
  // the target; -1: it does not transpose.
  int DenseInSource() const;
  bool MayStreamRuns() const;

  const char* src_ = nullptr;
  char* dst_ = nullptr;
  int64_t run_bytes_ = 0;  // of the contiguous inner part
  int64_t bytes_ = 0;
  int64_t units_ = 0;
  // The dims around the contiguous part, outermost first; strides in bytes. A unit is an index of
  // the first dim, or a byte of the run without dims.
  Shape shape_;
  Shape src_strides_;
  Shape dst_strides_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_COPY_H_
