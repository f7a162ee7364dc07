// UnitDims: writes "only one coordinate holds anything" as an ordinary cut, so that code which
// knows only cuts can plan, lower and prove it.
//
//   // f32[8,4] on a=2,b=2 as At(1),S(0)
//   const UnitDims units = UnitDims::Of({&sharding});
//   units.Expand(sharding);      // f32[1,8,4] on a=2,b=2 as S(0){0,1},S(1)
//   units.Collapse(expanded);    // At(1),S(0) again
//
// A mesh dim is *owned* if one of its coordinates holds all that its ranks hold: At with one
// coordinate, a ragged cut with one size above 0, or a ceil cut of pieces of one row. Expanding
// adds one tensor dim of size 1 in front for each mesh dim that is owned in some sharding, and an
// owned mesh dim cuts it. The boxes have the same elements in the same order. Two notations of one
// owner expand to one sharding.
//
// At with several coordinates cannot be a cut and stays as it is. The planner replaces it before
// (WithOneOwner). Internal to Meshift. An immutable value; safe for concurrent use.
#ifndef MESHIFT_PLACEMENT_UNIT_DIMS_H_
#define MESHIFT_PLACEMENT_UNIT_DIMS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"

namespace meshift {

// The coordinate that owns all of the mesh dim, if there is one. nullopt for mesh dims of size 1.
std::optional<int64_t> OwnerOn(const Sharding& sharding, int mesh_dim);

// The At of the coordinates that hold all of the mesh dim: the placement itself, or that of the
// owner. nullopt: it is neither At nor owned.
std::optional<Placement> AsAt(const Sharding& sharding, int mesh_dim);

// Whether an At lists two or more coordinates.
bool HasManyOwners(const Sharding& sharding);
// The sharding in which each At with several coordinates keeps one: the first that `prefer`, a
// sharding on the same mesh, holds on that mesh dim; if there is none, the first. Null: the first.
Sharding WithOneOwner(const Sharding& sharding, const Sharding* prefer = nullptr);

class UnitDims {
 public:
  // One unit dim for each mesh dim that is At or owned by a ragged cut in any of these shardings,
  // which may be on several meshes; and for each that a ceil cut owns in the first or in the last
  // sharding on its mesh, unless the tensor would have more than kMaxTensorRank dims with these. In
  // the order in which the meshes come first, then of mesh dims.
  static UnitDims Of(absl::Span<const Sharding* const> shardings);

  // Those of one mesh.
  UnitDims On(const DeviceMesh& mesh) const;

  bool empty() const { return dims_.empty(); }
  int size() const { return static_cast<int>(dims_.size()); }
  // Whether this is the unit dim of a mesh dim of `mesh`, which then is its number.
  std::optional<int> MeshDimOf(int unit, const DeviceMesh& mesh) const;

  // UNIMPLEMENTED: the tensor would have more than kMaxTensorRank dims. REQUIRES: all mesh dims
  // of the sharding that are At have unit dims.
  absl::StatusOr<Sharding> Expand(const Sharding& sharding) const;
  // The first sharding of `like` that expands to this one. If there is none, a mesh dim that cuts a
  // unit dim becomes At, or the cut of a sharding of `like` on the same mesh that has the same
  // owner, if the result expands to `expanded`. REQUIRES: `expanded` has these unit dims.
  Sharding Collapse(const Sharding& expanded, absl::Span<const Sharding* const> like = {}) const;

 private:
  static UnitDims Of(absl::Span<const Sharding* const> shardings, bool ceil_cuts);
  absl::StatusOr<Sharding> Collapse(const Sharding& expanded,
                                    absl::Span<const Sharding* const> like, bool ceil_cuts) const;

  std::vector<std::pair<DeviceMesh, int>> dims_;  // mesh and mesh dim of each
};

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_UNIT_DIMS_H_
