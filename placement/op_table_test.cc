#include "placement/op_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

// One letter per op, in the order of the enum: y where there is a reduction, else why not.
//   b: bool adds and multiplies nothing   o: complex numbers have no order
//   w: bitwise ops want bool or integers  s: a storage format
TEST(OpTable, Whole) {
  // sum avg min max product and or xor
  const struct {
    const char* dtype;
    const char* row;
  } kTable[] = {
      {"bool", "bbyybyyy"}, {"i8", "yyyyyyyy"},     {"i16", "yyyyyyyy"},    {"i32", "yyyyyyyy"},
      {"i64", "yyyyyyyy"},  {"u8", "yyyyyyyy"},     {"u16", "yyyyyyyy"},    {"u32", "yyyyyyyy"},
      {"u64", "yyyyyyyy"},  {"f16", "yyyyywww"},    {"bf16", "yyyyywww"},   {"f32", "yyyyywww"},
      {"f64", "yyyyywww"},  {"f8e4m3", "yyyyywww"}, {"f8e5m2", "yyyyywww"}, {"f4e2m1", "ssssssss"},
      {"c64", "yyooywww"},  {"c128", "yyooywww"},
  };
  static_assert(std::size(kTable) == kNumDTypes);
  for (const auto& [name, row] : kTable) {
    const DType dtype = ParseDType(name).value();
    ASSERT_EQ(std::string(row).size(), kNumReduceOps);
    for (int i = 0; i < kNumReduceOps; ++i) {
      const ReduceOp op = static_cast<ReduceOp>(i);
      const absl::Status status = CheckReduce(op, dtype);
      std::string reason;
      if (row[i] == 'b') reason = "bool allows only 'and', 'or', 'xor', 'min' and 'max'";
      if (row[i] == 'o') reason = "complex numbers have no order";
      if (row[i] == 'w') reason = "'and', 'or' and 'xor' need bool or integers";
      if (row[i] == 's') reason = "f4e2m1 is a storage format and cannot be reduced";
      if (reason.empty()) {
        EXPECT_TRUE(status.ok()) << status;
        continue;
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(Message(status), fmt::format("{} of {} is refused: {}", Name(op), name, reason));
    }
  }
}

}  // namespace
}  // namespace meshift
