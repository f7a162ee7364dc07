// Tells which reductions NCCL does itself, and by which ncclRedOp_t. They have the arithmetic of
// comm/kernels/reduce.h, except for the order, the bits of a NaN, and the rounding of f16 and bf16.
// Makes no call of NCCL. Internal to comm/nccl.
//
//   NativeReductionOf(DType::kF32, {ReduceOp::kAvg, 8});   // a sum of floats; then divide by 8
//   NativeReductionOf(DType::kF16, {ReduceOp::kAvg, 8});   // none: it would be rounded twice
//
//   sum, product   integers of 8, 32 and 64 bits, f32, f64; f16 and bf16, rounded at every hop
//   sum            complex, by component
//   avg            f32, f64, complex and these integers: the sum, divided once afterwards
//   min, max       these integers, and bool as bytes; not floats: NCCL does not define NaN and -0
//
// Meshift's own kernel does all others (f8, averages of 16 bits, i16, u16, and/or/xor, complex
// products, min and max of floats), from contributions that NCCL only moves.
#ifndef MESHIFT_COMM_NCCL_NATIVE_REDUCTION_H_
#define MESHIFT_COMM_NCCL_NATIVE_REDUCTION_H_

#include <nccl.h>

#include <cstdint>
#include <optional>

#include "meshift/communicator.h"
#include "meshift/dtype.h"

namespace meshift {

struct NativeReduction {
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  DType dtype = DType::kF32;  // Meshift's name of `type`
  int64_t parts = 1;          // elements of `type` per element: 2 for complex numbers
  bool divide = false;        // divide each result by the divisor afterwards
};

// nullopt if NCCL cannot do it. REQUIRES: CheckReduction(dtype, reduction) is OK.
std::optional<NativeReduction> NativeReductionOf(DType dtype, const Reduction& reduction);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_NATIVE_REDUCTION_H_
