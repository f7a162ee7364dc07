#include "meshift/device_mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "fmt/format.h"
#include "mesh/group_lists.h"
#include "mesh/name.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr int64_t kMaxRank = INT32_MAX;   // ranks are below 2^31
constexpr int64_t kMaxRanks = INT32_MAX;  // limit on their number
constexpr size_t kMaxDims = 256;          // with dims of size 1; at most 30 others fit kMaxRanks

// Ranks rank .. rank + size - 1 are at positions position .. position + size - 1.
struct Run {
  int64_t rank = 0;
  int64_t position = 0;
  int64_t size = 0;

  friend bool operator==(const Run&, const Run&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Run& run) {
    return H::combine(std::move(h), run.rank, run.size);
  }
};
// Ordered by position, without gaps, and maximal: equal rank lists have equal runs.
using Runs = std::vector<Run>;

int64_t Count(const Runs& runs) {
  return runs.empty() ? 0 : runs.back().position + runs.back().size;
}

void Append(int64_t rank, int64_t size, Runs* runs) {
  if (!runs->empty() && runs->back().rank + runs->back().size == rank) {
    runs->back().size += size;
  } else {
    runs->push_back({.rank = rank, .position = Count(*runs), .size = size});
  }
}

// Checks the dims, and returns the number of positions.
absl::StatusOr<int64_t> CheckDims(absl::Span<const DeviceMesh::Dim> dims) {
  if (dims.empty()) return InvalidArgument("a mesh needs at least one dim");
  if (dims.size() > kMaxDims) {
    return InvalidArgument("a mesh has {} dims; at most {} are allowed", dims.size(), kMaxDims);
  }
  int64_t product = 1;
  std::set<std::string_view> names;
  for (const auto& [name, size] : dims) {
    MESHIFT_RETURN_IF_ERROR(CheckName("mesh dim name", name));
    if (!names.insert(name).second) {
      return InvalidArgument("mesh dim '{}' is named twice", name);
    }
    if (size < 1)
      return InvalidArgument("mesh dim '{}' has size {}; sizes are 1 or more", name, size);
    if (!CheckedMul(product, size, &product) || product > kMaxRanks) {
      return InvalidArgument("mesh dim '{}' of size {} makes the mesh larger than {} ranks", name,
                             size, kMaxRanks);
    }
  }
  return product;
}

absl::Status CheckRank(int64_t rank) {
  if (rank >= 0 && rank <= kMaxRank) return absl::OkStatus();
  return InvalidArgument("rank {} is not in 0..{}", rank, kMaxRank);
}

std::string_view Strip(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> SplitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t comma = text.find(','); comma != text.npos; comma = text.find(',')) {
    parts.push_back(Strip(text.substr(0, comma)));
    text.remove_prefix(comma + 1);
  }
  parts.push_back(Strip(text));
  return parts;
}

// Parses all of `text` as a non-negative decimal number.
std::optional<int64_t> ParseNumber(std::string_view text) {
  text = Strip(text);
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stop != end || text[0] == '-') return std::nullopt;
  return number;
}

// Parses "4x2": sizes without names; the names become d0, d1, ... Empty if `text` has another form.
std::vector<DeviceMesh::Dim> ParseSizes(std::string_view text) {
  std::vector<DeviceMesh::Dim> dims;
  for (bool more = true; more;) {
    const size_t x = text.find('x');
    const std::optional<int64_t> size = ParseNumber(text.substr(0, x));
    if (!size) return {};
    dims.push_back({"d" + std::to_string(dims.size()), *size});
    more = x != text.npos;
    if (more) text.remove_prefix(x + 1);
  }
  return dims;
}

absl::StatusOr<std::vector<DeviceMesh::Dim>> ParseDims(std::string_view text) {
  std::vector<DeviceMesh::Dim> dims = ParseSizes(text);
  if (!dims.empty()) return dims;
  for (std::string_view part : SplitAtCommas(text)) {
    const size_t equals = part.find('=');
    if (equals == part.npos) return InvalidArgument("mesh dim '{}' is not name=size", part);
    const std::string_view name = Strip(part.substr(0, equals));
    const std::optional<int64_t> size = ParseNumber(part.substr(equals + 1));
    if (!size) {
      return InvalidArgument("size '{}' of mesh dim '{}' is not a number in 1..{}",
                             Strip(part.substr(equals + 1)), name, kMaxRanks);
    }
    dims.push_back({std::string(name), *size});
  }
  return dims;
}

absl::StatusOr<Runs> ParseRanks(std::string_view text) {
  Runs runs;
  for (std::string_view part : SplitAtCommas(text)) {
    const size_t dash = part.find('-');
    const std::optional<int64_t> first = ParseNumber(part.substr(0, dash));
    const std::optional<int64_t> last =
        dash == part.npos ? first : ParseNumber(part.substr(dash + 1));
    if (!first || !last) {
      return InvalidArgument("'{}' is not a rank or a range of ranks such as 4-7", part);
    }
    if (*first > *last) return InvalidArgument("rank range '{}' is descending", part);
    MESHIFT_RETURN_IF_ERROR(CheckRank(*last));
    Append(*first, *last - *first + 1, &runs);
  }
  return runs;
}

// `runs` by ascending rank; an error if a rank appears twice.
absl::StatusOr<Runs> SortByRank(Runs runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.rank < b.rank; });
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].rank < runs[i - 1].rank + runs[i - 1].size) {
      return InvalidArgument("rank {} appears twice in the mesh", runs[i].rank);
    }
  }
  return runs;
}

}  // namespace

struct DeviceMesh::Rep {
  std::vector<Dim> dims;
  std::vector<int64_t> strides;  // of each dim, in positions
  int64_t num_ranks = 0;
  Runs runs;     // the ranks by position
  Runs by_rank;  // the same by ascending rank
  size_t hash = 0;
  std::string dims_text;  // "a=2,b=2": cached: every plan prints its meshes
  mutable GroupLists lists;

  // `runs`: empty = row-major.
  static absl::StatusOr<DeviceMesh> Make(std::vector<Dim> dims, Runs runs) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t num_ranks, CheckDims(dims));
    if (runs.empty()) Append(0, num_ranks, &runs);
    if (Count(runs) != num_ranks) {
      return InvalidArgument("a mesh of {} positions lists {} ranks", num_ranks, Count(runs));
    }
    MESHIFT_ASSIGN_OR_RETURN(Runs by_rank, SortByRank(runs));

    auto rep = std::make_shared<Rep>();
    rep->strides.resize(dims.size());
    int64_t stride = 1;
    for (size_t d = dims.size(); d-- > 0; stride *= dims[d].size) rep->strides[d] = stride;
    size_t hash = absl::HashOf(runs);
    for (const Dim& dim : dims) {
      hash = absl::HashOf(hash, dim.name, dim.size);
      absl::StrAppend(&rep->dims_text, rep->dims_text.empty() ? "" : ",", dim.name, "=", dim.size);
    }
    rep->hash = hash;
    rep->dims = std::move(dims);
    rep->num_ranks = num_ranks;
    rep->runs = std::move(runs);
    rep->by_rank = std::move(by_rank);
    return DeviceMesh(std::move(rep));
  }

  // The run that contains `position`.
  const Run& RunAt(int64_t position) const {
    assert(0 <= position && position < num_ranks);
    return *std::prev(
        std::upper_bound(runs.begin(), runs.end(), position,
                         [](int64_t position, const Run& run) { return position < run.position; }));
  }

  int64_t RankAt(int64_t position) const {
    const Run& run = RunAt(position);
    return run.rank + (position - run.position);
  }

  std::optional<int64_t> PositionOf(int64_t rank) const {
    const auto next =
        std::upper_bound(by_rank.begin(), by_rank.end(), rank,
                         [](int64_t rank, const Run& run) { return rank < run.rank; });
    if (next == by_rank.begin()) return std::nullopt;
    const Run& run = *std::prev(next);
    const int64_t offset = rank - run.rank;
    if (offset >= run.size) return std::nullopt;
    return run.position + offset;
  }

  int64_t IndexAt(int64_t position, int d) const { return position / strides[d] % dims[d].size; }

  // `position` with the coordinates of `mesh_dims` set to 0.
  int64_t BaseOf(int64_t position, absl::Span<const int> mesh_dims) const {
    int64_t base = position;
    for (int d : mesh_dims) base -= IndexAt(position, d) * strides[d];
    return base;
  }

  // The positions reached from `base` when the coordinates of `mesh_dims` vary, the last one
  // fastest.
  std::vector<int64_t> Positions(int64_t base, absl::Span<const int> mesh_dims) const {
    std::vector<int64_t> positions = {base};
    for (int d : mesh_dims) {
      if (dims[d].size == 1) continue;
      std::vector<int64_t> wider;
      wider.reserve(positions.size() * dims[d].size);
      for (int64_t position : positions) {
        for (int64_t i = 0; i < dims[d].size; ++i) wider.push_back(position + i * strides[d]);
      }
      positions = std::move(wider);
    }
    return positions;
  }

  // The ranks at Positions(base, mesh_dims), as runs. Innermost dims that form a block of
  // consecutive positions are handled as one block.
  Runs RunsAt(int64_t base, absl::Span<const int> mesh_dims) const {
    int64_t block = 1;
    while (!mesh_dims.empty() &&
           (dims[mesh_dims.back()].size == 1 || strides[mesh_dims.back()] == block)) {
      block *= dims[mesh_dims.back()].size;
      mesh_dims.remove_suffix(1);
    }
    Runs result;
    for (int64_t start : Positions(base, mesh_dims)) {
      for (int64_t at = start; at < start + block;) {
        const Run& run = RunAt(at);
        const int64_t end = std::min(start + block, run.position + run.size);
        Append(run.rank + (at - run.position), end - at, &result);
        at = end;
      }
    }
    return result;
  }

  std::vector<int> OtherDims(absl::Span<const int> mesh_dims) const {
    std::vector<int> others;
    for (int d = 0; d < static_cast<int>(dims.size()); ++d) {
      if (std::find(mesh_dims.begin(), mesh_dims.end(), d) == mesh_dims.end()) others.push_back(d);
    }
    return others;
  }

  std::optional<int> FindDim(std::string_view name) const {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].name == name) return static_cast<int>(d);
    }
    return std::nullopt;
  }

  absl::StatusOr<int> DimNamed(std::string_view name) const {
    if (const std::optional<int> d = FindDim(name)) return *d;
    return InvalidArgument("the mesh has no dim '{}'", name);
  }

  // The indices of the dims `names`: at least one, ascending.
  absl::StatusOr<std::vector<int>> DimsNamed(absl::Span<const std::string> names) const {
    if (names.empty()) return InvalidArgument("no mesh dim is given; at least one is needed");
    std::vector<int> result;
    for (const std::string& name : names) {
      MESHIFT_ASSIGN_OR_RETURN(const int d, DimNamed(name));
      if (!result.empty() && d <= result.back()) {
        return InvalidArgument(
            "dim '{}' is given after dim '{}'; dims must be in mesh order, each once", name,
            dims[result.back()].name);
      }
      result.push_back(d);
    }
    return result;
  }
};

absl::StatusOr<DeviceMesh> DeviceMesh::Create(std::vector<Dim> dims, std::vector<int64_t> ranks) {
  Runs runs;
  for (int64_t rank : ranks) {
    MESHIFT_RETURN_IF_ERROR(CheckRank(rank));
    Append(rank, 1, &runs);
  }
  return Rep::Make(std::move(dims), std::move(runs));
}

absl::StatusOr<DeviceMesh> DeviceMesh::Parse(std::string_view text) {
  const auto parse = [text]() -> absl::StatusOr<DeviceMesh> {
    const size_t at = text.find('@');
    MESHIFT_ASSIGN_OR_RETURN(std::vector<Dim> dims, ParseDims(text.substr(0, at)));
    Runs runs;
    if (at != text.npos) {
      MESHIFT_ASSIGN_OR_RETURN(runs, ParseRanks(text.substr(at + 1)));
    }
    return Rep::Make(std::move(dims), std::move(runs));
  };
  absl::StatusOr<DeviceMesh> mesh = parse();
  if (!mesh.ok()) return Annotate(mesh.status(), fmt::format("mesh '{}'", text));
  return mesh;
}

int DeviceMesh::NumDims() const { return static_cast<int>(rep_->dims.size()); }
const DeviceMesh::Dim& DeviceMesh::dim(int d) const { return rep_->dims[d]; }
absl::Span<const DeviceMesh::Dim> DeviceMesh::dims() const { return rep_->dims; }
int64_t DeviceMesh::NumRanks() const { return rep_->num_ranks; }
int64_t DeviceMesh::MaxRank() const {
  const Run& last = rep_->by_rank.back();
  return last.rank + last.size - 1;
}
int64_t DeviceMesh::MemoryBytes() const {
  return static_cast<int64_t>(sizeof(Rep) +
                              rep_->dims.capacity() * (sizeof(Dim) + sizeof(int64_t)) +
                              (rep_->runs.capacity() + rep_->by_rank.capacity()) * sizeof(Run) +
                              rep_->dims_text.capacity());
}
bool DeviceMesh::IsRowMajor() const { return rep_->runs.size() == 1 && rep_->runs[0].rank == 0; }
std::optional<int> DeviceMesh::FindDim(std::string_view name) const { return rep_->FindDim(name); }

int64_t DeviceMesh::RankAt(int64_t position) const { return rep_->RankAt(position); }

std::optional<int64_t> DeviceMesh::PositionOf(int64_t rank) const { return rep_->PositionOf(rank); }

std::optional<Coordinate> DeviceMesh::CoordinateOf(int64_t rank) const {
  const std::optional<int64_t> position = PositionOf(rank);
  if (!position) return std::nullopt;
  return CoordinateAt(*position);
}

Coordinate DeviceMesh::CoordinateAt(int64_t position) const {
  assert(0 <= position && position < NumRanks());
  Coordinate coordinate(NumDims());
  for (int d = 0; d < NumDims(); ++d) coordinate[d] = rep_->IndexAt(position, d);
  return coordinate;
}

int64_t DeviceMesh::PositionAt(absl::Span<const int64_t> coordinate) const {
  assert(coordinate.size() == rep_->dims.size());
  int64_t position = 0;
  for (int d = 0; d < NumDims(); ++d) {
    assert(0 <= coordinate[d] && coordinate[d] < dim(d).size);
    position += coordinate[d] * rep_->strides[d];
  }
  return position;
}

std::vector<int64_t> DeviceMesh::Ranks() const {
  std::vector<int64_t> ranks;
  ranks.reserve(NumRanks());
  for (const Run& run : rep_->runs) {
    for (int64_t i = 0; i < run.size; ++i) ranks.push_back(run.rank + i);
  }
  return ranks;
}

std::vector<int64_t> DeviceMesh::GroupOf(absl::Span<const int> mesh_dims, int64_t rank) const {
  const std::optional<int64_t> position = PositionOf(rank);
  assert(position.has_value());
  std::vector<int64_t> group = rep_->Positions(rep_->BaseOf(*position, mesh_dims), mesh_dims);
  for (int64_t& member : group) member = RankAt(member);
  return group;
}

RankList DeviceMesh::GroupListOf(absl::Span<const int> mesh_dims, int64_t rank) const {
  const std::optional<int64_t> position = PositionOf(rank);
  assert(position.has_value());
  return rep_->lists.Get(mesh_dims, rep_->BaseOf(*position, mesh_dims), [&] {
    std::vector<int64_t> ranks = GroupOf(mesh_dims, rank);
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  });
}

std::vector<std::vector<int64_t>> DeviceMesh::Groups(absl::Span<const int> mesh_dims) const {
  std::vector<std::vector<int64_t>> groups;
  for (int64_t base : rep_->Positions(0, rep_->OtherDims(mesh_dims))) {
    groups.push_back(GroupOf(mesh_dims, RankAt(base)));
  }
  return groups;
}

absl::StatusOr<DeviceMesh> DeviceMesh::Slice(absl::Span<const std::string> names,
                                             int64_t rank) const {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<int> kept, rep_->DimsNamed(names));
  const std::optional<int64_t> position = PositionOf(rank);
  if (!position) return InvalidArgument("rank {} is not in the mesh", rank);
  std::vector<Dim> dims;
  for (int d : kept) dims.push_back(dim(d));
  return Rep::Make(std::move(dims), rep_->RunsAt(rep_->BaseOf(*position, kept), kept));
}

absl::StatusOr<DeviceMesh> DeviceMesh::Flatten(absl::Span<const std::string> names,
                                               std::string_view name) const {
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<int> flattened, rep_->DimsNamed(names));
  Dim flat = {name.empty() ? fmt::format("{}", fmt::join(names, "_")) : std::string(name), 1};
  for (int d : flattened) flat.size *= dim(d).size;

  std::vector<Dim> dims;
  std::vector<int> order;  // this mesh's dims in the order of the new mesh
  for (int d = 0; d < NumDims(); ++d) {
    if (d == flattened.front()) {
      dims.push_back(flat);
      order.insert(order.end(), flattened.begin(), flattened.end());
    } else if (std::find(flattened.begin(), flattened.end(), d) == flattened.end()) {
      dims.push_back(dim(d));
      order.push_back(d);
    }
  }
  return Rep::Make(std::move(dims), rep_->RunsAt(0, order));
}

absl::StatusOr<DeviceMesh> DeviceMesh::Unflatten(std::string_view name,
                                                 std::vector<Dim> dims) const {
  MESHIFT_ASSIGN_OR_RETURN(const int d, rep_->DimNamed(name));
  MESHIFT_ASSIGN_OR_RETURN(const int64_t product, CheckDims(dims));
  if (product != dim(d).size) {
    return InvalidArgument("sizes that multiply to {} cannot replace mesh dim '{}' of size {}",
                           product, name, dim(d).size);
  }
  std::vector<Dim> result = rep_->dims;
  result.insert(result.erase(result.begin() + d), dims.begin(), dims.end());
  return Rep::Make(std::move(result), rep_->runs);
}

absl::StatusOr<DeviceMesh> DeviceMesh::Concatenate(std::string_view name,
                                                   absl::Span<const DeviceMesh> meshes) {
  if (meshes.empty()) return InvalidArgument("no meshes to concatenate along '{}'", name);
  std::vector<Dim> dims = {{std::string(name), static_cast<int64_t>(meshes.size())}};
  dims.insert(dims.end(), meshes[0].dims().begin(), meshes[0].dims().end());
  Runs runs;
  for (const DeviceMesh& mesh : meshes) {
    if (mesh.dims() != meshes[0].dims()) {
      return InvalidArgument("meshes '{}' and '{}' differ in their dims", meshes[0].ToString(),
                             mesh.ToString());
    }
    for (const Run& run : mesh.rep_->runs) Append(run.rank, run.size, &runs);
  }
  return Rep::Make(std::move(dims), std::move(runs));
}

std::string DeviceMesh::ToString() const {
  std::string text = rep_->dims_text;
  if (IsRowMajor()) return text;
  const char* separator = "@";
  for (const Run& run : rep_->runs) {
    absl::StrAppend(&text, separator, run.rank);
    if (run.size > 1) absl::StrAppend(&text, "-", run.rank + run.size - 1);
    separator = ",";
  }
  return text;
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.rep_ == b.rep_) return true;
  return a.rep_->hash == b.rep_->hash && a.rep_->dims == b.rep_->dims &&
         a.rep_->runs == b.rep_->runs;
}

size_t DeviceMesh::Hash() const { return rep_->hash; }

}  // namespace meshift
