// Tensors of other frameworks, by DLPack.
//
//   MESHIFT_ASSIGN_OR_RETURN(TensorView in, FromDlpack(&managed->dl_tensor));
//
//   int64_t shape[8], strides[8];
//   DLTensor tensor;
//   MESHIFT_RETURN_IF_ERROR(ToDlpack(out, shape, strides, &tensor));
//
// Only describes memory, whose lifetime stays with those who own it. Reads and writes the structure
// that all versions of DLPack have in common; type codes that old headers lack are known by number.
// (DLTensor has no tag that could be declared here without the header.)
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

// Null strides mean row-major; the byte offset is part of the view's address. Devices: CPU, CUDA,
// and CUDA's pinned host memory, which is host memory. f4e2m1 comes as elements (one lane) or as
// pairs (two lanes, as torch's float4_e2m1fn_x2), of which the last dim has twice as many elements.
// INVALID_ARGUMENT: no tensor, a size below 0, what does not fit into memory; UNIMPLEMENTED: other
// devices, dtypes, lanes.
absl::StatusOr<TensorView> FromDlpack(const DLTensor* tensor);

// `shape` and `strides`, of at least as many elements as the view has dims, are kept by `tensor`
// and must outlive it; more are not touched.
absl::Status ToDlpack(const TensorView& view, absl::Span<int64_t> shape,
                      absl::Span<int64_t> strides, DLTensor* tensor);

}  // namespace meshift

#endif  // MESHIFT_DLPACK_H_
