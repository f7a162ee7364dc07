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

const Traits& TraitsOf(DType dtype) { return kTraits[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view Name(DType dtype) { return TraitsOf(dtype).name; }

absl::StatusOr<DType> ParseDType(std::string_view name) {
  for (size_t i = 0; i < kTraits.size(); ++i) {
    if (kTraits[i].name == name) return static_cast<DType>(i);
  }
  return InvalidArgument(
      "\"{}\" is no dtype (bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 "
      "f4e2m1 c64 c128)",
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
