// Numbers and tables as a person reads them.
//
//   BytesText(8178893);        // "7.8 MiB"
//   TimeText(12345);           // "12.3 us"
//   RanksText({0, 1, 2, 7});   // "0-2,7"
#ifndef MESHIFT_CLI_TEXT_H_
#define MESHIFT_CLI_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace meshift::cli {

// Exact where it is a whole number of the unit ("4 MiB"), else with one decimal.
std::string BytesText(int64_t bytes);
std::string TimeText(int64_t ns);
// "1 collective", "2 collectives"
std::string CountText(int64_t count, const std::string& noun);
// Runs of two or more as ranges; REQUIRES: ascending.
std::string RanksText(absl::Span<const int64_t> ranks);

// A table whose columns are as wide as their widest cell, two spaces apart. The header is a "#"
// line, so that the rows grep and plot.
class TextTable {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  struct Column {
    std::string header;
    Align align = Align::kLeft;
  };
  explicit TextTable(std::vector<Column> columns);
  // REQUIRES: as many cells as columns.
  void AddRow(std::vector<std::string> cells);
  // Header and rows, each line ending in "\n", none in a space.
  std::string ToString() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_TEXT_H_
