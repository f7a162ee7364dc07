// Launches Meshift's CUDA kernels: copies of boxes, fills, casts and reductions. comm/kernels/ has
// the same operations for the CPU, with bitwise equal results.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto kernels, CudaKernels::Create(driver));   // a context is current
//   MESHIFT_RETURN_IF_ERROR(kernels->CopyBoxes(copies, DType::kBF16, stream));
//
// All addresses are device addresses (or host memory that the device may access); counts are in
// elements. A call only puts kernels, copies and fills on `stream`. It does not allocate device
// memory, wait, or copy from the host, so it may be captured into a CUDA graph, which keeps the
// addresses. The context of Create must be current at every call. INVALID_ARGUMENT: an invalid
// argument, such as a count, op or dtype; else errors as those of CudaDriver::StatusOf(). A kernel
// that fails while it runs, at a wrong address for example, is an error of a later call of the
// driver. Not a public header.
#ifndef MESHIFT_COMM_CUDA_KERNELS_H_
#define MESHIFT_COMM_CUDA_KERNELS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/cuda/driver.h"
#include "comm/cuda/kernel_params.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"

namespace meshift {

// The kernels of one context. Immutable and thread-safe.
class CudaKernels {
 public:
  // Loads the kernels into the current context, which must outlive the result. Loads all of them
  // now if the driver has cuFuncLoad (12.4 and later), so that no launch does. FAILED_PRECONDITION
  // if no context is current, or the device or driver is too old for the kernels.
  static absl::StatusOr<std::unique_ptr<CudaKernels>> Create(
      std::shared_ptr<const CudaDriver> driver);
  ~CudaKernels();
  CudaKernels(const CudaKernels&) = delete;
  CudaKernels& operator=(const CudaKernels&) = delete;

  // The copies may run in any order: none may read or write the target of another. UNIMPLEMENTED
  // for a box of more than cuda::kMaxCopyDims dims (ForCopyLaunches); others may run then.
  absl::Status CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, CUstream stream) const;
  absl::Status FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                            CUstream stream) const;
  absl::Status FillZero(void* data, int64_t bytes, CUstream stream) const;
  // As in comm/kernels/cast.h. For equal dtypes, f4e2m1 too, it copies bytes, and does not check
  // addresses.
  absl::Status Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count,
                    CUstream stream) const;
  // dst[i] = src[i] / divisor, the last step of an average: computed in f32 (f64 for f64 and c128),
  // rounded once; integers truncate. `dst` may be `src`.
  absl::Status Scale(const void* src, void* dst, int64_t count, DType dtype, int64_t divisor,
                     CUstream stream) const;
  // out[i] = the reduction of inputs[0][i], inputs[1][i], ... in this order, as in
  // comm/kernels/reduce.h. `out` may be one of the inputs, and otherwise overlaps none.
  // UNIMPLEMENTED for more than cuda::kMaxReduceInputs inputs, unless they are at equal distances,
  // such as blocks of one buffer.
  absl::Status ReduceBuffers(absl::Span<const void* const> inputs, void* out, int64_t count,
                             DType dtype, const Reduction& reduction, CUstream stream) const;

 private:
  CudaKernels() = default;
  absl::Status Launch(CUfunction function, int64_t blocks, const void* params,
                      CUstream stream) const;

  std::shared_ptr<const CudaDriver> driver_;
  CUmodule module_ = nullptr;
  int64_t max_blocks_ = 0;  // per launch
  CUfunction copy_boxes_ = nullptr;
  CUfunction transpose_boxes_ = nullptr;
  CUfunction fill_ = nullptr;
  std::array<CUfunction, kNumDTypes> cast_ = {};    // by source dtype
  std::array<CUfunction, kNumDTypes> reduce_ = {};  // by dtype
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CUDA_KERNELS_H_
