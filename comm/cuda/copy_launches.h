// Turns copies of strided boxes into kernel launches: makes the parameters of kCopyBoxesEntry and
// kTransposeBoxesEntry. Launches nothing itself.
//
//   MESHIFT_RETURN_IF_ERROR(ForCopyLaunches(copies, DType::kBF16,
//       [&](bool transpose, const CopyBoxesParams& params) { return Launch(...); }));
//
// Dims are merged as in comm/kernels/copy.h. A run is a range of bytes that is contiguous in source
// and target. Each box is copied by the widest accesses, up to 16 bytes, that addresses, strides
// and the length of runs allow. A long run of which only the ends are unaligned is cut into head,
// aligned body and tail. Another long run that allows accesses of only 1 or 2 bytes is copied as
// shifted words. A box whose aligned elements are contiguous along one dim in the source and along
// another in the target goes to the transposing kernel, unless one of these dims is small.
// Allocates nothing for tensors of at most five dims. Thread-safe. Internal to comm/cuda.
#ifndef MESHIFT_COMM_CUDA_COPY_LAUNCHES_H_
#define MESHIFT_COMM_CUDA_COPY_LAUNCHES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/cuda/kernel_params.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift::cuda {

// Calls `launch` with the parameters of each launch, valid during the call; stops at its first
// error. The copies may run in any order: none may read or write the target of another.
// INVALID_ARGUMENT if StridedCopy::Create fails, before the first launch. UNIMPLEMENTED for a box
// of more than kMaxCopyDims dims after merging, where the accesses of a run may count as a dim;
// other boxes may have been launched before.
absl::Status ForCopyLaunches(
    absl::Span<const BoxCopy> copies, DType dtype,
    absl::FunctionRef<absl::Status(bool transpose, const CopyBoxesParams& params)> launch);

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_COPY_LAUNCHES_H_
