// What docs/plan_format.md says about one step. Internal to the verifier.
//
//   StepView view = {world, step, before, after, ChangeOf(world, before, after)};
//   std::optional<Broken> broken = CheckFields(view);
//   if (!broken) broken = CheckData(view);
#ifndef MESHIFT_PLANNER_VERIFIER_STEP_H_
#define MESHIFT_PLANNER_VERIFIER_STEP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "meshift/plan.h"
#include "planner/verifier/broken.h"
#include "planner/verifier/state.h"

namespace meshift::verifier_internal {

// A step with the states between which it stands.
struct StepView {
  const World& world;  // of the value after
  const Step& step;
  const State& before;
  const State& after;
  Change change;  // from before to after; none where it crosses
  // Of the value before, where the step takes it to another mesh; else null.
  const World* from_world = nullptr;

  bool Crosses() const { return from_world != nullptr; }
  std::string Name(int mesh_dim) const { return world.mesh.dim(mesh_dim).name; }
  // Of the value before.
  const World& world_before() const { return Crosses() ? *from_world : world; }
  int mesh_before() const { return Crosses() ? 0 : step.mesh; }
  // Whether it adds contributions: a reduction, or a step to another mesh with a reduce_op.
  bool Reduces() const { return IsReduction(step.op) || (Crosses() && step.reduce_op); }
  // The mesh dims whose contributions it adds, of the mesh of the value before, in mesh order: of a
  // step to another mesh all that are P.
  DimSet ReducedDims() const;
};

// What the P of `mesh_dims` say of the reduction over them; nullopt where none is P, or no avg.
struct ReductionFields {
  std::optional<ReduceOp> op;
  std::optional<int64_t> divisor;
};
ReductionFields FieldsOfReduction(const World& world, const State& before,
                                  absl::Span<const int> mesh_dims);

// Whether the op is one of this version, its mesh dims are dims of the mesh and its dtype is known:
// what must hold before anything else can be asked. `mesh` is where the value is, `like` a sharding
// there of its shape. Not for steps that cross (planner/verifier/crossing.h), as those below.
std::optional<Broken> CheckOp(const Step& step, const Sharding& like, int mesh, DType dtype_before);
// Every field but the costs: what the op leaves, group, tensor dims, reduction, sizes, dtypes.
std::optional<Broken> CheckFields(const StepView& view);
// Whether every rank can have what `after` gives it, each element and contribution once.
std::optional<Broken> CheckData(const StepView& view);

// Whether all members' boxes have one size before, and one after.
bool IsEven(const StepView& view);
// Whether the op on the dtype before gives the same bits in any order.
bool IsExactReduction(const StepView& view);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_STEP_H_
