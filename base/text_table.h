// A text table: columns are as wide as their widest cell, two spaces apart. The header is a "#"
// line, so that tools such as grep and gnuplot can read the rows. Spaces precede the "#" if a cell
// of a right-aligned first column is wider than the header.
//
//   TextTable table({{"rank"}, {"bytes", TextTable::Align::kRight}});
//   table.AddRow({"0", "1024"});
//   table.ToString();  // "# rank  bytes\n0        1024\n"
//
// Widths are in bytes, so columns of text that is not ASCII may not align. Cells are not escaped: a
// space or line end in a cell breaks the row. Not thread-safe.
#ifndef MESHIFT_BASE_TEXT_TABLE_H_
#define MESHIFT_BASE_TEXT_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace meshift {

class TextTable {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  struct Column {
    std::string header;
    Align align = Align::kLeft;
  };
  // REQUIRES: at least one column.
  explicit TextTable(std::vector<Column> columns);
  // REQUIRES: as many cells as columns.
  void AddRow(std::vector<std::string> cells);
  // Header and rows, each line ending in "\n", none in a space.
  std::string ToString() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace meshift

#endif  // MESHIFT_BASE_TEXT_TABLE_H_
