#include "planner/plan/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mesh/layout.h"
#include "meshift/plan.h"

namespace meshift {
namespace {

// Appends "size:stride". Nested blocks come innermost first.
void AppendMode(int64_t size, int64_t stride, std::string* text) {
  fmt::format_to(std::back_inserter(*text), "{}{}:{}", text->empty() ? "" : ",", size, stride);
}

// The group of the first rank as nested blocks, "4:1,2:8". REQUIRES: the mesh's ranks are
// consecutive and ascending.
std::string KeyOfRowMajor(const DeviceMesh& mesh, absl::Span<const int> mesh_dims) {
  Layout::Modes modes(mesh_dims.size());
  int64_t stride = 1;  // of mesh dim d, in ranks
  size_t left = mesh_dims.size();
  for (int d = mesh.NumDims() - 1; d >= 0; --d) {
    const int64_t size = mesh.dim(d).size;
    if (left > 0 && mesh_dims[left - 1] == d) modes[--left] = {size, stride};
    stride *= size;
  }
  std::string text;
  const Layout group = Coalesce(*Layout::Create(std::move(modes)));
  for (int m = group.NumModes() - 1; m >= 0; --m) {
    AppendMode(group.mode(m).size, group.mode(m).stride, &text);
  }
  return text;
}

// The same key for the group at `offsets` (ascending, from 0); nullopt if they are not nested
// blocks.
std::optional<std::string> KeyOfOffsets(std::vector<int64_t> offsets) {
  std::string text;
  while (offsets.size() > 1) {
    const int64_t stride = offsets[1];
    size_t size = 1;
    while (size < offsets.size() && offsets[size] == static_cast<int64_t>(size) * stride) ++size;
    if (offsets.size() % size != 0) return std::nullopt;
    std::vector<int64_t> blocks;
    for (size_t i = 0; i < offsets.size(); i += size) {
      for (size_t j = 0; j < size; ++j) {
        if (offsets[i + j] != offsets[i] + static_cast<int64_t>(j) * stride) return std::nullopt;
      }
      blocks.push_back(offsets[i]);
    }
    AppendMode(static_cast<int64_t>(size), stride, &text);
    offsets = std::move(blocks);
  }
  return text;
}

// "4-7" if the mesh's ranks are these, in order; nullopt if they are not consecutive and ascending,
// or begin at 0.
std::optional<std::string> RangeOf(const DeviceMesh& mesh) {
  std::string text = mesh.ToString();
  const size_t at = text.find('@');
  if (at == std::string::npos || text.find(',', at) != std::string::npos) return std::nullopt;
  return text.substr(at + 1);
}

// The groups of the mesh's ranks, as text; RanksKey() says which ranks these are.
std::string PatternOf(const DeviceMesh& mesh, absl::Span<const int> mesh_dims) {
  if (mesh.IsRowMajor() || RangeOf(mesh)) return KeyOfRowMajor(mesh, mesh_dims);
  std::vector<std::vector<int64_t>> groups = mesh.Groups(mesh_dims);
  for (std::vector<int64_t>& group : groups) std::sort(group.begin(), group.end());
  std::sort(groups.begin(), groups.end());
  // If all groups are one pattern of blocks, shifted, the pattern is the key, as for a row-major
  // mesh: ranks can be tiled by a pattern of blocks in only one way.
  std::vector<int64_t> offsets = groups[0];
  for (int64_t& offset : offsets) offset -= groups[0][0];
  const bool shifted = std::all_of(groups.begin(), groups.end(), [&](const auto& group) {
    for (size_t i = 0; i < group.size(); ++i) {
      if (group[i] - group[0] != offsets[i]) return false;
    }
    return true;
  });
  if (shifted) {
    if (std::optional<std::string> key = KeyOfOffsets(std::move(offsets))) return *key;
  }
  std::string text;
  for (const std::vector<int64_t>& group : groups) {
    fmt::format_to(std::back_inserter(text), "{};", fmt::join(group, ","));
  }
  // A hash, to keep the key short.
  return "listed " + Fingerprint::Of(text).ToString();
}

// "8", "4@4-7": the set of the mesh's ranks, in whatever order.
std::string RanksKey(const DeviceMesh& mesh) {
  if (mesh.IsRowMajor()) return fmt::format("{}", mesh.NumRanks());
  if (const std::optional<std::string> range = RangeOf(mesh)) {
    return fmt::format("{}@{}", mesh.NumRanks(), *range);
  }
  std::vector<int64_t> ranks = mesh.Ranks();
  std::sort(ranks.begin(), ranks.end());
  std::string text = DeviceMesh::Create({{"r", mesh.NumRanks()}}, std::move(ranks))->ToString();
  text.erase(0, 2);
  constexpr size_t kLong = 64;
  return text.size() < kLong ? text : Fingerprint::Of(text).ToString();
}

}  // namespace

std::string PartitionKey(const DeviceMesh& mesh, absl::Span<const int> mesh_dims) {
  return RanksKey(mesh) + " " + PatternOf(mesh, mesh_dims);
}

DimSet AllDims(const DeviceMesh& mesh) {
  DimSet dims(mesh.NumDims());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

}  // namespace meshift
