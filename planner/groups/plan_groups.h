// The groups that the steps of a plan may be over, numbered, and what a GroupBudget says of each.
//
//   MESHIFT_ASSIGN_OR_RETURN(const PlanGroups groups,
//                            PlanGroups::Create({mesh}, budget, /*group_setup_ns=*/100'000'000));
//   const GroupSet used = groups.UsedBy(steps);
//   groups.Communicators(used);         // 2: what a rank needs for these steps
//   groups.SetupNs(used);               // of those that do not exist, per use
//   groups.Text(groups.existing());     // "fsdp;ddp,fsdp"
//
// A group here is all groups over a set of mesh dims of one of the plan's meshes, or of the ranks
// of both meshes, which a crossing is over. Where two of these are the same sets of ranks, they
// have one number. An immutable value; safe for concurrent use.
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
  // Of plans without a budget: no groups are numbered, nothing costs anything.
  PlanGroups() = default;
  // `meshes`: the plan's, one or two. `group_setup_ns`: to make a new one. INVALID_ARGUMENT: the
  // budget (CheckGroupBudget); UNIMPLEMENTED: more mesh dims than can be planned with. Where no
  // budget is set, that of PlanGroups(). O(2^dims); with rank lists, times their length.
  static absl::StatusOr<PlanGroups> Create(absl::Span<const DeviceMesh> meshes,
                                           const GroupBudget& budget, int64_t group_setup_ns);

  bool IsBounded() const { return !meshes_.empty(); }
  int size() const { return static_cast<int>(existing_.size()); }  // numbers are below it
  // The groups over mesh dims of meshes[mesh], as a Problem numbers them.
  int NumberOf(int mesh, DimMask dims) const { return meshes_[mesh].numbers[dims]; }
  // That of a crossing. REQUIRES: two meshes.
  int crossing() const { return crossing_; }
  // All of `set` that are over dims of meshes[mesh]: for CostOptions::groups.
  DimSets DimsOf(int mesh, const GroupSet& set) const;
  GroupSet UsedBy(absl::Span<const Step> steps) const;

  const GroupSet& existing() const { return existing_; }
  // Those that the budget allows, the number of communicators left aside.
  GroupSet Allowed() const;
  std::optional<int64_t> max_communicators() const { return budget_.max_communicators; }
  // What a rank needs for these groups, of the rank that needs most: one for each that it is in.
  int64_t Communicators(const GroupSet& set) const;
  // For each kind of rank, the groups that it is in: of one mesh, of the other, or of both.
  const std::vector<GroupSet>& sides() const { return sides_; }
  // What each group that does not exist adds to a use of the plan; 0 where that is not counted.
  int64_t each_setup_ns() const { return each_setup_ns_; }
  int64_t SetupNs(const GroupSet& used) const;

  // By number of dims, then in mesh order; one of several meshes' once for each. Last, as a group
  // of UnionMesh, that of a crossing.
  std::vector<MeshGroups> List(const GroupSet& set) const;
  // MeshGroupsText of these.
  std::string Text(const GroupSet& set) const;
  // What limits plans, in groups of the plan's meshes.
  GroupBudget Stated() const;

  // FAILED_PRECONDITION: no plan is over allowed groups; the cheapest is over `used`.
  absl::Status RefuseNewGroups(const GroupSet& used, Reproducibility promise) const;
  // RESOURCE_EXHAUSTED: max_communicators does not do, and `least` would; unless that `is_least`,
  // fewer might.
  absl::Status RefuseCommunicators(int64_t least, bool is_least) const;
  // Of a plan over `used`: what keeps it from the budget, "needs the new group ddp,fsdp"; empty
  // where nothing does. And the same as an error.
  std::string BrokenBy(const GroupSet& used) const;
  absl::Status Check(const GroupSet& used) const;

 private:
  struct Mesh {
    DeviceMesh mesh;
    DimSet dims;                                    // of more than one rank
    std::array<int, 1 << kMaxStateDims> numbers{};  // by mask of them
  };
  explicit PlanGroups(GroupBudget budget) : budget_(std::move(budget)) {}
  using Numbers = absl::flat_hash_map<std::string, int>;  // by PartitionKey
  // Says in `by_key` what is known to be the same groups: of one mesh nothing.
  absl::Status Number(absl::Span<const DeviceMesh> meshes, Numbers* by_key);
  void FindExisting(Numbers by_key);
  // Those that do not exist.
  GroupSet Missing(const GroupSet& used) const;
  DimSet DimsOf(const Mesh& mesh, DimMask mask) const;

  GroupBudget budget_;
  std::vector<Mesh> meshes_;
  int crossing_ = -1;
  std::optional<DeviceMesh> all_;  // of two meshes, all ranks
  GroupSet existing_;
  std::vector<GroupSet> sides_;
  int64_t each_setup_ns_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GROUPS_PLAN_GROUPS_H_
