#include "meshift/dtype.h"
#include "testing/dtype_ops.h"
#include "testing/dtype_ops_impl.h"
#include "testing/number.h"

namespace meshift::testkit {

const TypedOps* FloatOpsOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return &Typed<F16>::kOps;
    case DType::kBF16:
      return &Typed<BF16>::kOps;
    case DType::kF32:
      return &Typed<F32>::kOps;
    case DType::kF64:
      return &Typed<F64>::kOps;
    case DType::kF8E4M3:
      return &Typed<F8E4M3>::kOps;
    case DType::kF8E5M2:
      return &Typed<F8E5M2>::kOps;
    case DType::kC64:
      return &Typed<C64>::kOps;
    case DType::kC128:
      return &Typed<C128>::kOps;
    default:
      return nullptr;
  }
}

const TypedOps& OpsOf(DType dtype) {
  const TypedOps* integers = IntegerOpsOf(dtype);
  return integers != nullptr ? *integers : *FloatOpsOf(dtype);
}

}  // namespace meshift::testkit
