// Parameters of the launches that fill, cast and reduce, and how many blocks they want.
//
//   CastParams params;
//   MESHIFT_RETURN_IF_ERROR(MakeCast(src, DType::kBF16, dst, DType::kF32, 4096, &params));
//   Launch(kCastEntries[params.src_dtype], CastBlocks(params), &params);
//
// What a call is given is checked here. Nothing is to be launched where `count` is 0.
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

// INVALID_ARGUMENT where `op` has no identity or does not take `dtype`, for a negative count, and
// for elements at null; so also below.
absl::Status MakeFillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                              FillParams* params);

// Not for equal dtypes (those are copied). INVALID_ARGUMENT where CheckCast refuses.
absl::Status MakeCast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count,
                      CastParams* params);

// INVALID_ARGUMENT where CheckReduction refuses, and without inputs. UNIMPLEMENTED for more than
// kMaxReduceInputs inputs that are not at equal distances.
absl::Status MakeReduce(absl::Span<const void* const> inputs, void* out, int64_t count, DType dtype,
                        const Reduction& reduction, ReduceParams* params);

// Blocks that give each thread one piece of work.
int64_t FillBlocks(const FillParams& params);
int64_t CastBlocks(const CastParams& params);
int64_t ReduceBlocks(const ReduceParams& params);

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_ELEMENT_LAUNCHES_H_
