#include "planner/groups/plan_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/status.h"
#include "meshift/union_mesh.h"
#include "planner/plan/partition.h"

namespace meshift {
namespace {

bool HaveARankInCommon(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.IsRowMajor() && b.IsRowMajor()) return true;
  const DeviceMesh& fewer = a.NumRanks() <= b.NumRanks() ? a : b;
  const DeviceMesh& more = &fewer == &a ? b : a;
  for (int64_t p = 0; p < fewer.NumRanks(); ++p) {
    if (more.PositionOf(fewer.RankAt(p))) return true;
  }
  return false;
}

int64_t CountBoth(const GroupSet& a, const GroupSet& b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] && b[i] ? 1 : 0;
  return count;
}

// Bit i is set if `dims` contains numbered[i].
DimMask MaskOf(const DimSet& numbered, const DimSet& dims) {
  DimMask mask = 0;
  for (size_t i = 0; i < numbered.size(); ++i) {
    const bool has = std::find(dims.begin(), dims.end(), numbered[i]) != dims.end();
    mask |= has ? DimMask{1} << i : 0;
  }
  return mask;
}

}  // namespace

absl::StatusOr<PlanGroups> PlanGroups::Create(absl::Span<const DeviceMesh> meshes,
                                              const GroupBudget& budget, int64_t group_setup_ns) {
  MESHIFT_RETURN_IF_ERROR(CheckGroupBudget(budget));
  if (!budget.IsSet()) return PlanGroups();
  PlanGroups groups(budget);
  Numbers by_key;
  MESHIFT_RETURN_IF_ERROR(groups.Number(meshes, &by_key));
  groups.FindExisting(std::move(by_key));
  if (budget.expected_uses) groups.each_setup_ns_ = CeilDiv(group_setup_ns, *budget.expected_uses);
  return groups;
}

absl::Status PlanGroups::Number(absl::Span<const DeviceMesh> meshes, Numbers* by_key) {
  int next = 1;
  const auto number_of = [&](const std::string& key) {
    const auto [at, is_new] = by_key->try_emplace(key, next);
    if (is_new) ++next;
    return at->second;
  };
  meshes_.reserve(meshes.size());
  for (const DeviceMesh& mesh : meshes) {
    Mesh& one = meshes_.emplace_back(Mesh{mesh, {}});
    for (int d = 0; d < mesh.NumDims(); ++d) {
      if (mesh.dim(d).size > 1) one.dims.push_back(d);
    }
    if (one.dims.size() > kMaxStateDims) {
      return Unimplemented("mesh {} has {} dims of size > 1; this version plans for at most {}",
                           mesh.ToString(), one.dims.size(), kMaxStateDims);
    }
    // Two sets of dims of one mesh never make the same groups.
    for (DimMask mask = 1; mask >> one.dims.size() == 0; ++mask) {
      one.numbers[mask] =
          meshes.size() == 1 ? next++ : number_of(PartitionKey(mesh, DimsOf(one, mask)));
    }
  }
  if (meshes.size() > 1) {
    MESHIFT_ASSIGN_OR_RETURN(all_, UnionMesh(meshes[0], meshes[1]));
    crossing_ = number_of(PartitionKey(*all_, AllDims(*all_)));
  }
  existing_.assign(next, false);
  const bool apart = meshes.size() > 1 && !HaveARankInCommon(meshes[0], meshes[1]);
  sides_.assign(apart ? 2 : 1, GroupSet(next, !apart));
  if (!apart) return absl::OkStatus();
  for (int m = 0; m < 2; ++m) {
    for (const int number : meshes_[m].numbers) sides_[m][number] = number > 0;
    sides_[m][crossing_] = true;
  }
  return absl::OkStatus();
}

void PlanGroups::FindExisting(Numbers by_key) {
  const auto add = [&](const MeshGroups& groups) {
    for (const Mesh& mesh : meshes_) {
      const DimMask mask = groups.mesh == mesh.mesh ? MaskOf(mesh.dims, groups.mesh_dims) : 0;
      if (mask == 0) continue;
      existing_[mesh.numbers[mask]] = true;
      return;
    }
    if (by_key.empty()) {
      const Mesh& only = meshes_[0];
      for (DimMask mask = 1; mask >> only.dims.size() == 0; ++mask) {
        by_key.emplace(PartitionKey(only.mesh, DimsOf(only, mask)), only.numbers[mask]);
      }
    }
    const auto found = by_key.find(PartitionKey(groups.mesh, groups.mesh_dims));
    if (found != by_key.end()) existing_[found->second] = true;
  };
  if (budget_.root) {
    add({*budget_.root, AllDims(*budget_.root)});
  } else if (meshes_.size() > 1) {
    existing_[crossing_] = true;
  } else if (!meshes_[0].dims.empty()) {
    existing_[meshes_[0].numbers[(DimMask{1} << meshes_[0].dims.size()) - 1]] = true;
  }
  if (budget_.existing_groups) {
    for (const MeshGroups& groups : *budget_.existing_groups) add(groups);
    return;
  }
  for (const Mesh& mesh : meshes_) {
    for (size_t i = 0; i < mesh.dims.size(); ++i) existing_[mesh.numbers[DimMask{1} << i]] = true;
  }
}

DimSet PlanGroups::DimsOf(const Mesh& mesh, DimMask mask) const {
  DimSet dims;
  for (size_t i = 0; i < mesh.dims.size(); ++i) {
    if ((mask >> i & 1) != 0) dims.push_back(mesh.dims[i]);
  }
  return dims;
}

DimSets PlanGroups::DimsOf(int mesh, const GroupSet& set) const {
  DimSets sets;
  for (DimMask mask = 1; mask >> meshes_[mesh].dims.size() == 0; ++mask) {
    sets.set(mask, set[NumberOf(mesh, mask)]);
  }
  return sets;
}

GroupSet PlanGroups::UsedBy(absl::Span<const Step> steps) const {
  GroupSet used(size(), false);
  if (!IsBounded()) return used;
  for (const Step& step : steps) {
    if (!IsCollective(step.op)) continue;
    if (IsCrossing(step)) {
      used[crossing_] = true;
      continue;
    }
    const Mesh& mesh = meshes_[step.mesh];
    const DimMask mask = MaskOf(mesh.dims, step.mesh_dims);
    if (mask != 0) used[mesh.numbers[mask]] = true;
  }
  return used;
}

GroupSet PlanGroups::Allowed() const {
  return budget_.allow_new_groups ? GroupSet(existing_.size(), true) : existing_;
}

int64_t PlanGroups::Communicators(const GroupSet& set) const {
  int64_t most = 0;
  for (const GroupSet& side : sides_) most = std::max(most, CountBoth(set, side));
  return most;
}

GroupSet PlanGroups::Missing(const GroupSet& used) const {
  GroupSet missing = used;
  for (size_t i = 0; i < missing.size(); ++i) missing[i] = missing[i] && !existing_[i];
  return missing;
}

int64_t PlanGroups::SetupNs(const GroupSet& used) const {
  const GroupSet missing = Missing(used);
  return SaturatingMul(std::count(missing.begin(), missing.end(), true), each_setup_ns_);
}

std::vector<MeshGroups> PlanGroups::List(const GroupSet& set) const {
  std::vector<MeshGroups> list;
  for (const Mesh& mesh : meshes_) {
    std::vector<std::pair<int, DimSet>> listed;
    for (DimMask mask = 1; mask >> mesh.dims.size() == 0; ++mask) {
      if (set[mesh.numbers[mask]]) listed.emplace_back(std::popcount(mask), DimsOf(mesh, mask));
    }
    std::sort(listed.begin(), listed.end());
    for (auto& [count, dims] : listed) list.push_back({mesh.mesh, std::move(dims)});
  }
  if (crossing_ >= 0 && set[crossing_]) list.push_back({*all_, AllDims(*all_)});
  return list;
}

std::string PlanGroups::Text(const GroupSet& set) const {
  std::vector<DeviceMesh> meshes;
  for (const Mesh& mesh : meshes_) meshes.push_back(mesh.mesh);
  return MeshGroupsText(List(set), meshes);
}

GroupBudget PlanGroups::Stated() const {
  GroupBudget stated;
  if (!IsBounded()) return stated;
  stated.allow_new_groups = budget_.allow_new_groups;
  stated.max_communicators = budget_.max_communicators;
  stated.expected_uses = budget_.expected_uses;
  if (!stated.allow_new_groups || stated.expected_uses) stated.existing_groups = List(existing_);
  return stated;
}

absl::Status PlanGroups::RefuseNewGroups(const GroupSet& used, Reproducibility promise) const {
  return FailedPrecondition(
      "no plan over the existing groups ({}) keeps '{}'; the cheapest one needs the new group {}, "
      "and allow_new_groups is off",
      Text(existing_), Name(promise), Text(Missing(used)));
}

absl::Status PlanGroups::RefuseCommunicators(int64_t least, bool is_least) const {
  return absl::ResourceExhaustedError(
      fmt::format("max_communicators is {}; {}", budget_.max_communicators.value_or(0),
                  is_least ? fmt::format("the least that would do is {}", least)
                           : fmt::format("{} would do, though fewer might", least)));
}

std::string PlanGroups::BrokenBy(const GroupSet& used) const {
  if (!IsBounded()) return "";
  if (!budget_.allow_new_groups) {
    const GroupSet missing = Missing(used);
    const bool any = std::find(missing.begin(), missing.end(), true) != missing.end();
    if (any) return fmt::format("needs the new group {}", Text(missing));
  }
  const int64_t count = Communicators(used);
  if (count <= budget_.max_communicators.value_or(count)) return "";
  return fmt::format("needs {} communicators", count);
}

absl::Status PlanGroups::Check(const GroupSet& used) const {
  const std::string broken = BrokenBy(used);
  if (broken.empty()) return absl::OkStatus();
  const int64_t count = Communicators(used);
  if (count > budget_.max_communicators.value_or(count)) {
    return RefuseCommunicators(count, /*is_least=*/true);
  }
  return FailedPrecondition("the plan {}, and allow_new_groups is off", broken);
}

}  // namespace meshift
