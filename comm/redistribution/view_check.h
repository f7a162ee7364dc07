// Checks the views of a call: whether they match the shardings, and which bytes they use. Converts
// them to options of the lowering. Internal to comm/. Pure functions: they compare addresses, in
// bytes, but read no memory, and do not ask the system where memory lies.
//
//   MESHIFT_RETURN_IF_ERROR(CheckView("source", view, DType::kBF16, {4, 2}, /*rank=*/3));
//   MESHIFT_ASSIGN_OR_RETURN(LoweringOptions layouts, LayoutsOf(source, target, false));
//   layouts = CheckViews(plan, rank, device, shapes, source, target, false).value();
#ifndef MESHIFT_COMM_REDISTRIBUTION_VIEW_CHECK_H_
#define MESHIFT_COMM_REDISTRIBUTION_VIEW_CHECK_H_

#include <cstdint>
#include <string_view>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/program/lowering.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"

namespace meshift {

// INVALID_ARGUMENT unless `view` has the dtype and shape of `rank`'s local tensor, a stride per
// dim, and positions within the range of ExtentOf (comm/tensor/strides.h).
absl::Status CheckView(std::string_view name, const TensorView& view, DType dtype,
                       const Shape& shape, int64_t rank);

// The dtype and shape of a rank's local tensor, for a fast check of row-major views.
struct PlainTensor {
  PlainTensor(DType dtype, const Shape& shape);
  DType dtype;
  Shape shape;
  int64_t bytes = -1;  // -1: no view passes the fast check
};

// A fast check. True only if both views are row-major with these dtypes and shapes, are not null or
// have no elements, are on one device that the engine can use, and do not overlap, and the target
// is not read-only. Then CheckViews() returns the default options, unless the source is consumed.
// False means that CheckViews() must be called.
ABSL_ATTRIBUTE_HOT bool ArePlain(const TensorView& source, const PlainTensor& plain_source,
                                 const TensorView& target, const PlainTensor& plain_target,
                                 const Device& device);

// INVALID_ARGUMENT if elements of the target overlap each other, or that cannot be determined.
absl::Status CheckTarget(const TensorView& target);

// The address range [begin, end) of a view, from its lowest byte to its highest. Empty if the
// tensor has no elements or no memory.
struct MemoryRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool Overlaps(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};
// REQUIRES: CheckView is OK, or the view is null or has no elements.
MemoryRange RangeOf(const TensorView& view);

// The address range of the caller's workspace. INVALID_ARGUMENT if it is smaller than `needed`
// bytes, not aligned, or null although `needed` > 0.
absl::StatusOr<MemoryRange> CheckWorkspace(const void* data, int64_t bytes, int64_t needed);
// INVALID_ARGUMENT if the tensor, called `name`, overlaps the workspace.
absl::Status CheckDisjoint(std::string_view name, const MemoryRange& tensor,
                           const MemoryRange& workspace);

// The options to lower for these views: their strides, whether they are one buffer, and whether the
// source is consumed. A source that is strided, not aligned as workspaces are, or in one buffer
// with the target is not consumed. INVALID_ARGUMENT if the address ranges overlap and do not begin
// at the same address, also if the elements only interleave. REQUIRES: CheckView is OK for both
// views.
absl::StatusOr<LoweringOptions> LayoutsOf(const TensorView& source, const TensorView& target,
                                          bool consume_source);

// The shapes of a rank's local tensors; {0} if it is not in the tensor's mesh.
struct LocalShapes {
  const Shape& source;
  const Shape& target;
  bool has_source;
  bool has_target;
};

// Makes CheckView and CheckTarget for the views of a plan's tensors on `rank`, then returns
// LayoutsOf(). INVALID_ARGUMENT also if the target, or a consumed source, is read-only; if the
// views are on different devices; if their device is neither the host nor the engine's
// (TensorView::device); or if a view has elements in memory although the rank is not in the
// tensor's mesh. A view may be null. Does not check the workspace.
absl::StatusOr<LoweringOptions> CheckViews(const Plan& plan, int64_t rank, const Device& device,
                                           const LocalShapes& shapes, const TensorView& source,
                                           const TensorView& target, bool consume_source);

}  // namespace meshift

#endif  // MESHIFT_COMM_REDISTRIBUTION_VIEW_CHECK_H_
