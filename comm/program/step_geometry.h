// The geometry of a step for one rank: the boxes of its group's members before and after the step,
// and the tensor dims whose cuts change. Internal to comm/.
//
//   MESHIFT_ASSIGN_OR_RETURN(StepGeometry geometry, StepGeometry::Create(before, step, me));
//   geometry.box_before();                                    // what this rank holds
//   const Members members(mesh, step.mesh_dims, me);
//   members.SetCoordinate(members.IndexOfNumber(3), &at);     // `at` begins as a copy of `me`
//   geometry.BoxAfter(at);                                    // what member 3 will hold
//
// `me` is the rank's coordinate. Boxes and intervals have global indices. All objects are
// immutable. REQUIRES: meshes have at most 64 dims.
#ifndef MESHIFT_COMM_PROGRAM_STEP_GEOMETRY_H_
#define MESHIFT_COMM_PROGRAM_STEP_GEOMETRY_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "placement/cuts.h"

namespace meshift::lowering_internal {

using MeshMask = uint64_t;  // bit d: mesh dim d
inline bool Has(MeshMask mask, int d) { return (mask >> d & 1) != 0; }

// The members of a group: the ranks whose coordinates differ only in the group's mesh dims. A
// member has an index (row-major over these mesh dims) and a number (by ascending rank, as in
// communicators). On a row-major mesh the two are equal.
class Members {
 public:
  // `mesh` must outlive this. REQUIRES: `mesh_dims` ascending.
  Members(const DeviceMesh& mesh, absl::Span<const int> mesh_dims, absl::Span<const int64_t> me);

  int64_t size() const { return size_; }
  absl::Span<const int> mesh_dims() const { return mesh_dims_; }
  // How much the index grows with the coordinate on mesh dim d; 0 for those outside the group.
  int64_t stride(int d) const;
  int64_t IndexOf(absl::Span<const int64_t> at) const;
  int64_t NumberOf(int64_t index) const { return numbers_.empty() ? index : numbers_[index]; }
  int64_t IndexOfNumber(int64_t number) const {
    return indices_.empty() ? number : indices_[number];
  }
  // Sets the coordinates on the group's mesh dims to those of the member.
  void SetCoordinate(int64_t index, Coordinate* at) const;

 private:
  const DeviceMesh& mesh_;
  MeshDims mesh_dims_;
  int64_t size_ = 1;
  std::vector<int64_t> numbers_;  // by index; empty if they are equal
  std::vector<int64_t> indices_;  // by number; empty if they are equal
};

// The number of this rank's group among the groups over `mesh_dims`: row-major over the coordinates
// of the other mesh dims.
int64_t GroupNumber(const DeviceMesh& mesh, absl::Span<const int> mesh_dims,
                    absl::Span<const int64_t> me);

// A tensor dim whose cuts a step changes. The outermost cuts that are equal before and after the
// step determine `parent`; the other cuts of each side divide it.
struct MovedDim {
  int tensor_dim = 0;
  Interval parent;  // this rank's interval after the common cuts
  CutList before;
  CutList after;
  Interval Before(absl::Span<const int64_t> at) const { return before.Piece(parent, at); }
  Interval After(absl::Span<const int64_t> at) const { return after.Piece(parent, at); }
};

class StepGeometry {
 public:
  // INVALID_ARGUMENT: a mesh dim whose cut changes is not among the step's. `step` must outlive the
  // result. REQUIRES: `before` and step.after have the same mesh and shape, and step.mesh_dims are
  // dims of that mesh.
  static absl::StatusOr<StepGeometry> Create(const Sharding& before, const Step& step,
                                             absl::Span<const int64_t> me);

  const DeviceMesh& mesh() const { return *mesh_; }
  absl::Span<const MovedDim> moved() const { return moved_; }
  // The mesh dims that cut the moved tensor dims before, and after, the step, without the common
  // outermost cuts.
  MeshMask cut_before() const { return cut_before_; }
  MeshMask cut_after() const { return cut_after_; }
  const Box& box_before() const { return box_before_; }  // of this rank
  const Box& box_after() const { return box_after_; }
  // The boxes of the member at coordinate `at`.
  Box BoxBefore(absl::Span<const int64_t> at) const { return BoxAt(at, &MovedDim::before); }
  Box BoxAfter(absl::Span<const int64_t> at) const { return BoxAt(at, &MovedDim::after); }

 private:
  StepGeometry() = default;
  Box BoxAt(absl::Span<const int64_t> at, CutList MovedDim::*cuts) const;

  const DeviceMesh* mesh_ = nullptr;
  absl::InlinedVector<MovedDim, 3> moved_;
  MeshMask cut_before_ = 0;
  MeshMask cut_after_ = 0;
  Box box_before_;
  Box box_after_;
};

}  // namespace meshift::lowering_internal

#endif  // MESHIFT_COMM_PROGRAM_STEP_GEOMETRY_H_
