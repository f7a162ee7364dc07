// The table of docs/dtypes.md agrees with CheckReduce, cell by cell.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

// The cells of a line "| a | b |", without surrounding spaces and backquotes.
std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const size_t begin = cell.find_first_not_of(" `");
    const size_t end = cell.find_last_not_of(" `");
    if (begin != std::string::npos) cells.push_back(cell.substr(begin, end - begin + 1));
  }
  return cells;
}

struct Page {
  std::vector<std::vector<std::string>> table;  // the first on the page
  std::map<std::string, std::string> reasons;   // "1": "bool allows ..."
};

Page ReadPage() {
  Page page;
  std::ifstream file("docs/dtypes.md");
  bool in_table = true;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| ") && in_table) {
      page.table.push_back(Cells(line));
    } else if (!page.table.empty()) {
      in_table = false;
    }
    const size_t dot = line.find(". ");
    if (dot == 1 && line[0] >= '1' && line[0] <= '9') {
      page.reasons[line.substr(0, dot)] = line.substr(dot + 2);
    }
  }
  return page;
}

TEST(DTypesPage, TableAgreesWithCheckReduce) {
  const Page page = ReadPage();
  ASSERT_EQ(page.table.size(), 2 + kNumDTypes);
  ASSERT_EQ(page.table[0].size(), 1 + kNumReduceOps);
  std::set<std::string> used;
  int refused = 0;
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    const std::vector<std::string>& row = page.table[2 + d];
    ASSERT_EQ(row.size(), 1 + kNumReduceOps);
    EXPECT_EQ(row[0], Name(dtype));
    for (int i = 0; i < kNumReduceOps; ++i) {
      const auto op = static_cast<ReduceOp>(i);
      EXPECT_EQ(page.table[0][1 + i], Name(op));
      const std::string& cell = row[1 + i];
      const absl::Status status = CheckReduce(op, dtype);
      SCOPED_TRACE(fmt::format("{} of {}: '{}'", Name(op), Name(dtype), cell));
      if (status.ok()) {
        EXPECT_EQ(cell, "yes");
        continue;
      }
      ++refused;
      ASSERT_EQ(cell.size(), 6);
      ASSERT_EQ(cell, fmt::format("no ({})", cell[4]));
      const auto reason = page.reasons.find(cell.substr(4, 1));
      ASSERT_NE(reason, page.reasons.end());
      used.insert(reason->first);
      EXPECT_EQ(Message(status),
                fmt::format("{} of {} is refused: {}", Name(op), Name(dtype), reason->second));
    }
  }
  EXPECT_EQ(used.size(), page.reasons.size());
  EXPECT_EQ(refused, 3 + 6 * 3 + 8 + 2 * 5);
}

}  // namespace
}  // namespace meshift
