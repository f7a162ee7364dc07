// Cuts copies of boxes into launches: the parameters of kCopyBoxesEntry and kTransposeBoxesEntry.
//
//   MESHIFT_RETURN_IF_ERROR(ForCopyLaunches(copies, DType::kBF16,
//       [&](bool transpose, const CopyBoxesParams& params) { return Launch(...); }));
//
// Dims are merged as comm/kernels/copy.h does. Each box moves in the widest accesses, up to 16
// bytes, that addresses, strides and the length of runs allow; long runs whose ends only are odd
// are cut in three, and long runs at odd addresses are shifted. A transposing box, contiguous along
// one dim in the source and along another in the target, goes to the kernel for those. Allocates
// nothing for tensors of at most five dims.
#ifndef MESHIFT_COMM_CUDA_COPY_LAUNCHES_H_
#define MESHIFT_COMM_CUDA_COPY_LAUNCHES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/cuda/kernel_params.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift::cuda {

// Calls `launch` with the parameters of each launch, in any order of boxes; stops at its first
// error. INVALID_ARGUMENT as StridedCopy::Create, before anything is launched.
absl::Status ForCopyLaunches(
    absl::Span<const BoxCopy> copies, DType dtype,
    absl::FunctionRef<absl::Status(bool transpose, const CopyBoxesParams& params)> launch);

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_COPY_LAUNCHES_H_
