// The numbers of meshift::DType and meshift::ReduceOp (kCodeBF16 is that of DType::kBF16), for code
// that nvcc compiles too: it does not include their headers. cast.cc asserts that four of the
// dtypes' numbers agree, reduce.cc that those of all ops do. Internal to comm.
#ifndef MESHIFT_COMM_KERNELS_CODES_H_
#define MESHIFT_COMM_KERNELS_CODES_H_

namespace meshift {

enum DTypeCode : int {
  kCodeBool,
  kCodeI8,
  kCodeI16,
  kCodeI32,
  kCodeI64,
  kCodeU8,
  kCodeU16,
  kCodeU32,
  kCodeU64,
  kCodeF16,
  kCodeBF16,
  kCodeF32,
  kCodeF64,
  kCodeF8E4M3,
  kCodeF8E5M2,
  kCodeF4E2M1,
  kCodeC64,
  kCodeC128,
};

enum OpCode : int {
  kCodeSum,
  kCodeAvg,
  kCodeMin,
  kCodeMax,
  kCodeProduct,
  kCodeAnd,
  kCodeOr,
  kCodeXor,
};

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_CODES_H_
