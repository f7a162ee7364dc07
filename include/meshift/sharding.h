// Sharding: one tensor (dtype, global shape) on one mesh, with a placement per mesh dim.
//
//   MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh, DeviceMesh::Parse("dp=2,tp=4"));
//   MESHIFT_ASSIGN_OR_RETURN(Sharding s, Sharding::Parse("bf16[10,8]", mesh, "S(0),S(1)"));
//   s.LocalBox(5);                       // rank 5 = (1, 1): {{5, 2}, {5, 2}}
//   s.CutsOf(0);                         // {0}: mesh dim 0 cuts tensor dim 0
//   s.PlacementsText();                  // "S(0),S(1)"
//
// When several mesh dims cut one tensor dim, CutsOf() has the shard order, outermost first. The
// default is mesh order; another order is written with positions: "S(0)[1],S(0)[0]". Cuts are those
// of torch.chunk: pieces of ceil(D / n), the last ones short or empty; nested cuts divide a piece
// again. The offset of an empty piece is the end of the interval that is cut. A ragged cut
// ("S(0){3,0,5}") is always outermost; its empty pieces begin where the next piece does. One whose
// sizes are those of the plain cut is stored as "S(0)". Where a mesh dim is At(3,7), the ranks at
// its other coordinates hold nothing.
//
// Sizes and offsets are in elements. Create and Parse refuse an impossible sharding with
// INVALID_ARGUMENT. A Sharding holds no data. It is an immutable value, whose copies share one
// description. Safe for concurrent use.
#ifndef MESHIFT_SHARDING_H_
#define MESHIFT_SHARDING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// A box of global indices: for each tensor dim a half-open interval [offset, offset + size).
//
//   Box box{{4, 0}, {2, 8}};            // rows 4..5, columns 0..7
//   box.NumElements();                  // 16
//   Intersect(box, {{5, 4}, {9, 2}});   // {{5, 4}, {1, 2}}
//
// A local tensor is the row-major (C order) content of its rank's box.

using Shape = absl::InlinedVector<int64_t, 5>;

// The product of the sizes; 1 for a rank-0 shape.
int64_t NumElements(absl::Span<const int64_t> shape);

struct Box {
  Shape offset;
  Shape size;

  int64_t NumElements() const { return meshift::NumElements(size); }
  bool IsEmpty() const { return NumElements() == 0; }
  // "[4:6, 0:8]"
  std::string ToString() const;
  friend bool operator==(const Box&, const Box&) = default;
};

// The intersection; if it is empty, a box with a size of 0. REQUIRES: equal numbers of dims, or one
// of them is empty.
Box Intersect(const Box& a, const Box& b);
int64_t CommonElements(const Box& a, const Box& b);  // of Intersect(a, b); REQUIRES as there
// Whether every element of `inner` is in `outer` (true if `inner` is empty). REQUIRES: equal
// numbers of dims, or `inner` is empty.
bool Contains(const Box& outer, const Box& inner);
// Whether the elements of `inner` are contiguous and in order in the row-major content of `outer`;
// true for fewer than two elements. REQUIRES: Contains(outer, inner).
bool IsContiguousIn(const Box& inner, const Box& outer);
// The position of inner's first element in the row-major content of outer.
// REQUIRES: Contains(outer, inner) and !inner.IsEmpty().
int64_t OffsetIn(const Box& inner, const Box& outer);

// A dtype with a global shape: "bf16[8192,8192]"; "f32[]" has no dims.
//
//   MESHIFT_ASSIGN_OR_RETURN(TensorType type, TensorType::Parse("bf16[8192,8192]"));
//   Bytes(type.dtype, NumElements(type.shape));  // 134217728

inline constexpr int kMaxTensorRank = 16;

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  // At most kMaxTensorRank dims, each >= 0, at most 2^63 - 1 elements and bytes in all. The last
  // two limits also hold without the dims of size 0, so that no product of sizes overflows.
  // INVALID_ARGUMENT otherwise; the message names the value.
  static absl::StatusOr<TensorType> Create(DType dtype, Shape shape);
  // Reads the format of ToString; spaces are allowed between tokens. INVALID_ARGUMENT: another
  // format, or as Create.
  static absl::StatusOr<TensorType> Parse(std::string_view text);
  std::string ToString() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// The mesh dims that cut one tensor dim, outermost first.
using Cuts = absl::InlinedVector<int, 4>;

class Sharding {
 public:
  // `placements`: one per mesh dim; negative tensor dims count from the end. `cuts`: per tensor dim
  // the mesh dims that cut it, outermost first; an empty list, or empty `cuts`, means mesh order
  // with a ragged cut first. INVALID_ARGUMENT, which names the value and the rule: an error of
  // TensorType::Create; the number of placements differs from the mesh dims; a tensor dim is out of
  // range; an invalid shard order, or a wrong number of them; mixed partial ops (only sum and avg
  // may be mixed); an op that the dtype does not have; two ragged cuts of one tensor dim; a
  // negative ragged size, or sizes of a wrong number or sum; an At without coordinates, or with one
  // out of range or twice; f4e2m1 with rows that are not of whole
  // bytes, or cut inside a byte.
  static absl::StatusOr<Sharding> Create(DeviceMesh mesh, TensorType tensor,
                                         std::vector<Placement> placements,
                                         std::vector<Cuts> cuts = {});
  // `placements`: "P,S(0)[1],R" or DTensor's "(Partial, Shard(0), Replicate)", "Partial(max)",
  // also without separators "S(0)R"; see placement/notation.h.
  static absl::StatusOr<Sharding> Parse(std::string_view tensor, const DeviceMesh& mesh,
                                        std::string_view placements);
  static absl::StatusOr<Sharding> Parse(TensorType tensor, const DeviceMesh& mesh,
                                        std::string_view placements);
  // Reads the format of ToString.
  static absl::StatusOr<Sharding> Parse(std::string_view text);
  // The same tensor and mesh with other placements. Errors as those of Parse and Create.
  absl::StatusOr<Sharding> WithPlacements(std::string_view placements) const;
  absl::StatusOr<Sharding> WithPlacements(std::vector<Placement> placements,
                                          std::vector<Cuts> cuts = {}) const;
  // The same placements of a tensor of another shape, which must have every tensor dim that is cut.
  // Ragged sizes must add up to the new size. Errors as those of Create.
  absl::StatusOr<Sharding> WithShape(Shape shape) const;
  // The same tensor and placements on another mesh with the same number of dims. Errors as those of
  // Create.
  absl::StatusOr<Sharding> OnMesh(const DeviceMesh& mesh) const;
  // The same placements of a tensor of another dtype. Errors as those of Create.
  absl::StatusOr<Sharding> WithDType(DType dtype) const;

  const DeviceMesh& mesh() const { return rep_->mesh; }
  const TensorType& tensor() const { return rep_->tensor; }
  DType dtype() const { return rep_->tensor.dtype; }
  const Shape& shape() const { return rep_->tensor.shape; }
  absl::Span<const Placement> placements() const { return rep_->placements; }
  const Placement& placement(int mesh_dim) const { return rep_->placements[mesh_dim]; }
  // REQUIRES: 0 <= tensor_dim < shape().size()
  absl::Span<const int> CutsOf(int tensor_dim) const { return rep_->cuts[tensor_dim]; }
  bool HasPartial() const;
  bool HasAt() const;

  // The box that `rank` holds. For a rank outside the mesh: a box of one dim with size 0. For a
  // rank that an At leaves out: a box whose first size is 0 (of one dim, if the tensor has none).
  Box LocalBox(int64_t rank) const;
  // REQUIRES: one index per mesh dim, each below the dim's size.
  Box BoxAt(absl::Span<const int64_t> coordinate) const;
  // Whether no At leaves this coordinate out. REQUIRES: as BoxAt.
  bool HoldsAt(absl::Span<const int64_t> coordinate) const;
  // The number of elements of the largest local box. O(mesh dims + ragged sizes).
  int64_t MaxLocalElements() const;

  // "S(0)[1],S(0)[0],R"; positions only for tensor dims without the default shard order.
  std::string PlacementsText() const;
  void AppendPlacementsTo(std::string* text) const;
  // "bf16[10,8] on dp=2,tp=4 as S(0),S(1)"
  std::string ToString() const;

  friend bool operator==(const Sharding& a, const Sharding& b) {
    return a.rep_ == b.rep_ || (a.rep_->hash == b.rep_->hash && IsEqual(*a.rep_, *b.rep_));
  }
  template <typename H>
  friend H AbslHashValue(H h, const Sharding& s) {
    return H::combine(std::move(h), s.rep_->hash);
  }

 private:
  struct Rep {
    size_t hash;  // of mesh, tensor, placements and cuts: every redistribution looks up shardings
    DeviceMesh mesh;
    TensorType tensor;
    std::vector<Placement> placements;
    std::vector<Cuts> cuts;
    // Per tensor dim: where the pieces of its ragged cut begin, and the end of the last one, or
    // empty. Empty if no cut is ragged.
    std::vector<std::vector<int64_t>> begins;
  };
  static bool IsEqual(const Rep& a, const Rep& b);
  explicit Sharding(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}

  std::shared_ptr<const Rep> rep_;
};

}  // namespace meshift

#endif  // MESHIFT_SHARDING_H_
