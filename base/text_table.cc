#include "base/text_table.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace meshift {

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {
  columns_[0].header = "# " + columns_[0].header;
}

void TextTable::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string TextTable::ToString() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = columns_[c].header.size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line += "  ";
      const std::string& cell = cell_of(c);
      const std::string padding(widths[c] - cell.size(), ' ');
      line += columns_[c].align == Align::kLeft ? cell + padding : padding + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](size_t c) -> const std::string& { return columns_[c].header; });
  for (const auto& row : rows_) add_line([&](size_t c) -> const std::string& { return row[c]; });
  return text;
}

}  // namespace meshift
