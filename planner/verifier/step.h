// Checks the fields and the data of a step that stays on its mesh, by docs/plan_format.md.
//
//   std::optional<Violation> broken = CheckOp(step, like, mesh, dtype_before);
//   if (broken) return broken;
//   const State after = StateOf(...);  // of step.after
//   StepView view = {mesh_shape, step, before, after, ChangeOf(mesh_shape, before, after)};
//   broken = CheckFields(view);
//   if (!broken) broken = CheckData(view);
//
// The three checks need this order. Each returns the first broken rule; nullopt: none. A StepView
// may also hold a step to another mesh (a crossing), which crossing.h checks. Costs are checked in
// verifier.cc, the order and rounding of casts in casts.h, promises and reduce_block in promise.h.
// Internal to the verifier; pure functions.
#ifndef MESHIFT_PLANNER_VERIFIER_STEP_H_
#define MESHIFT_PLANNER_VERIFIER_STEP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "meshift/plan.h"
#include "planner/verifier/state.h"
#include "planner/verifier/violation.h"

namespace meshift::verifier_internal {

// A step, and the states before and after it. All that it refers to must outlive it.
struct StepView {
  const MeshShape& mesh_shape;  // of the value after the step
  const Step& step;
  const State& before;
  const State& after;
  Change change;  // from before to after; empty for a crossing
  // Of the value before a crossing; null for other steps.
  const MeshShape* from_mesh_shape = nullptr;

  bool Crosses() const { return from_mesh_shape != nullptr; }
  std::string Name(int mesh_dim) const { return mesh_shape.mesh.dim(mesh_dim).name; }
  // The mesh and shape of the value before the step.
  const MeshShape& mesh_shape_before() const { return Crosses() ? *from_mesh_shape : mesh_shape; }
  int mesh_before() const { return Crosses() ? 0 : step.mesh; }
  // Whether the step adds contributions: a reduction, or a crossing with a reduce_op.
  bool Reduces() const { return IsReduction(step.op) || (Crosses() && step.reduce_op); }
  // The mesh dims whose contributions it adds, of the mesh before the step, in mesh order. For a
  // crossing: all that are P. REQUIRES: Reduces() or Crosses().
  DimSet ReducedDims() const;
};

// The fields of the reduction over `mesh_dims` that follow from their P. `op` is nullopt if none is
// P, `divisor` if none is P(avg).
struct ReductionFields {
  std::optional<ReduceOp> op;
  std::optional<int64_t> divisor;
};
ReductionFields FieldsOfReduction(const MeshShape& mesh_shape, const State& before,
                                  absl::Span<const int> mesh_dims);

// Checks the op, its mesh, and the mesh, shape and dtype of the value after it. Also checks that
// its mesh dims exist, ascend and have sizes above 1. `mesh`: the index of the value's mesh.
// `like`: a sharding on that mesh with the value's shape. Crossings have other checks
// (planner/verifier/crossing.h) instead of this one and the two below.
std::optional<Violation> CheckOp(const Step& step, const Sharding& like, int mesh,
                                 DType dtype_before);
// Checks the other fields, except the costs and the value of reduce_block: placements after, group,
// tensor dims, reduction, sizes, dtypes.
// Rule "scale": the step is beyond kMaxMoving or kMaxChoices (boxes.h).
std::optional<Violation> CheckFields(const StepView& view);
// Checks that every rank can get its box of `after`, each element and each contribution once.
std::optional<Violation> CheckData(const StepView& view);

// Whether in every group all members have boxes of one size before, and of one size after.
// REQUIRES: !view.Crosses().
bool IsEven(const StepView& view);
// Whether the reduction gives the same bits in any order, if min and max follow docs/dtypes.md. One
// of no elements does.
// REQUIRES: it has a reduce_op.
bool IsExactReduction(const StepView& view);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_STEP_H_
