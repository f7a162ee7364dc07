// DType: the element types of tensors, their names and sizes.
//
//   Name(DType::kBF16);             // "bf16"
//   Bytes(DType::kBF16, 1024);      // 2048
//   ParseDType("torch.bfloat16");   // kBF16
//
// Names: bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 f4e2m1 c64 c128. An f8
// or f4 name has the bits of exponent and mantissa; f8e4m3 has NaN but no infinity, as PyTorch's
// float8_e4m3fn. c64 is two f32, c128 two f64. docs/dtypes.md lists the ops of each. Pure
// functions; safe for concurrent use.
#ifndef MESHIFT_DTYPE_H_
#define MESHIFT_DTYPE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

enum class DType : uint8_t {
  kBool,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kF4E2M1,
  kC64,
  kC128,
};
inline constexpr int kNumDTypes = 18;

std::string_view Name(DType dtype);
// Reads these names, the names of these dtypes that PyTorch, NumPy and JAX print, and those of
// safetensors in lower case. "torch.", "numpy.", "np." or "jnp." may precede a printed name. It
// does not read PyTorch's and safetensors' names for f4e2m1. INVALID_ARGUMENT: another name.
absl::StatusOr<DType> ParseDType(std::string_view name);
// Bits of one element: 4 for f4e2m1 (two to a byte), else a multiple of 8.
int BitWidth(DType dtype);
// The bytes of `count` elements. REQUIRES: count * BitWidth is a multiple of 8.
int64_t Bytes(DType dtype, int64_t count);
bool IsFloat(DType dtype);    // f16 .. f4e2m1
bool IsInteger(DType dtype);  // signed or unsigned, not bool
bool IsComplex(DType dtype);

}  // namespace meshift

#endif  // MESHIFT_DTYPE_H_
