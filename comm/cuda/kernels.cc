#include "comm/cuda/kernels.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/cuda/copy_launches.h"
#include "comm/cuda/driver.h"
#include "comm/cuda/element_launches.h"
#include "comm/cuda/kernel_params.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "meshift/status.h"

// The machine code and the PTX of the kernels: //comm/cuda:kernels_image.
extern "C" const unsigned char meshift_cuda_kernels[];
extern "C" const unsigned char meshift_cuda_kernels_ptx[];

namespace meshift {
namespace {

// Keeps every multiprocessor busy until the end; more blocks only add overhead.
constexpr int64_t kBlocksPerMultiprocessor = 32;

CUdeviceptr AddressOf(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernels>> CudaKernels::Create(
    std::shared_ptr<const CudaDriver> driver) {
  std::unique_ptr<CudaKernels> kernels(new CudaKernels());
  kernels->driver_ = std::move(driver);
  const CudaDriver& d = *kernels->driver_;
  CUdevice device = 0;
  MESHIFT_RETURN_IF_ERROR(d.CtxGetDevice(&device));
  int multiprocessors = 0;
  MESHIFT_RETURN_IF_ERROR(
      d.DeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  kernels->max_blocks_ = std::max(1, multiprocessors) * kBlocksPerMultiprocessor;
  int driver_version = 0;
  MESHIFT_RETURN_IF_ERROR(d.DriverGetVersion(&driver_version));
  // A driver can load machine code made with its own major version of CUDA or an older one.
  const bool knows_code = driver_version / 1000 >= CUDA_VERSION / 1000;
  MESHIFT_RETURN_IF_ERROR(d.ModuleLoadData(
      &kernels->module_, knows_code ? meshift_cuda_kernels : meshift_cuda_kernels_ptx));
  const auto find = [&](const char* name, CUfunction* function) -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(d.ModuleGetFunction(function, kernels->module_, name));
    // Load it now. CUDA would load it at its first launch, and may then wait for all work of the
    // context: a deadlock if that is a collective that waits for this rank.
    return d.HasFuncLoad() ? d.FuncLoad(*function) : absl::OkStatus();
  };
  MESHIFT_RETURN_IF_ERROR(find(cuda::kCopyBoxesEntry, &kernels->copy_boxes_));
  MESHIFT_RETURN_IF_ERROR(find(cuda::kTransposeBoxesEntry, &kernels->transpose_boxes_));
  MESHIFT_RETURN_IF_ERROR(find(cuda::kFillEntry, &kernels->fill_));
  for (int i = 0; i < kNumDTypes; ++i) {
    if (cuda::kCastEntries[i] == nullptr) continue;
    MESHIFT_RETURN_IF_ERROR(find(cuda::kCastEntries[i], &kernels->cast_[i]));
    MESHIFT_RETURN_IF_ERROR(find(cuda::kReduceEntries[i], &kernels->reduce_[i]));
  }
  return kernels;
}

CudaKernels::~CudaKernels() {
  // A destructor cannot report an error, and the context may be gone at the end of a process.
  if (module_ != nullptr) driver_->ModuleUnload(module_).IgnoreError();
}

absl::Status CudaKernels::Launch(CUfunction function, int64_t blocks, const void* params,
                                 CUstream stream) const {
  const auto grid = static_cast<unsigned int>(std::clamp<int64_t>(blocks, 1, max_blocks_));
  void* arguments[] = {const_cast<void*>(params)};  // CUDA only reads it
  return driver_->LaunchKernel(function, grid, 1, 1, cuda::kThreads, 1, 1, 0, stream, arguments,
                               nullptr);
}

absl::Status CudaKernels::CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype,
                                    CUstream stream) const {
  return cuda::ForCopyLaunches(copies, dtype,
                               [&](bool transpose, const cuda::CopyBoxesParams& params) {
                                 return Launch(transpose ? transpose_boxes_ : copy_boxes_,
                                               params.num_tiles, &params, stream);
                               });
}

absl::Status CudaKernels::FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                                       CUstream stream) const {
  cuda::FillParams params;
  MESHIFT_RETURN_IF_ERROR(cuda::MakeFillIdentity(data, count, dtype, op, &params));
  if (count == 0) return absl::OkStatus();
  return Launch(fill_, cuda::FillBlocks(params), &params, stream);
}

absl::Status CudaKernels::FillZero(void* data, int64_t bytes, CUstream stream) const {
  if (bytes < 0) return InvalidArgument("a count of {} bytes is negative", bytes);
  if (bytes == 0) return absl::OkStatus();
  return driver_->MemsetD8Async(AddressOf(data), static_cast<unsigned char>(0),
                                static_cast<size_t>(bytes), stream);
}

absl::Status CudaKernels::Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
                               int64_t count, CUstream stream) const {
  if (src_dtype == dst_dtype) {
    if (count < 0) return InvalidArgument("a count of {} is negative", count);
    if (count == 0) return absl::OkStatus();
    return driver_->MemcpyDtoDAsync(AddressOf(dst), AddressOf(src),
                                    static_cast<size_t>(Bytes(src_dtype, count)), stream);
  }
  cuda::CastParams params;
  MESHIFT_RETURN_IF_ERROR(cuda::MakeCast(src, src_dtype, dst, dst_dtype, count, &params));
  if (count == 0) return absl::OkStatus();
  return Launch(cast_[static_cast<size_t>(src_dtype)], cuda::CastBlocks(params), &params, stream);
}

absl::Status CudaKernels::Scale(const void* src, void* dst, int64_t count, DType dtype,
                                int64_t divisor, CUstream stream) const {
  return ReduceBuffers({src}, dst, count, dtype, {.op = ReduceOp::kAvg, .divisor = divisor},
                       stream);
}

absl::Status CudaKernels::ReduceBuffers(absl::Span<const void* const> inputs, void* out,
                                        int64_t count, DType dtype, const Reduction& reduction,
                                        CUstream stream) const {
  cuda::ReduceParams params;
  MESHIFT_RETURN_IF_ERROR(cuda::MakeReduce(inputs, out, count, dtype, reduction, &params));
  if (count == 0) return absl::OkStatus();
  return Launch(reduce_[static_cast<size_t>(dtype)], cuda::ReduceBlocks(params), &params, stream);
}

}  // namespace meshift
