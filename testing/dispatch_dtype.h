// Dispatches from a dtype to its number type (testing/number.h).
//
//   const int64_t bytes = WithType(DType::kBF16, [](auto type) {
//     return int64_t{sizeof(typename decltype(type)::Bits)};
//   });
#ifndef MESHIFT_TESTING_DISPATCH_DTYPE_H_
#define MESHIFT_TESTING_DISPATCH_DTYPE_H_

#include "meshift/dtype.h"
#include "testing/number.h"

namespace meshift::testkit {

// Calls visit with a value of the number type of `dtype`; pairs of f4e2m1 are bytes.
template <typename Visit>
auto WithType(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kBool:
      return visit(Bool());
    case DType::kI8:
      return visit(I8());
    case DType::kI16:
      return visit(I16());
    case DType::kI32:
      return visit(I32());
    case DType::kI64:
      return visit(I64());
    case DType::kU8:
    case DType::kF4E2M1:
      return visit(U8());
    case DType::kU16:
      return visit(U16());
    case DType::kU32:
      return visit(U32());
    case DType::kU64:
      return visit(U64());
    case DType::kF16:
      return visit(F16());
    case DType::kBF16:
      return visit(BF16());
    case DType::kF32:
      return visit(F32());
    case DType::kF64:
      return visit(F64());
    case DType::kF8E4M3:
      return visit(F8E4M3());
    case DType::kF8E5M2:
      return visit(F8E5M2());
    case DType::kC64:
      return visit(C64());
    case DType::kC128:
      break;
  }
  return visit(C128());
}

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_DISPATCH_DTYPE_H_
