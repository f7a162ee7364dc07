// Which groups a plan may use, and what new ones cost: part of PlannerOptions.
//
//   GroupBudget budget{.allow_new_groups = false};         // only the root and groups of one dim
//   MESHIFT_ASSIGN_OR_RETURN(budget.existing_groups, ParseMeshGroups("fsdp;ddp,fsdp", {mesh}));
//   GroupBudget frugal{.max_communicators = 2, .expected_uses = 1000};
//
// What exists is said by the caller, never looked up in a live cache: a plan is a function of what
// it is given, the same on all ranks. Groups are compared by the ranks that they are of, so that
// groups of one mesh count for plans on another that divides the same ranks alike.
#ifndef MESHIFT_PLANNER_GROUPS_GROUP_BUDGET_H_
#define MESHIFT_PLANNER_GROUPS_GROUP_BUDGET_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"

namespace meshift {

// The groups over some dims of a mesh: all of them, one for every coordinate of the other dims.
struct MeshGroups {
  DeviceMesh mesh;
  DimSet mesh_dims;  // at least one
  friend bool operator==(const MeshGroups&, const MeshGroups&) = default;
};

struct GroupBudget {
  // False: only groups that exist. The promise about bits holds all the same.
  bool allow_new_groups = true;
  // The groups that exist besides the root. None: those over each single dim of the plan's meshes,
  // which is what a mesh comes with.
  std::optional<std::vector<MeshGroups>> existing_groups = std::nullopt;
  // The group of all these ranks is the root, from which the others are split: it always exists.
  // None: all ranks of the plan's meshes.
  std::optional<DeviceMesh> root = std::nullopt;
  // The most communicators that a rank may need for the plan: one for each group that it is a
  // member of in some step, whether that is new, exists, or is the root. None: any number.
  std::optional<int64_t> max_communicators = std::nullopt;
  // How often the plan will be run, 1 or more: each new group adds the topology's group_setup_ns,
  // divided by this and rounded up, to what the plan costs, once however many steps use it. None:
  // groups cost nothing.
  std::optional<int64_t> expected_uses = std::nullopt;

  friend bool operator==(const GroupBudget&, const GroupBudget&) = default;

  // Whether a plan may depend on it.
  bool IsSet() const { return !allow_new_groups || max_communicators || expected_uses; }
};

// INVALID_ARGUMENT: a negative max_communicators, expected_uses below 1, or an existing group over
// no dims, or over dims that its mesh does not have; the message names the value.
absl::Status CheckGroupBudget(const GroupBudget& budget);

// "fsdp;ddp,fsdp": groups over fsdp, and groups over ddp and fsdp together, of meshes[0]; "1:tp"
// are groups of meshes[1], "*" is the group of all ranks of all the meshes, "-" alone is no group.
// INVALID_ARGUMENT names what is no such group.
absl::StatusOr<std::vector<MeshGroups>> ParseMeshGroups(std::string_view text,
                                                        absl::Span<const DeviceMesh> meshes);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GROUPS_GROUP_BUDGET_H_
