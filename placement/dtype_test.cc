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

TEST(DType, UnknownNameIsNamed) {
  EXPECT_EQ(Message(ParseDType("f12").status()).find("\"f12\" is no dtype (bool i8"), 0);
  for (const char* name : {"", "F32", "f32 ", "float"}) EXPECT_FALSE(ParseDType(name).ok()) << name;
}

}  // namespace
}  // namespace meshift
