#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift {
namespace {

TEST(TensorType, ParsesWhatItPrints) {
  for (const char* text : {"f32[]", "bf16[8192,8192]", "bool[0]", "i8[0,3,0]", "f4e2m1[3]",
                           "u8[9223372036854775807]", "f4e2m1[9223372036854775807]",
                           "f32[0,2305843009213693951]", "c128[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"}) {
    const auto type = TensorType::Parse(text);
    ASSERT_TRUE(type.ok()) << type.status();
    EXPECT_EQ(type->ToString(), text);
  }
  const TensorType expected{DType::kF32, {4, 8}};
  EXPECT_EQ(TensorType::Parse("  f32 [ 4 ,8 ] ").value(), expected);
}

TEST(TensorType, Errors) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"", "unknown dtype ''"},
      {"f12[2]", "unknown dtype 'f12'"},
      {"f32", "expected \"[\" at the end"},
      {"f32[4", "expected \"]\" at the end"},
      {"f32[4,]", "expected an integer at \"]\""},
      {"f32[+4]", "expected an integer at \"+4]\""},
      {"f32[4 8]", "expected \"]\" at \"8]\""},
      {"f32[4]x", "expected the end at \"x\""},
      {"f32[4,-1]", "f32[4,-1]: size -1 is negative"},
      {"f32[9223372036854775808]", "9223372036854775808 does not fit 64 bits"},
      {"u8[4294967296,2147483648]", "has more than 2^63 - 1 elements"},
      {"u8[0,4294967296,2147483648]", "has more than 2^63 - 1 elements"},
      {"f4e2m1[4294967296,2147483648]", "has more than 2^63 - 1 elements"},
      {"f32[0,2305843009213693952]", "has more than 2^63 - 1 bytes"},
      {"i16[4611686018427387904]", "has more than 2^63 - 1 bytes"},
      {"f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "has 17 dims; at most 16 are allowed"},
  };
  for (const auto& [text, message] : kCases) {
    const absl::Status status = TensorType::Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(Message(status).find(message), std::string::npos) << text << ": " << status;
  }
}

}  // namespace
}  // namespace meshift
