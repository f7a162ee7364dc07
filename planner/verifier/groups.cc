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

#include "absl/strings/numbers.h"
#include "meshift/topology.h"

namespace meshift::verifier_internal {
namespace {

using Result = std::optional<PlanFault>;
using Wide = __int128;

// Groups, as what tells them apart: on one mesh the mesh dims, on two the ranks of each.
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
  // The value of an option, null where it is not there.
  const std::string* Option(std::string_view name) const {
    for (const auto& [key, value] : plan_.inputs.options) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  Result ReadNumber(std::string_view name, int64_t least, std::optional<int64_t>* number) const {
    const std::string* const value = Option(name);
    if (value == nullptr) return std::nullopt;
    int64_t read = 0;
    if (!absl::SimpleAtoi(*value, &read) || read < least) {
      return Fault({}, name, "option {} is '{}', no number from {} on", name, *value, least);
    }
    *number = read;
    return std::nullopt;
  }
  Result ReadOptions();
  // Adds what one name of existing_groups stands for; false where that is nothing.
  bool AddExisting(std::string_view name);
  Groups GroupsOver(int mesh, std::vector<int64_t> dims) const;
  Groups GroupOfAll() const;
  Groups GroupsOf(const Step& step) const {
    if (IsCrossing(step)) return GroupOfAll();
    return GroupsOver(step.mesh, {step.mesh_dims.begin(), step.mesh_dims.end()});
  }
  Result CheckExistence() const;
  Result CheckCount() const;
  Result CheckSetup() const;

  const PlanFields& plan_;
  std::vector<std::vector<int64_t>> ranks_;  // of each of two meshes, ascending
  bool new_groups_ = true;
  std::optional<int64_t> most_;
  std::optional<int64_t> uses_;
  std::set<Groups> existing_;
};

Groups GroupChecker::GroupsOver(int mesh, std::vector<int64_t> dims) const {
  std::sort(dims.begin(), dims.end());
  if (!IsCross()) return {std::move(dims)};
  Groups groups = plan_.meshes[mesh].Groups(std::vector<int>(dims.begin(), dims.end()));
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

bool GroupChecker::AddExisting(std::string_view name) {
  if (name == "*") {
    if (IsCross()) existing_.insert(GroupOfAll());
    return IsCross();
  }
  int mesh = 0;
  if (name.substr(0, 2) == "0:" || name.substr(0, 2) == "1:") {
    mesh = name[0] - '0';
    name.remove_prefix(2);
  }
  if (mesh >= static_cast<int>(plan_.meshes.size())) return false;
  std::vector<int64_t> dims;
  for (bool more = true; more;) {
    const size_t comma = name.find(',');
    more = comma != std::string_view::npos;
    const std::optional<int> dim = plan_.meshes[mesh].FindDim(name.substr(0, comma));
    if (!dim) return false;
    if (plan_.meshes[mesh].dim(*dim).size > 1) dims.push_back(*dim);
    if (more) name.remove_prefix(comma + 1);
  }
  existing_.insert(GroupsOver(mesh, std::move(dims)));
  return true;
}

Result GroupChecker::ReadOptions() {
  if (const std::string* const value = Option("new_groups")) {
    if (*value != "off")
      return Fault({}, "new_groups", "option new_groups is '{}', not off", *value);
    new_groups_ = false;
  }
  if (Result fault = ReadNumber("max_communicators", 0, &most_)) return fault;
  if (Result fault = ReadNumber("expected_uses", 1, &uses_)) return fault;
  const std::string* const existing = Option("existing_groups");
  if (existing == nullptr) {
    if (new_groups_ && !uses_) return std::nullopt;
    return Fault({}, "existing_groups", "there is no option existing_groups beside {}",
                 new_groups_ ? "expected_uses" : "new_groups");
  }
  if (*existing == "-") return std::nullopt;
  std::string_view rest = *existing;
  for (bool more = true; more;) {
    const size_t end = rest.find(';');
    more = end != std::string_view::npos;
    const std::string_view name = rest.substr(0, end);
    if (!AddExisting(name)) {
      return Fault({}, "existing_groups", "option existing_groups has '{}', no group of the plan",
                   name);
    }
    if (more) rest.remove_prefix(end + 1);
  }
  return std::nullopt;
}

Result GroupChecker::CheckExistence() const {
  if (new_groups_) return std::nullopt;
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    if (!IsCollective(step.op) || existing_.contains(GroupsOf(step))) continue;
    return Fault(static_cast<int>(i), "new_groups", "{} is over a group that does not exist",
                 step.Label());
  }
  return std::nullopt;
}

Result GroupChecker::CheckCount() const {
  if (!most_) return std::nullopt;
  // A rank is in the groups of the mesh that it is in, and in that of all. Where no rank is in both
  // meshes, each mesh counts by itself.
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
  if (count <= *most_) return std::nullopt;
  return Fault({}, "max_communicators", "a rank needs {} communicators; asked for were at most {}",
               count, *most_);
}

Result GroupChecker::CheckSetup() const {
  Wide right = 0;
  if (uses_) {
    const absl::StatusOr<Topology> topology = Topology::Parse(plan_.inputs.topology);
    if (!topology.ok()) {
      return Fault({}, "topology", "'{}' is no topology", plan_.inputs.topology);
    }
    std::set<Groups> made;
    for (const Step& step : plan_.steps) {
      if (!IsCollective(step.op)) continue;
      Groups groups = GroupsOf(step);
      if (!existing_.contains(groups)) made.insert(std::move(groups));
    }
    const Wide setup = topology->constants().group_setup_ns;
    right = static_cast<Wide>(made.size()) * ((setup + *uses_ - 1) / *uses_);
  }
  const int64_t saturated = right > INT64_MAX ? INT64_MAX : static_cast<int64_t>(right);
  if (plan_.total.setup_ns == saturated) return std::nullopt;
  return Fault({}, "total", "total setup_ns is {}; it should be {}", plan_.total.setup_ns,
               saturated);
}

}  // namespace

std::optional<PlanFault> CheckGroups(const PlanFields& plan) {
  // Plans without a budget, which most are, cost nothing.
  const auto& options = plan.inputs.options;
  const bool bounded = std::any_of(options.begin(), options.end(), [](const auto& option) {
    return option.first == "new_groups" || option.first == "existing_groups" ||
           option.first == "max_communicators" || option.first == "expected_uses";
  });
  if (!bounded && plan.total.setup_ns == 0) return std::nullopt;
  return GroupChecker(plan).Run();
}

}  // namespace meshift::verifier_internal
