// Implements CheckGroupBudget, ParseMeshGroups and MeshGroupsText of meshift/planner_options.h.
// Errors are INVALID_ARGUMENT. ParseMeshGroups needs a mesh, except for "-". No communicator is
// made.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "meshift/planner_options.h"
#include "meshift/status.h"
#include "meshift/union_mesh.h"
#include "planner/plan/partition.h"

namespace meshift {
namespace {

// One item of a list: "ddp,fsdp", "1:tp" or "*".
absl::StatusOr<MeshGroups> ParseGroup(std::string_view text, absl::Span<const DeviceMesh> meshes) {
  if (text == "*") {
    DeviceMesh all = meshes[0];
    for (const DeviceMesh& mesh : meshes.subspan(1)) {
      MESHIFT_ASSIGN_OR_RETURN(all, UnionMesh(all, mesh));
    }
    const DimSet dims = AllDims(all);
    return MeshGroups{std::move(all), dims};
  }
  size_t index = 0;
  std::string_view names = text;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    const std::string number(text.substr(0, colon));
    names.remove_prefix(colon + 1);
    if (!absl::SimpleAtoi(number, &index) || index >= meshes.size()) {
      return InvalidArgument("group '{}' is of mesh {}; the plan has {} mesh(es)", text, number,
                             meshes.size());
    }
  }
  const DeviceMesh& mesh = meshes[index];
  DimSet dims;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(names.data(), names.size()), ',')) {
    const std::string_view name(part.data(), part.size());
    const std::optional<int> d = mesh.FindDim(name);
    if (!d) {
      return InvalidArgument("group '{}': mesh {} has no dim '{}'", text, mesh.ToString(), name);
    }
    if (std::find(dims.begin(), dims.end(), *d) != dims.end()) {
      return InvalidArgument("group '{}' has mesh dim {} twice", text, name);
    }
    dims.push_back(*d);
  }
  std::sort(dims.begin(), dims.end());
  return MeshGroups{mesh, dims};
}

}  // namespace

absl::Status CheckGroupBudget(const GroupBudget& budget) {
  if (budget.max_communicators.value_or(0) < 0) {
    return InvalidArgument("a max_communicators of {} is below 0", *budget.max_communicators);
  }
  if (budget.expected_uses.value_or(1) < 1) {
    return InvalidArgument("expected_uses of {} is below 1", *budget.expected_uses);
  }
  if (!budget.existing_groups) return absl::OkStatus();
  for (size_t i = 0; i < budget.existing_groups->size(); ++i) {
    const auto& [mesh, dims] = (*budget.existing_groups)[i];
    if (dims.empty()) {
      return InvalidArgument("existing group {} is over no dims of mesh {}", i, mesh.ToString());
    }
    for (const int d : dims) {
      if (0 <= d && d < mesh.NumDims()) continue;
      return InvalidArgument("existing group {} names mesh dim {}; mesh {} has dims 0 to {}", i, d,
                             mesh.ToString(), mesh.NumDims() - 1);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<MeshGroups>> ParseMeshGroups(std::string_view text,
                                                        absl::Span<const DeviceMesh> meshes) {
  std::vector<MeshGroups> groups;
  absl::flat_hash_set<std::string> seen;
  if (text == "-") return groups;
  if (meshes.empty()) return InvalidArgument("groups '{}' cannot be read: no mesh is given", text);
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ';')) {
    if (part.empty()) {
      return InvalidArgument("'{}' has an empty group; expected groups such as fsdp;ddp,fsdp",
                             text);
    }
    MESHIFT_ASSIGN_OR_RETURN(MeshGroups group,
                             ParseGroup(std::string_view(part.data(), part.size()), meshes));
    // The text has the mesh dims in mesh order, so that "a,b" and "b,a" are one group.
    if (seen.insert(MeshGroupsText({&group, 1}, meshes)).second) groups.push_back(std::move(group));
  }
  return groups;
}

std::string MeshGroupsText(absl::Span<const MeshGroups> groups,
                           absl::Span<const DeviceMesh> meshes) {
  std::string text;
  for (const auto& [mesh, dims] : groups) {
    if (!text.empty()) text += ";";
    const auto at = std::find(meshes.begin(), meshes.end(), mesh);
    if (at == meshes.end()) {
      text += "*";
      continue;
    }
    if (at != meshes.begin()) text += fmt::format("{}:", at - meshes.begin());
    for (size_t i = 0; i < dims.size(); ++i) text += (i == 0 ? "" : ",") + mesh.dim(dims[i]).name;
  }
  return text.empty() ? "-" : text;
}

}  // namespace meshift
