// What the memory of a call is like: whether views are what a sharding says, which bytes they use,
// and what that means to the lowering. Internal to the redistributor.
//
//   MESHIFT_RETURN_IF_ERROR(CheckView("source", view, DType::kBF16, {4, 2}, /*rank=*/3));
//   MESHIFT_ASSIGN_OR_RETURN(LoweringOptions layouts, LayoutsOf(source, target, false));
//   MESHIFT_ASSIGN_OR_RETURN(layouts, CheckViews(plan, rank, device, shapes, source, target,
//   false));
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
// dim, and positions that can be addressed.
absl::Status CheckView(std::string_view name, const TensorView& view, DType dtype,
                       const Shape& shape, int64_t rank);

// What a rank's local tensor is nearly always like: row-major, of bytes that can be addressed.
struct PlainTensor {
  PlainTensor(DType dtype, const Shape& shape);
  DType dtype;
  Shape shape;
  int64_t bytes = 0;  // 0: no view is known to be like it
};

// Whether the views are in memory, like these, on one device, which may be the engine's, and apart,
// so that all checks below hold, and LayoutsOf has nothing to say where the source is kept. False
// is no answer.
ABSL_ATTRIBUTE_HOT bool ArePlain(const TensorView& source, const PlainTensor& plain_source,
                                 const TensorView& target, const PlainTensor& plain_target,
                                 const Device& device);

// INVALID_ARGUMENT where elements of the target overlap each other, or where that cannot be told.
absl::Status CheckTarget(const TensorView& target);

// The bytes [begin, end) from a view's lowest to its highest; none of a tensor without elements or
// memory.
struct MemoryRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool Overlaps(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};
// REQUIRES: CheckView is OK, or there is no memory.
MemoryRange RangeOf(const TensorView& view);

// The bytes of a workspace that the caller gives. INVALID_ARGUMENT where it is smaller than
// `needed`, not aligned, or null though something is needed.
absl::StatusOr<MemoryRange> CheckWorkspace(const void* data, int64_t bytes, int64_t needed);
// INVALID_ARGUMENT where a tensor, called `name`, lies in the workspace.
absl::Status CheckDisjoint(std::string_view name, const MemoryRange& tensor,
                           const MemoryRange& workspace);

// How to lower for these views: their strides, whether they are one buffer, and whether the source
// may be scratch, which needs it row-major, aligned as workspaces are, and apart from the target.
// INVALID_ARGUMENT where they overlap and do not begin at one address. REQUIRES: both are checked.
absl::StatusOr<LoweringOptions> LayoutsOf(const TensorView& source, const TensorView& target,
                                          bool consume_source);

// What a rank holds of a plan's tensors. Nothing of one whose mesh it is not in: shape {0}.
struct LocalShapes {
  const Shape& source;
  const Shape& target;
  bool has_source;
  bool has_target;
};

// What views of a plan's local tensors on `rank` mean to the lowering, once all of the above is
// checked. INVALID_ARGUMENT also where they are on different devices, or on another than the
// engine's (TensorView::device), or where a view has elements of a tensor of which the rank holds
// nothing.
absl::StatusOr<LoweringOptions> CheckViews(const Plan& plan, int64_t rank, const Device& device,
                                           const LocalShapes& shapes, const TensorView& source,
                                           const TensorView& target, bool consume_source);

}  // namespace meshift

#endif  // MESHIFT_COMM_REDISTRIBUTION_VIEW_CHECK_H_
