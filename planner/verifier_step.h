// What docs/plan_format.md says about one step. Internal to the verifier.
//
//   StepView view = {world, step, before, after, ChangeOf(world, before, after)};
//   std::optional<Broken> broken = CheckFields(view);
//   if (!broken) broken = CheckData(view);
#ifndef MESHIFT_PLANNER_VERIFIER_STEP_H_
#define MESHIFT_PLANNER_VERIFIER_STEP_H_

#include <optional>
#include <string>

#include "planner/plan.h"
#include "planner/verifier_state.h"

namespace meshift::verifier_internal {

struct Broken {
  std::string rule;
  std::string message;
};

// A step with the states between which it stands.
struct StepView {
  const World& world;
  const Step& step;
  const State& before;
  const State& after;
  Change change;  // from before to after

  std::string Name(int mesh_dim) const { return world.mesh.dim(mesh_dim).name; }
};

// Whether the op is one of this version, its mesh dims are dims of the mesh and its dtype is known:
// what must hold before anything else can be asked. `mesh` is where the plan's shardings are.
std::optional<Broken> CheckOp(const Step& step, const Sharding& from, int mesh, DType dtype_before);
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
