// Makes and checks the parameters of launches that fill, cast and reduce, and computes the number
// of blocks. Launches nothing itself.
//
//   CastParams params;
//   MESHIFT_RETURN_IF_ERROR(MakeCast(src, DType::kBF16, dst, DType::kF32, 4096, &params));
//   Launch(kCastEntries[params.src_dtype], CastBlocks(params), &params);
//
// INVALID_ARGUMENT for a negative count, and for a null pointer if count > 0. Counts are in
// elements; addresses need no alignment. Callers must not launch if `count` is 0. Buffers must not
// overlap, except that `out` may be one of the inputs. Thread-safe. Internal to comm/cuda.
#ifndef MESHIFT_COMM_CUDA_ELEMENT_LAUNCHES_H_
#define MESHIFT_COMM_CUDA_ELEMENT_LAUNCHES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/cuda/kernel_params.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift::cuda {

// INVALID_ARGUMENT if `op` has no identity or is not defined for `dtype`.
absl::Status MakeFillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                              FillParams* params);

// INTERNAL for equal dtypes, which the caller must copy. INVALID_ARGUMENT if CheckCast fails.
absl::Status MakeCast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count,
                      CastParams* params);

// INVALID_ARGUMENT if CheckReduction fails, or without inputs. UNIMPLEMENTED for more than
// kMaxReduceInputs inputs that are not at equal distances.
absl::Status MakeReduce(absl::Span<const void* const> inputs, void* out, int64_t count, DType dtype,
                        const Reduction& reduction, ReduceParams* params);

// The number of blocks of kThreads threads with which no thread's loop runs twice, except for
// complex numbers that are accessed by bytes. A launch with fewer blocks has the same result.
int64_t FillBlocks(const FillParams& params);
int64_t CastBlocks(const CastParams& params);
int64_t ReduceBlocks(const ReduceParams& params);

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_ELEMENT_LAUNCHES_H_
