// Numbers the groups that a plan's steps may use, and applies a GroupBudget to them.
//
//   MESHIFT_ASSIGN_OR_RETURN(const PlanGroups groups,
//                            PlanGroups::Create({mesh}, budget, /*group_setup_ns=*/100'000'000));
//   const GroupSet used = groups.UsedBy(steps);
//   groups.Communicators(used);         // 2: the most that a rank needs for these steps
//   groups.SetupNs(used);               // set-up time of the new ones, per use of the plan
//   groups.Text(groups.existing());     // "fsdp;ddp,fsdp"
//
// Here a "group" means all groups over one set of mesh dims of one of the plan's meshes; or the
// group of all ranks of both meshes, which a crossing uses. Two of these that divide the ranks in
// the same way have one number. Only Create(), Check() and Refuse...() return errors. It makes no
// communicators. Immutable; safe for concurrent use. Internal to the planner and the CLI.
#ifndef MESHIFT_PLANNER_GROUPS_PLAN_GROUPS_H_
#define MESHIFT_PLANNER_GROUPS_PLAN_GROUPS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"
#include "planner/graph/state.h"

namespace meshift {

using GroupSet = std::vector<bool>;  // by number

class PlanGroups {
 public:
  // For plans without a budget: no group has a number, and set-up costs nothing.
  PlanGroups() = default;
  // `meshes`: the plan's one or two meshes. `group_setup_ns`: the time to make a new group. Without
  // a budget returns PlanGroups(). INVALID_ARGUMENT: the budget (CheckGroupBudget), or two meshes
  // of 2^31 ranks or more together. UNIMPLEMENTED: more mesh dims than the planner's limit. Takes
  // O(2^dims), for meshes with rank lists times their length.
  static absl::StatusOr<PlanGroups> Create(absl::Span<const DeviceMesh> meshes,
                                           const GroupBudget& budget, int64_t group_setup_ns);

  bool IsBounded() const { return !meshes_.empty(); }
  int size() const { return static_cast<int>(existing_.size()); }  // numbers are below it
  // The number of the groups over `dims` (as in Problem) of meshes[mesh]. REQUIRES: IsBounded().
  int NumberOf(int mesh, DimMask dims) const { return meshes_[mesh].numbers[dims]; }
  // The number of a crossing's group. REQUIRES: two meshes.
  int crossing() const { return crossing_; }
  // The members of `set` on meshes[mesh], for CostOptions::groups. REQUIRES: IsBounded().
  DimSets DimsOf(int mesh, const GroupSet& set) const;
  GroupSet UsedBy(absl::Span<const Step> steps) const;

  const GroupSet& existing() const { return existing_; }
  // The groups that the budget allows, without regard to the number of communicators.
  GroupSet Allowed() const;
  std::optional<int64_t> max_communicators() const { return budget_.max_communicators; }
  // Communicators for these groups on the rank that needs most: one for each group that it is in.
  int64_t Communicators(const GroupSet& set) const;
  // For two meshes without a common rank: the groups of each mesh's ranks. Otherwise one set, with
  // all groups: some rank may be in all of them.
  const std::vector<GroupSet>& sides() const { return sides_; }
  // The set-up time of each new group per use of the plan; 0 if the budget does not count it.
  int64_t each_setup_ns() const { return each_setup_ns_; }
  int64_t SetupNs(const GroupSet& used) const;

  // The groups of each mesh, by number of dims, then in mesh order. A group of both meshes is
  // listed for each. A crossing's group comes last, as a group of UnionMesh.
  std::vector<MeshGroups> List(const GroupSet& set) const;
  // MeshGroupsText() of List().
  std::string Text(const GroupSet& set) const;
  // The budget as a plan records it: existing groups are those of the plan's meshes, and are
  // omitted if new groups are allowed and cost nothing. The root is omitted.
  GroupBudget Stated() const;

  // FAILED_PRECONDITION: no plan uses allowed groups only; the cheapest plan uses `used`.
  absl::Status RefuseNewGroups(const GroupSet& used, Reproducibility promise) const;
  // RESOURCE_EXHAUSTED: max_communicators is too small; `least` would be enough. Not `is_least`:
  // fewer may be enough.
  absl::Status RefuseCommunicators(int64_t least, bool is_least) const;
  // Why a plan over `used` breaks the budget, as in "needs the new group ddp,fsdp"; empty if it
  // does not; a new group comes before too many communicators. Check() returns RESOURCE_EXHAUSTED:
  // too many communicators; else FAILED_PRECONDITION: a new group.
  std::string BrokenBy(const GroupSet& used) const;
  absl::Status Check(const GroupSet& used) const;

 private:
  struct Mesh {
    DeviceMesh mesh;
    DimSet dims;                                    // of size > 1
    std::array<int, 1 << kMaxStateDims> numbers{};  // by mask of them
  };
  explicit PlanGroups(GroupBudget budget) : budget_(std::move(budget)) {}
  using Numbers = absl::flat_hash_map<std::string, int>;  // by PartitionKey
  // Numbers all groups. `by_key` gets the numbers of the groups of two meshes, by key; empty for
  // one mesh.
  absl::Status Number(absl::Span<const DeviceMesh> meshes, Numbers* by_key);
  void FindExisting(Numbers by_key);
  // The members of `used` that do not exist.
  GroupSet Missing(const GroupSet& used) const;
  DimSet DimsOf(const Mesh& mesh, DimMask mask) const;

  GroupBudget budget_;
  std::vector<Mesh> meshes_;
  int crossing_ = -1;
  std::optional<DeviceMesh> all_;  // all ranks of two meshes
  GroupSet existing_;
  std::vector<GroupSet> sides_;
  int64_t each_setup_ns_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GROUPS_PLAN_GROUPS_H_
