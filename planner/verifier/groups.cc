#include "planner/verifier/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "meshift/topology.h"

namespace meshift::verifier_internal {
namespace {

using Result = std::optional<PlanFault>;
using Int128 = __int128;

// The data that identifies the groups of a step: in a plan on one mesh, one list of mesh dims; in a
// plan on two meshes, the ranks of each group, ascending.
using Groups = std::vector<std::vector<int64_t>>;

template <typename... Args>
PlanFault Fault(std::optional<int> step, std::string_view rule, fmt::format_string<Args...> format,
                Args&&... args) {
  return {step, std::string(rule), fmt::format(format, std::forward<Args>(args)...)};
}

class GroupChecker {
 public:
  explicit GroupChecker(const PlanFields& plan) : plan_(plan) {
    if (!IsCross()) return;
    for (const DeviceMesh& mesh : plan.meshes) {
      std::vector<int64_t> ranks = mesh.Ranks();
      std::sort(ranks.begin(), ranks.end());
      ranks_.push_back(std::move(ranks));
    }
  }

  Result Run() {
    if (Result fault = ReadOptions()) return fault;
    if (Result fault = CheckExistence()) return fault;
    if (Result fault = CheckCount()) return fault;
    return CheckSetup();
  }

 private:
  bool IsCross() const { return plan_.meshes.size() > 1; }
  Result ReadOptions();
  Groups GroupsOver(const DeviceMesh& mesh, std::vector<int64_t> dims) const;
  Groups GroupOfAll() const;
  Groups GroupsOf(const Step& step) const {
    if (IsCrossing(step)) return GroupOfAll();
    return GroupsOver(plan_.meshes[step.mesh], {step.mesh_dims.begin(), step.mesh_dims.end()});
  }
  Result CheckExistence() const;
  Result CheckCount() const;
  Result CheckSetup() const;

  const PlanFields& plan_;
  const GroupBudget& limits_ = plan_.inputs.options.groups;
  std::vector<std::vector<int64_t>> ranks_;  // by mesh, ascending; empty on one mesh
  std::set<Groups> existing_;
};

Groups GroupChecker::GroupsOver(const DeviceMesh& mesh, std::vector<int64_t> dims) const {
  std::sort(dims.begin(), dims.end());
  if (!IsCross()) return {std::move(dims)};
  Groups groups = mesh.Groups(std::vector<int>(dims.begin(), dims.end()));
  for (std::vector<int64_t>& group : groups) std::sort(group.begin(), group.end());
  std::sort(groups.begin(), groups.end());
  return groups;
}

Groups GroupChecker::GroupOfAll() const {
  std::vector<int64_t> all;
  if (IsCross()) {
    std::set_union(ranks_[0].begin(), ranks_[0].end(), ranks_[1].begin(), ranks_[1].end(),
                   std::back_inserter(all));
  }
  return {std::move(all)};
}

Result GroupChecker::ReadOptions() {
  if (limits_.max_communicators.value_or(0) < 0) {
    return Fault({}, "max_communicators", "option max_communicators is {}, below 0",
                 *limits_.max_communicators);
  }
  if (limits_.expected_uses.value_or(1) < 1) {
    return Fault({}, "expected_uses", "option expected_uses is {}, below 1",
                 *limits_.expected_uses);
  }
  if (!limits_.existing_groups) {
    if (limits_.allow_new_groups && !limits_.expected_uses) return std::nullopt;
    return Fault({}, "existing_groups", "option existing_groups is missing; {} needs it",
                 limits_.allow_new_groups ? "expected_uses" : "new_groups");
  }
  for (const auto& [mesh, mesh_dims] : *limits_.existing_groups) {
    std::vector<int64_t> dims;
    for (const int d : mesh_dims) {
      if (d < 0 || d >= mesh.NumDims()) {
        return Fault({}, "existing_groups", "mesh {} has no dim {}", mesh.ToString(), d);
      }
      if (mesh.dim(d).size > 1) dims.push_back(d);
    }
    Groups groups = GroupsOver(mesh, std::move(dims));
    const bool is_planned =
        std::find(plan_.meshes.begin(), plan_.meshes.end(), mesh) != plan_.meshes.end();
    if (!is_planned && !(IsCross() && groups == GroupOfAll())) {
      return Fault({}, "existing_groups",
                   "option existing_groups has a group of mesh {}, which is not in the plan",
                   mesh.ToString());
    }
    existing_.insert(std::move(groups));
  }
  return std::nullopt;
}

Result GroupChecker::CheckExistence() const {
  if (limits_.allow_new_groups) return std::nullopt;
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    if (!IsCollective(step.op) || existing_.contains(GroupsOf(step))) continue;
    return Fault(static_cast<int>(i), "new_groups", "{} is over a group that does not exist",
                 step.Label());
  }
  return std::nullopt;
}

Result GroupChecker::CheckCount() const {
  if (!limits_.max_communicators) return std::nullopt;
  // A rank is in the groups of its mesh, and in the crossing's group. If no rank is in both meshes,
  // each mesh is counted separately.
  bool apart = false;
  if (IsCross()) {
    std::vector<int64_t> both;
    std::set_intersection(ranks_[0].begin(), ranks_[0].end(), ranks_[1].begin(), ranks_[1].end(),
                          std::back_inserter(both));
    apart = both.empty();
  }
  std::set<Groups> used[2];
  for (const Step& step : plan_.steps) {
    if (!IsCollective(step.op)) continue;
    const Groups groups = GroupsOf(step);
    for (int side = 0; side < 2; ++side) {
      if (!apart || IsCrossing(step) || step.mesh == side) used[side].insert(groups);
    }
  }
  const auto count = static_cast<int64_t>(std::max(used[0].size(), used[1].size()));
  if (count <= *limits_.max_communicators) return std::nullopt;
  return Fault({}, "max_communicators", "a rank needs {} communicators; max_communicators is {}",
               count, *limits_.max_communicators);
}

Result GroupChecker::CheckSetup() const {
  Int128 right = 0;
  if (limits_.expected_uses) {
    const Int128 uses = *limits_.expected_uses;
    std::set<Groups> made;
    for (const Step& step : plan_.steps) {
      if (!IsCollective(step.op)) continue;
      Groups groups = GroupsOf(step);
      if (!existing_.contains(groups)) made.insert(std::move(groups));
    }
    const Int128 setup = plan_.inputs.options.topology.constants().group_setup_ns;
    right = static_cast<Int128>(made.size()) * ((setup + uses - 1) / uses);
  }
  const int64_t saturated = right > INT64_MAX ? INT64_MAX : static_cast<int64_t>(right);
  if (plan_.total.setup_ns == saturated) return std::nullopt;
  return Fault({}, "total", "total setup_ns is {}; it should be {}", plan_.total.setup_ns,
               saturated);
}

}  // namespace

std::optional<PlanFault> CheckGroups(const PlanFields& plan) {
  const GroupBudget& limits = plan.inputs.options.groups;
  const bool bounded = limits.IsSet() || limits.existing_groups;
  if (!bounded && plan.total.setup_ns == 0) return std::nullopt;
  return GroupChecker(plan).Run();
}

}  // namespace meshift::verifier_internal
