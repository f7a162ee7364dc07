// Launches Meshift's CUDA kernels. Their twins on the CPU, with the same results bit by bit, are in
// comm/kernels/.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto kernels, CudaKernels::Create(driver));   // a context is current
//   MESHIFT_RETURN_IF_ERROR(kernels->CopyBoxes(copies, DType::kBF16, stream));
//
// All addresses are device addresses (or host memory that the device may access). A call only puts
// launches on `stream`: it allocates no device memory, waits for nothing and copies nothing from
// the host, so it may be captured into a CUDA graph, with the addresses it has. The context of
// Create must be current at every call.
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

// The kernels of one context. Immutable: may be used from several threads at once.
class CudaKernels {
 public:
  // Loads the kernels into the current context, all of them now (where the driver lets one choose,
  // from 12.4 on), so that no launch does; they are unloaded with the object, which the
  // context must outlive. FAILED_PRECONDITION where no context is current, or the device or the
  // driver is older than the kernels.
  static absl::StatusOr<std::unique_ptr<CudaKernels>> Create(
      std::shared_ptr<const CudaDriver> driver);
  ~CudaKernels();
  CudaKernels(const CudaKernels&) = delete;
  CudaKernels& operator=(const CudaKernels&) = delete;

  // The copies may run in any order, and must not depend on each other.
  absl::Status CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, CUstream stream) const;
  absl::Status FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                            CUstream stream) const;
  absl::Status FillZero(void* data, int64_t bytes, CUstream stream) const;
  // As comm/kernels/cast.h.
  absl::Status Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count,
                    CUstream stream) const;
  // dst[i] = src[i] / divisor, as the last step of an average: computed in f32 (f64), rounded once;
  // integers truncate. `dst` may be `src`.
  absl::Status Scale(const void* src, void* dst, int64_t count, DType dtype, int64_t divisor,
                     CUstream stream) const;
  // out[i] = the reduction of inputs[0][i], inputs[1][i], ... in this order, as
  // comm/kernels/reduce.h says. `out` may be one of the inputs, and otherwise overlaps none.
  // Inputs at equal distances, as blocks of one buffer are, may be any number; others at most
  // cuda::kMaxReduceInputs, else UNIMPLEMENTED.
  absl::Status ReduceBuffers(absl::Span<const void* const> inputs, void* out, int64_t count,
                             DType dtype, const Reduction& reduction, CUstream stream) const;

 private:
  CudaKernels() = default;
  absl::Status Launch(CUfunction function, int64_t blocks, const void* params,
                      CUstream stream) const;

  std::shared_ptr<const CudaDriver> driver_;
  CUmodule module_ = nullptr;
  int64_t max_blocks_ = 0;  // more than that a launch does not need
  CUfunction copy_boxes_ = nullptr;
  CUfunction transpose_boxes_ = nullptr;
  CUfunction fill_ = nullptr;
  std::array<CUfunction, kNumDTypes> cast_ = {};    // by source dtype
  std::array<CUfunction, kNumDTypes> reduce_ = {};  // by dtype
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CUDA_KERNELS_H_
