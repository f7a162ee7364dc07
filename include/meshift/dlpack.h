// Converts between TensorView and DLPack's DLTensor. Needs <dlpack/dlpack.h>.
//
//   MESHIFT_ASSIGN_OR_RETURN(TensorView in, FromDlpack(&managed->dl_tensor));
//
//   int64_t shape[8], strides[8];
//   DLTensor tensor;
//   MESHIFT_RETURN_IF_ERROR(ToDlpack(out, shape, strides, &tensor));
//
// Only descriptions are converted: memory is neither copied nor owned, and a DLManagedTensor's
// deleter is not called. Uses the fields that all DLPack versions share: a view never gets
// `read_only`, because DLTensor does not have that flag. Type codes that are newer than the
// installed header are known by number. Pure functions; safe for concurrent use.
#ifndef MESHIFT_DLPACK_H_
#define MESHIFT_DLPACK_H_

#include <dlpack/dlpack.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/tensor_view.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// Null strides mean row-major; the byte offset is added to the view's address. Devices: CPU, CUDA,
// and CUDA's pinned host memory, which counts as host memory. f4e2m1 is accepted as elements (one
// lane), or as pairs (two lanes, torch's float4_e2m1fn_x2); a pair counts as two elements of the
// last dim. INVALID_ARGUMENT: a null tensor or shape; a negative size, number of dims or CUDA
// device; pairs without a contiguous last dim; or more bytes than an address can hold; the message
// names it. UNIMPLEMENTED: other devices, dtypes or lanes.
absl::StatusOr<TensorView> FromDlpack(const DLTensor* tensor);

// `tensor` points into `shape` and `strides`, which must outlive it. INVALID_ARGUMENT: one of them
// has fewer elements than the view has dims, or the view has not one stride per dim. f4e2m1 is
// written as elements, of one lane; DLTensor has no field for `read_only`.
absl::Status ToDlpack(const TensorView& view, absl::Span<int64_t> shape,
                      absl::Span<int64_t> strides, DLTensor* tensor);

}  // namespace meshift

#endif  // MESHIFT_DLPACK_H_
