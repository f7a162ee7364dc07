#include "comm/nccl/native_reduction.h"

#include <nccl.h>

#include <optional>

#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

std::optional<ncclDataType_t> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return ncclInt8;
    case DType::kU8:
    case DType::kBool:
      return ncclUint8;
    case DType::kI32:
      return ncclInt32;
    case DType::kU32:
      return ncclUint32;
    case DType::kI64:
      return ncclInt64;
    case DType::kU64:
      return ncclUint64;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<NativeReduction> NativeReductionOf(DType dtype, const Reduction& reduction) {
  NativeReduction native{.dtype = dtype};
  const bool is_sum = reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kAvg;
  if (is_sum && IsComplex(dtype)) {
    native.dtype = dtype == DType::kC64 ? DType::kF32 : DType::kF64;
    native.parts = 2;
  }
  const std::optional<ncclDataType_t> type = TypeOf(native.dtype);
  if (!type) return std::nullopt;
  native.type = *type;
  const bool is_half = dtype == DType::kF16 || dtype == DType::kBF16;
  switch (reduction.op) {
    case ReduceOp::kSum:
      native.op = ncclSum;
      break;
    case ReduceOp::kProduct:
      native.op = ncclProd;
      break;
    case ReduceOp::kAvg:
      if (is_half) return std::nullopt;
      native.op = ncclSum;
      native.divide = reduction.divisor != 1;
      break;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      if (IsFloat(dtype)) return std::nullopt;
      native.op = reduction.op == ReduceOp::kMin ? ncclMin : ncclMax;
      break;
    default:
      return std::nullopt;
  }
  // NCCL would add bools as bytes.
  if (dtype == DType::kBool && native.op != ncclMin && native.op != ncclMax) return std::nullopt;
  return native;
}

}  // namespace meshift
