// A device mesh: an n-D grid of ranks with named dims.
//
//   MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh, DeviceMesh::Create({{"ddp", 8}, {"fsdp", 5}}));
//   mesh.NumRanks();                    // 40
//   mesh.CoordinateOf(7);               // {1, 2}: row-major, the last dim varies fastest
//   mesh.GroupOf({0}, 7);               // {2, 7, 12, ..., 37}: ranks that differ in ddp only
//   mesh.ToString();                    // "ddp=8,fsdp=5"
//
// Ranks that are not 0..n-1 in row-major order are listed: "a=2,b=2@4-5,0-1". A position is the
// row-major index of a coordinate: 0 .. NumRanks()-1. On a row-major mesh, the rank at position p
// is p.
//
// Ranks are stored as runs of consecutive numbers: a row-major mesh of any size takes O(1) memory,
// listed ranks O(runs), and a lookup O(log runs).
//
// A DeviceMesh is an immutable value; copies share their rank list. Safe for concurrent use. It
// only describes ranks: it does not check that they exist.
#ifndef MESHIFT_DEVICE_MESH_H_
#define MESHIFT_DEVICE_MESH_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// An immutable, shared list of ascending ranks: the members of a large group share one list.
//
//   const RankList ranks = mesh.GroupListOf({0}, 7);   // equal for every member
//   ranks.size();                                      // 8
//   absl::Span<const int64_t> span = ranks;
//
// Copies are cheap. Safe for concurrent use.
class RankList {
 public:
  RankList() = default;  // empty
  explicit RankList(std::vector<int64_t> ranks)
      : rep_(std::make_shared<const Rep>(Rep{absl::HashOf(ranks), std::move(ranks)})) {}
  RankList(std::initializer_list<int64_t> ranks) : RankList(std::vector<int64_t>(ranks)) {}

  size_t size() const { return rep_ == nullptr ? 0 : rep_->ranks.size(); }
  bool empty() const { return size() == 0; }
  int64_t operator[](size_t i) const { return rep_->ranks[i]; }  // REQUIRES: i < size()
  const int64_t* begin() const { return rep_ == nullptr ? nullptr : rep_->ranks.data(); }
  const int64_t* end() const { return begin() + size(); }
  // Valid while any copy of this list exists.
  operator absl::Span<const int64_t>() const { return {begin(), size()}; }  // NOLINT: a view

  // Whether both share one list; O(1).
  bool IsSameAs(const RankList& other) const { return rep_ == other.rep_; }
  friend bool operator==(const RankList& a, const RankList& b) {
    if (a.rep_ == b.rep_) return true;
    return absl::Span<const int64_t>(a) == absl::Span<const int64_t>(b);
  }
  template <typename H>
  friend H AbslHashValue(H h, const RankList& list) {
    return H::combine(std::move(h), list.rep_ == nullptr ? 0 : list.rep_->hash);
  }

 private:
  struct Rep {
    size_t hash;
    std::vector<int64_t> ranks;
  };
  std::shared_ptr<const Rep> rep_;  // null: empty
};

// One index per mesh dim.
using Coordinate = absl::InlinedVector<int64_t, 6>;

class DeviceMesh {
 public:
  struct Dim {
    std::string name;
    int64_t size = 0;
    friend bool operator==(const Dim&, const Dim&) = default;
  };

  // A mesh of 1 to 256 dims, each of size >= 1 with a unique name ([A-Za-z_][A-Za-z0-9_]*, at most
  // 100 bytes). `ranks`: the rank at each position, row-major; empty = 0..n-1. Ranks are distinct,
  // >= 0 and below 2^31; at most 2^31 - 1 of them. An explicit list 0..n-1 equals the empty one.
  // INVALID_ARGUMENT otherwise; the message names the value.
  static absl::StatusOr<DeviceMesh> Create(std::vector<Dim> dims, std::vector<int64_t> ranks = {});
  // Reads the format of ToString, with single ranks or ranges ("4,5,0-1") and spaces around names
  // and numbers. "4x2" means "d0=4,d1=2". Ranges are not expanded: the cost depends on the text's
  // length only. Errors as those of Create.
  static absl::StatusOr<DeviceMesh> Parse(std::string_view text);

  int NumDims() const;
  const Dim& dim(int d) const;  // REQUIRES: 0 <= d < NumDims()
  absl::Span<const Dim> dims() const;
  int64_t NumRanks() const;
  int64_t MaxRank() const;      // the largest
  int64_t MemoryBytes() const;  // approximate, without cached group lists; copies share it
  bool IsRowMajor() const;      // ranks are 0..n-1 in order
  std::optional<int> FindDim(std::string_view name) const;

  int64_t RankAt(int64_t position) const;                 // REQUIRES: 0 <= position < NumRanks()
  std::optional<int64_t> PositionOf(int64_t rank) const;  // nullopt: not in the mesh
  std::optional<Coordinate> CoordinateOf(int64_t rank) const;
  Coordinate CoordinateAt(int64_t position) const;  // REQUIRES: 0 <= position < NumRanks()
  // REQUIRES, here and in the next: one index per dim, each at least 0 and below the dim's size.
  int64_t PositionAt(absl::Span<const int64_t> coordinate) const;
  int64_t RankAt(absl::Span<const int64_t> coordinate) const {
    return RankAt(PositionAt(coordinate));
  }
  // The ranks in position order. Makes a list of all ranks, also for a row-major mesh.
  std::vector<int64_t> Ranks() const;

  // The group of `rank` over mesh dims `mesh_dims` (indices, ascending): all ranks that differ from
  // it only in those dims, in coordinate order (row-major over `mesh_dims`).
  // REQUIRES: rank is in the mesh.
  std::vector<int64_t> GroupOf(absl::Span<const int> mesh_dims, int64_t rank) const;
  // The same in ascending order. The members of a group of 32 ranks or more share one cached list:
  // O(1) after the first call, while the cache holds it (about 4 million ranks). Smaller lists are
  // made per call.
  RankList GroupListOf(absl::Span<const int> mesh_dims, int64_t rank) const;
  // All groups over `mesh_dims`, in order of the coordinates of the other dims.
  std::vector<std::vector<int64_t>> Groups(absl::Span<const int> mesh_dims) const;

  // In the calls below, `names` are dims of this mesh, at least one, in mesh order.
  // INVALID_ARGUMENT otherwise, and if another argument is invalid, or Create refuses the result.

  // The sub-mesh that keeps the dims `names` and holds `rank`.
  absl::StatusOr<DeviceMesh> Slice(absl::Span<const std::string> names, int64_t rank) const;
  // A mesh in which the dims `names` (adjacent or not) are merged into one dim `name` (default: the
  // names joined with '_') at the position of the first.
  absl::StatusOr<DeviceMesh> Flatten(absl::Span<const std::string> names,
                                     std::string_view name = "") const;
  // A mesh in which dim `name` is replaced by `dims`, whose sizes multiply to its size.
  absl::StatusOr<DeviceMesh> Unflatten(std::string_view name, std::vector<Dim> dims) const;
  // Stacks the meshes along a new outermost dim. All must have equal dims and no common rank.
  static absl::StatusOr<DeviceMesh> Concatenate(std::string_view name,
                                                absl::Span<const DeviceMesh> meshes);

  std::string ToString() const;

  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);
  template <typename H>
  friend H AbslHashValue(H h, const DeviceMesh& mesh) {
    return H::combine(std::move(h), mesh.Hash());
  }

 private:
  struct Rep;
  size_t Hash() const;
  explicit DeviceMesh(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<const Rep> rep_;
};

}  // namespace meshift

#endif  // MESHIFT_DEVICE_MESH_H_
