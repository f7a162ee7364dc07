#include "meshift/dtype.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <string>

#include "base/status.h"

namespace meshift {
namespace {

TEST(DType, NamesAndWidths) {
  const struct {
    const char* name;
    int bits;
    bool is_float, is_integer, is_complex;
  } kFacts[] = {
      {"bool", 8, false, false, false},  {"i8", 8, false, true, false},
      {"i16", 16, false, true, false},   {"i32", 32, false, true, false},
      {"i64", 64, false, true, false},   {"u8", 8, false, true, false},
      {"u16", 16, false, true, false},   {"u32", 32, false, true, false},
      {"u64", 64, false, true, false},   {"f16", 16, true, false, false},
      {"bf16", 16, true, false, false},  {"f32", 32, true, false, false},
      {"f64", 64, true, false, false},   {"f8e4m3", 8, true, false, false},
      {"f8e5m2", 8, true, false, false}, {"f4e2m1", 4, true, false, false},
      {"c64", 64, false, false, true},   {"c128", 128, false, false, true},
  };
  static_assert(std::size(kFacts) == kNumDTypes);
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    SCOPED_TRACE(kFacts[i].name);
    EXPECT_EQ(std::string(Name(dtype)), kFacts[i].name);
    ASSERT_TRUE(ParseDType(kFacts[i].name).ok());
    EXPECT_EQ(*ParseDType(kFacts[i].name), dtype);
    EXPECT_EQ(BitWidth(dtype), kFacts[i].bits);
    EXPECT_EQ(IsFloat(dtype), kFacts[i].is_float);
    EXPECT_EQ(IsInteger(dtype), kFacts[i].is_integer);
    EXPECT_EQ(IsComplex(dtype), kFacts[i].is_complex);
    EXPECT_EQ(Bytes(dtype, 6), 6 * kFacts[i].bits / 8);
  }
}

TEST(DType, BytesOfHugeCountsDoNotOverflow) {
  EXPECT_EQ(Bytes(DType::kF4E2M1, INT64_MAX - 1), (INT64_MAX - 1) / 2);
  EXPECT_EQ(Bytes(DType::kBool, INT64_MAX), INT64_MAX);
}

TEST(DType, NamesOfOthers) {
  const struct {
    const char* theirs;
    const char* ours;
  } kCases[] = {
      {"float32", "f32"},
      {"torch.bfloat16", "bf16"},
      {"half", "f16"},
      {"numpy.float64", "f64"},
      {"double", "f64"},
      {"torch.bool", "bool"},
      {"float8_e4m3fn", "f8e4m3"},
      {"torch.float8_e5m2", "f8e5m2"},
      {"f8e4m3fn", "f8e4m3"},
      {"float4_e2m1fn", "f4e2m1"},
      {"uint16", "u16"},
      {"complex64", "c64"},
      {"torch.complex128", "c128"},
      {"int8", "i8"},
  };
  for (const auto& [theirs, ours] : kCases) {
    const absl::StatusOr<DType> dtype = ParseDType(theirs);
    ASSERT_TRUE(dtype.ok()) << dtype.status();
    EXPECT_EQ(Name(*dtype), ours) << theirs;
  }
  // Names of dtypes with other values or another layout.
  for (const char* name : {"float8_e4m3fnuz", "float4_e2m1fn_x2", "tensor.float32", "int", "torch.",
                           "torch.f33", "Float32", ""}) {
    EXPECT_FALSE(ParseDType(name).ok()) << name;
  }
}

TEST(DType, UnknownNameIsNamed) {
  EXPECT_EQ(
      Message(ParseDType("f12").status()).find("unknown dtype 'f12'; expected one of bool i8"), 0);
  for (const char* name : {"", "F32", "f32 ", "float"}) EXPECT_FALSE(ParseDType(name).ok()) << name;
}

}  // namespace
}  // namespace meshift
