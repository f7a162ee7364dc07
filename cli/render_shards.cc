#include "cli/render_shards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/ranges_text.h"
#include "base/text_table.h"
#include "cli/text.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"

namespace meshift::cli {
namespace {

constexpr int kMaxGridWidth = 160;  // characters; a wider grid is left out
constexpr size_t kMaxCell = 40;     // characters of a cell's list of ranks

// Begin and end of a part of one tensor dim.
using Interval = std::pair<int64_t, int64_t>;

std::string IntervalText(const Interval& interval) {
  return fmt::format("[{}:{}]", interval.first, interval.second);
}

// The row and column of a box. The only row of a 1-D tensor is {0, 0}.
std::pair<Interval, Interval> CellOf(const Box& box) {
  const auto interval = [&](size_t t) {
    return Interval{box.offset[t], box.offset[t] + box.size[t]};
  };
  if (box.size.size() == 1) return {{0, 0}, interval(0)};
  return {interval(0), interval(1)};
}

// The ranks with empty boxes: "# hold nothing: ranks 3,7".
std::string EmptyText(std::vector<int64_t> ranks) {
  if (ranks.empty()) return "";
  std::sort(ranks.begin(), ranks.end());
  return fmt::format("# hold nothing: ranks {}\n", RangesText(ranks));
}

std::string CellText(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = RangesText(ranks);
  if (text.size() <= kMaxCell) return text;
  const size_t cut = text.rfind(',', kMaxCell - 14);  // leaves room for ",.. (12 ranks)"
  return fmt::format("{},.. ({} ranks)", text.substr(0, cut), ranks.size());
}

std::string PartialText(const Sharding& sharding) {
  std::string dims;
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    const Placement& placement = sharding.placement(d);
    if (!placement.IsPartial()) continue;
    dims += fmt::format("{}{} over {}", dims.empty() ? "" : ", ", Name(placement.op()),
                        sharding.mesh().dim(d).name);
  }
  if (dims.empty()) return "";
  return fmt::format("# partial: {}; each rank holds a contribution, not the value\n", dims);
}

std::string RanksTable(const Sharding& sharding, int64_t first, int64_t count) {
  constexpr auto kLeft = TextTable::Align::kLeft;
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"rank", kLeft},
                   {"coordinate", kLeft},
                   {"box", kLeft},
                   {"local shape", kLeft},
                   {"bytes", kRight}});
  const DeviceMesh& mesh = sharding.mesh();
  for (int64_t position = first; position < first + count; ++position) {
    const Coordinate coordinate = mesh.CoordinateAt(position);
    const Box box = sharding.BoxAt(coordinate);
    std::string coordinate_text;
    for (int d = 0; d < mesh.NumDims(); ++d) {
      coordinate_text += fmt::format("{}{}={}", d == 0 ? "" : ",", mesh.dim(d).name, coordinate[d]);
    }
    table.AddRow({fmt::format("{}", mesh.RankAt(position)), coordinate_text, box.ToString(),
                  fmt::format("[{}]", fmt::join(box.size.begin(), box.size.end(), ",")),
                  fmt::format("{}", Bytes(sharding.dtype(), box.NumElements()))});
  }
  return table.ToString();
}

}  // namespace

std::string RenderGrid(const Sharding& sharding, int64_t first, int64_t count, int max_width) {
  if (sharding.shape().empty() || sharding.shape().size() > 2) return "";
  const DeviceMesh& mesh = sharding.mesh();
  std::map<std::pair<Interval, Interval>, std::vector<int64_t>> cells;
  std::map<Interval, size_t> columns;  // column to width
  std::map<Interval, bool> rows;
  std::vector<int64_t> empty;
  for (int64_t position = first; position < first + count; ++position) {
    const Box box = sharding.BoxAt(mesh.CoordinateAt(position));
    if (box.IsEmpty()) {
      empty.push_back(mesh.RankAt(position));
      continue;
    }
    const auto cell = CellOf(box);
    cells[cell].push_back(mesh.RankAt(position));
    rows[cell.first] = true;
    columns[cell.second] = 0;
  }
  if (cells.empty()) return EmptyText(std::move(empty));

  std::map<std::pair<Interval, Interval>, std::string> texts;
  for (auto& [cell, ranks] : cells) texts[cell] = CellText(std::move(ranks));
  size_t margin = 0;
  if (sharding.shape().size() == 2) {
    for (const auto& [row, unused] : rows) margin = std::max(margin, IntervalText(row).size() + 1);
  }
  size_t total = margin + 1;
  for (auto& [column, width] : columns) {
    width = IntervalText(column).size();
    for (const auto& [row, unused] : rows) width = std::max(width, texts[{row, column}].size());
    total += width + 3;
  }
  if (total > static_cast<size_t>(max_width)) return "";

  std::string header(margin, ' ');
  std::string rule = std::string(margin, ' ') + "+";
  for (const auto& [column, width] : columns) {
    header += fmt::format("  {:<{}} ", IntervalText(column), width);
    rule += std::string(width + 2, '-') + "+";
  }
  header.erase(header.find_last_not_of(' ') + 1);
  std::string grid = header + "\n" + rule + "\n";
  for (const auto& [row, unused] : rows) {
    grid += fmt::format("{:<{}}|", margin == 0 ? "" : IntervalText(row), margin);
    for (const auto& [column, width] : columns) {
      grid += fmt::format(" {:<{}} |", texts[{row, column}], width);
    }
    grid += "\n" + rule + "\n";
  }
  return grid + EmptyText(std::move(empty));
}

std::string RenderShards(const Sharding& sharding, int64_t first, int64_t count) {
  const int64_t ranks = sharding.mesh().NumRanks();
  std::string text =
      fmt::format("# meshift shards: {} on {} ({}) as {}\n", sharding.tensor().ToString(),
                  sharding.mesh().ToString(), CountText(ranks, "rank"), sharding.PlacementsText());
  text += PartialText(sharding);
  if (count < ranks) {
    text += fmt::format("# listed: {} from position {} on\n", CountText(count, "rank"), first);
  }
  text += RenderGrid(sharding, first, count, kMaxGridWidth);
  return text + RanksTable(sharding, first, count);
}

}  // namespace meshift::cli
