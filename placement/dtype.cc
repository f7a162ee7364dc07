#include "meshift/dtype.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {
namespace {

struct Traits {
  std::string_view name;
  int bit_width;
};

// In the order of the enum.
constexpr std::array<Traits, kNumDTypes> kTraits = {{
    {"bool", 8},
    {"i8", 8},
    {"i16", 16},
    {"i32", 32},
    {"i64", 64},
    {"u8", 8},
    {"u16", 16},
    {"u32", 32},
    {"u64", 64},
    {"f16", 16},
    {"bf16", 16},
    {"f32", 32},
    {"f64", 64},
    {"f8e4m3", 8},
    {"f8e5m2", 8},
    {"f4e2m1", 4},
    {"c64", 64},
    {"c128", 128},
}};

struct Alias {
  std::string_view name;
  DType dtype;
};

// Names that PyTorch, NumPy and JAX print, and those of safetensors in lower case, if they differ
// from those of kTraits.
constexpr Alias kAliases[] = {
    {"int8", DType::kI8},
    {"int16", DType::kI16},
    {"int32", DType::kI32},
    {"int64", DType::kI64},
    {"uint8", DType::kU8},
    {"uint16", DType::kU16},
    {"uint32", DType::kU32},
    {"uint64", DType::kU64},
    {"float16", DType::kF16},
    {"half", DType::kF16},
    {"bfloat16", DType::kBF16},
    {"float32", DType::kF32},
    {"float64", DType::kF64},
    {"double", DType::kF64},
    {"float8_e4m3fn", DType::kF8E4M3},
    {"f8e4m3fn", DType::kF8E4M3},
    {"f8_e4m3", DType::kF8E4M3},
    {"float8_e5m2", DType::kF8E5M2},
    {"f8_e5m2", DType::kF8E5M2},
    {"float4_e2m1fn", DType::kF4E2M1},
    {"f4e2m1fn", DType::kF4E2M1},
    {"complex64", DType::kC64},
    {"complex128", DType::kC128},
};

// Removes the module with which some libraries print a dtype.
std::string_view WithoutModule(std::string_view name) {
  for (const std::string_view module : {"torch.", "numpy.", "np.", "jnp."}) {
    if (name.starts_with(module)) return name.substr(module.size());
  }
  return name;
}

const Traits& TraitsOf(DType dtype) { return kTraits[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view Name(DType dtype) { return TraitsOf(dtype).name; }

absl::StatusOr<DType> ParseDType(std::string_view name) {
  for (size_t i = 0; i < kTraits.size(); ++i) {
    if (kTraits[i].name == name) return static_cast<DType>(i);
  }
  const std::string_view plain = WithoutModule(name);
  if (plain == "bool") return DType::kBool;
  for (const Alias& alias : kAliases) {
    if (alias.name == plain) return alias.dtype;
  }
  return InvalidArgument(
      "unknown dtype '{}'; expected one of bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 "
      "f8e4m3 f8e5m2 "
      "f4e2m1 c64 c128",
      name);
}

int BitWidth(DType dtype) { return TraitsOf(dtype).bit_width; }

int64_t Bytes(DType dtype, int64_t count) {
  const int bits = BitWidth(dtype);
  return bits < 8 ? count / (8 / bits) : count * (bits / 8);
}

bool IsFloat(DType dtype) { return DType::kF16 <= dtype && dtype <= DType::kF4E2M1; }

bool IsInteger(DType dtype) { return DType::kI8 <= dtype && dtype <= DType::kU64; }

bool IsComplex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

}  // namespace meshift
