#include "base/text_table.h"

#include <gtest/gtest.h>

namespace meshift {
namespace {

TEST(TextTable, AlignsItsColumns) {
  TextTable table({{"a"}, {"b", TextTable::Align::kRight}, {"c"}});
  table.AddRow({"1", "10", ""});
  table.AddRow({"100", "2", "x"});
  EXPECT_EQ(table.ToString(),
            "# a   b  c\n"
            "1    10\n"
            "100   2  x\n");
}

}  // namespace
}  // namespace meshift
