#include "meshift/dtype.h"
#include "testing/dtype_ops.h"
#include "testing/dtype_ops_impl.h"
#include "testing/number.h"

namespace meshift::testkit {

const TypedOps* IntegerOpsOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return &Typed<Bool>::kOps;
    case DType::kI8:
      return &Typed<I8>::kOps;
    case DType::kI16:
      return &Typed<I16>::kOps;
    case DType::kI32:
      return &Typed<I32>::kOps;
    case DType::kI64:
      return &Typed<I64>::kOps;
    case DType::kU8:
      return &Typed<U8>::kOps;
    case DType::kU16:
      return &Typed<U16>::kOps;
    case DType::kU32:
      return &Typed<U32>::kOps;
    case DType::kU64:
      return &Typed<U64>::kOps;
    default:
      return nullptr;
  }
}

const TypedOps& RawOps(int element_bytes) {
  switch (element_bytes) {
    case 1:
      return Typed<U8>::kOps;
    case 2:
      return Typed<U16>::kOps;
    case 4:
      return Typed<U32>::kOps;
    case 8:
      return Typed<U64>::kOps;
    default:
      return Typed<U128>::kOps;
  }
}

}  // namespace meshift::testkit
