#include "cli/problem.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "cli/io.h"
#include "mesh/device_mesh.h"
#include "mesh/topology.h"
#include "placement/dtype.h"
#include "placement/relabel_ranks.h"
#include "placement/sharding.h"
#include "placement/tensor_type.h"
#include "planner/groups/group_budget.h"
#include "planner/options/capabilities.h"
#include "planner/plan/plan.h"
#include "planner/plan/quantity.h"
#include "planner/planner.h"

namespace meshift::cli {
namespace {

absl::StatusOr<Topology> ReadTopology(const std::string& text, Io& io) {
  if (!std::string_view{text}.ends_with(".json")) {
    absl::StatusOr<Topology> topology = Topology::Parse(text);
    if (!topology.ok()) return Annotate(topology.status(), "--topology");
    return topology;
  }
  MESHIFT_ASSIGN_OR_RETURN(const std::string json, ReadFile(text, io));
  absl::StatusOr<Topology> topology = Topology::FromJson(json);
  if (!topology.ok()) return BadFile(text, topology.status());
  return topology;
}

}  // namespace

absl::StatusOr<PlannerOptions> ParsePlannerOptions(const ProblemFlags& flags, Io& io) {
  PlannerOptions options;
  options.engine = flags.capabilities.value_or(EngineCapabilities::Of(flags.engine));
  if (flags.reproducibility) {
    const absl::StatusOr<Reproducibility> promise = ParseReproducibility(*flags.reproducibility);
    if (!promise.ok()) return Annotate(promise.status(), "--reproducibility");
    options.reproducibility = *promise;
  }
  if (flags.topology) {
    MESHIFT_ASSIGN_OR_RETURN(options.topology, ReadTopology(*flags.topology, io));
  }
  if (flags.planner) {
    const absl::StatusOr<PlannerKind> planner = ParsePlannerKind(*flags.planner);
    if (!planner.ok()) return Annotate(planner.status(), "--planner");
    options.planner = *planner;
  }
  if (flags.ragged_sizes) {
    const absl::StatusOr<RaggedSizes> sizes = ParseRaggedSizes(*flags.ragged_sizes);
    if (!sizes.ok()) return Annotate(sizes.status(), "--ragged-sizes");
    options.ragged_sizes = *sizes;
  }
  if (flags.reduce_block) options.reduce_block = *flags.reduce_block;
  if (flags.max_memory) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(*flags.max_memory);
    if (!bytes.ok()) return Annotate(bytes.status(), "--max-memory");
    options.max_memory = *bytes;
  }
  if (flags.buffers) {
    const absl::StatusOr<Buffers> buffers = ParseBuffers(*flags.buffers);
    if (!buffers.ok()) return Annotate(buffers.status(), "--buffers");
    options.buffers = *buffers;
  }
  options.groups.allow_new_groups = !flags.no_new_groups;
  options.groups.max_communicators = flags.max_communicators;
  options.groups.expected_uses = flags.expected_uses;
  if (flags.reduce_dtype) {
    const absl::StatusOr<DType> dtype = ParseDType(*flags.reduce_dtype);
    if (!dtype.ok()) return Annotate(dtype.status(), "--reduce-dtype");
    options.reduce_dtype = *dtype;
  }
  return options;
}

absl::Status ParseExistingGroups(const ProblemFlags& flags, const DeviceMesh& from,
                                 const DeviceMesh& to, GroupBudget* budget) {
  if (!flags.existing_groups) return absl::OkStatus();
  std::vector<DeviceMesh> meshes = {from};
  if (!(from == to)) meshes.push_back(to);
  absl::StatusOr<std::vector<MeshGroups>> groups = ParseMeshGroups(*flags.existing_groups, meshes);
  if (!groups.ok()) return Annotate(groups.status(), "--existing-groups");
  budget->existing_groups = *std::move(groups);
  return absl::OkStatus();
}

absl::StatusOr<DeviceMesh> ParseTargetMesh(const DeviceMesh& mesh, const ProblemFlags& flags) {
  if (!flags.to_mesh) return mesh;
  absl::StatusOr<DeviceMesh> to_mesh = DeviceMesh::Parse(*flags.to_mesh);
  if (!to_mesh.ok()) return Annotate(to_mesh.status(), "--to-mesh");
  return to_mesh;
}

absl::StatusOr<Sharding> ParseTarget(const Sharding& source, const DeviceMesh& mesh,
                                     const std::string& placements, const ProblemFlags& flags) {
  TensorType tensor = source.tensor();
  if (flags.to_dtype) {
    const absl::StatusOr<DType> dtype = ParseDType(*flags.to_dtype);
    if (!dtype.ok()) return Annotate(dtype.status(), "--to-dtype");
    absl::StatusOr<TensorType> cast = TensorType::Create(*dtype, source.shape());
    if (!cast.ok()) return Annotate(cast.status(), "--to-dtype");
    tensor = *std::move(cast);
  }
  absl::StatusOr<Sharding> to = Sharding::Parse(std::move(tensor), mesh, placements);
  if (!to.ok()) return Annotate(to.status(), flags.rules ? "to" : "--to");
  return to;
}

absl::StatusOr<Problem> ParseProblem(const ProblemFlags& flags, Io& io) {
  MESHIFT_ASSIGN_OR_RETURN(const std::string mesh_text, Require(flags.mesh, "--mesh"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string tensor_text, Require(flags.tensor, "--tensor"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string from_text, Require(flags.from, "--from"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string to_text, Require(flags.to, "--to"));
  MESHIFT_ASSIGN_OR_RETURN(PlannerOptions options, ParsePlannerOptions(flags, io));
  if (flags.rules) return InvalidArgument("--rules needs --model");
  if (flags.dtype) return InvalidArgument("--dtype needs --model; --tensor says its dtype itself");

  const absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(mesh_text);
  if (!mesh.ok()) return Annotate(mesh.status(), "--mesh");
  const absl::StatusOr<TensorType> tensor = TensorType::Parse(tensor_text);
  if (!tensor.ok()) {
    return Annotate(tensor.status(), fmt::format("--tensor '{}'", tensor_text));
  }
  absl::StatusOr<Sharding> from = Sharding::Parse(*tensor, *mesh, from_text);
  if (!from.ok()) return Annotate(from.status(), "--from");
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh to_mesh, ParseTargetMesh(*mesh, flags));
  MESHIFT_ASSIGN_OR_RETURN(Sharding to, ParseTarget(*from, to_mesh, to_text, flags));
  if (flags.relabel_ranks) {
    const absl::StatusOr<DeviceMesh> relabelled = RelabelRanks({{*from, to}});
    if (!relabelled.ok()) return Annotate(relabelled.status(), "--relabel-ranks");
    MESHIFT_ASSIGN_OR_RETURN(to, OnMesh(to, *relabelled));
  }
  MESHIFT_RETURN_IF_ERROR(ParseExistingGroups(flags, from->mesh(), to.mesh(), &options.groups));
  return Problem{*std::move(from), std::move(to), std::move(options)};
}

absl::StatusOr<std::string> Require(const std::optional<std::string>& value, const char* option) {
  if (!value) return InvalidArgument("{} is missing", option);
  return *value;
}

absl::Status Exclude(const std::optional<std::string>& value, const char* option,
                     const char* other) {
  if (!value) return absl::OkStatus();
  return InvalidArgument("{} and {} exclude each other", option, other);
}

absl::Status ExcludeOptions(const ProblemFlags& flags, const char* other) {
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.topology, "--topology", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.reproducibility, "--reproducibility", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.max_memory, "--max-memory", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.buffers, "--buffers", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.planner, "--planner", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.ragged_sizes, "--ragged-sizes", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.existing_groups, "--existing-groups", other));
  if (flags.no_new_groups) {
    return InvalidArgument("--no-new-groups and {} exclude each other", other);
  }
  for (const auto& [number, option] : {std::pair(flags.reduce_block, "--reduce-block"),
                                       std::pair(flags.max_communicators, "--max-communicators"),
                                       std::pair(flags.expected_uses, "--expected-uses")}) {
    if (number) return InvalidArgument("{} and {} exclude each other", option, other);
  }
  return absl::OkStatus();
}

absl::Status ExcludeProblem(const ProblemFlags& flags, const char* other) {
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.mesh, "--mesh", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.to_mesh, "--to-mesh", other));
  if (flags.relabel_ranks) {
    return InvalidArgument("--relabel-ranks and {} exclude each other", other);
  }
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.tensor, "--tensor", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.from, "--from", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.to, "--to", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.to_dtype, "--to-dtype", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.reduce_dtype, "--reduce-dtype", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.dtype, "--dtype", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.model, "--model", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.rules, "--rules", other));
  return Exclude(flags.filter, "--filter", other);
}

}  // namespace meshift::cli
