// Which reductions NCCL does with the arithmetic of comm/kernels/reduce.h. Not a public header.
//
//   NativeReductionOf(DType::kF32, {ReduceOp::kAvg, 8});   // a sum of floats; then divide by 8
//   NativeReductionOf(DType::kF16, {ReduceOp::kAvg, 8});   // none: it would be rounded twice
//
//   sum, product   integers of 8, 32 and 64 bits, f32, f64; f16 and bf16, rounded at every hop
//   sum            complex, by component
//   avg            f32, f64, complex and these integers: the sum, divided once afterwards
//   min, max       these integers, and bool as bytes; of floats NCCL leaves open what NaN and -0 do
//
// Everything else (f8, averages of 16 bits, i16, u16, bits, complex products) is reduced by
// Meshift's own kernel from contributions that NCCL has only moved.
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
  DType dtype = DType::kF32;  // of what `type` is
  int64_t parts = 1;          // elements of `type` in one element: 2 of complex numbers
  bool divide = false;        // each result by the divisor, afterwards
};

// REQUIRES: CheckReduction(dtype, reduction) is OK.
std::optional<NativeReduction> NativeReductionOf(DType dtype, const Reduction& reduction);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_NATIVE_REDUCTION_H_
