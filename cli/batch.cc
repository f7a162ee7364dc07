#include "cli/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "cli/io.h"
#include "cli/json.h"
#include "cli/problem.h"
#include "cli/text.h"
#include "mesh/device_mesh.h"
#include "mesh/topology.h"
#include "placement/relabel_ranks.h"
#include "placement/sharding.h"
#include "placement/tensor_type.h"
#include "planner/groups/group_budget.h"
#include "planner/plan/plan.h"
#include "planner/plan/plan_io.h"
#include "planner/plan/quantity.h"
#include "planner/planner.h"
#include "planner/verifier/verifier.h"

namespace meshift::cli {
namespace {

// The line's "id", null where it has none.
Json IdOf(const absl::StatusOr<Json>& line) {
  if (!line.ok() || !line->is_object()) return nullptr;
  const auto id = line->find("id");
  return id == line->end() ? Json(nullptr) : *id;
}

// The error of what was read at `key` names it.
template <typename T>
absl::StatusOr<T> At(std::string_view key, absl::StatusOr<T> read) {
  if (!read.ok()) return Annotate(read.status(), std::string(key));
  return read;
}

absl::StatusOr<DeviceMesh> ReadMesh(const Json& json, std::string_view key) {
  if (!json.is_object())
    return InvalidArgument("{} is {}; it must be an object", key, JsonQuote(json));
  MESHIFT_ASSIGN_OR_RETURN(const Json* dims_json, JsonMember(json, "dims"));
  if (!dims_json->is_array()) {
    return InvalidArgument("dims is {}; it must be a list of [name, size]", JsonQuote(*dims_json));
  }
  std::vector<DeviceMesh::Dim> dims;
  for (const Json& dim : *dims_json) {
    if (!dim.is_array() || dim.size() != 2) {
      return InvalidArgument("mesh dim {} is not [name, size]", JsonQuote(dim));
    }
    MESHIFT_ASSIGN_OR_RETURN(std::string name, JsonString(dim[0], "the name of a mesh dim"));
    MESHIFT_ASSIGN_OR_RETURN(const int64_t size, JsonInt(dim[1], "the size of a mesh dim"));
    dims.push_back({std::move(name), size});
  }
  std::vector<int64_t> ranks;
  const auto ranks_json = json.find("ranks");
  if (ranks_json != json.end() && !ranks_json->is_null()) {
    if (!ranks_json->is_array() || ranks_json->empty()) {
      return InvalidArgument("ranks is {}; it must be null or a list of ranks",
                             JsonQuote(*ranks_json));
    }
    for (const Json& rank : *ranks_json) {
      MESHIFT_ASSIGN_OR_RETURN(const int64_t value, JsonInt(rank, "a rank"));
      ranks.push_back(value);
    }
  }
  return At(key, DeviceMesh::Create(std::move(dims), std::move(ranks)));
}

absl::StatusOr<std::string> ReadString(const Json& object, std::string_view key) {
  MESHIFT_ASSIGN_OR_RETURN(const Json* value, JsonMember(object, key));
  return JsonString(*value, key);
}

// The string at `key`, or nullopt where there is none, or null.
absl::StatusOr<std::optional<std::string>> ReadOptional(const Json& object, std::string_view key) {
  const auto value = object.find(key);
  if (value == object.end() || value->is_null()) return std::nullopt;
  MESHIFT_ASSIGN_OR_RETURN(std::string text, JsonString(*value, key));
  return std::optional<std::string>(std::move(text));
}

absl::Status ReadOptions(const Json& line, PlannerOptions* options) {
  MESHIFT_ASSIGN_OR_RETURN(const auto promise, ReadOptional(line, "reproducibility"));
  if (promise) {
    MESHIFT_ASSIGN_OR_RETURN(options->reproducibility, ParseReproducibility(*promise));
  }
  MESHIFT_ASSIGN_OR_RETURN(const auto planner, ReadOptional(line, "planner"));
  if (planner) {
    MESHIFT_ASSIGN_OR_RETURN(options->planner, ParsePlannerKind(*planner));
  }
  MESHIFT_ASSIGN_OR_RETURN(const auto reduce_dtype, ReadOptional(line, "reduce_dtype"));
  if (reduce_dtype) {
    MESHIFT_ASSIGN_OR_RETURN(options->reduce_dtype, At("reduce_dtype", ParseDType(*reduce_dtype)));
  }
  MESHIFT_ASSIGN_OR_RETURN(const auto ragged_sizes, ReadOptional(line, "ragged_sizes"));
  if (ragged_sizes) {
    MESHIFT_ASSIGN_OR_RETURN(options->ragged_sizes, ParseRaggedSizes(*ragged_sizes));
  }
  const auto block = line.find("reduce_block");
  if (block != line.end() && !block->is_null()) {
    MESHIFT_ASSIGN_OR_RETURN(options->reduce_block, JsonInt(*block, "reduce_block"));
  }
  const auto memory = line.find("max_memory");
  if (memory != line.end() && memory->is_string()) {
    MESHIFT_ASSIGN_OR_RETURN(options->max_memory,
                             At("max_memory", ParseBytes(memory->get<std::string>())));
  } else if (memory != line.end() && !memory->is_null()) {
    MESHIFT_ASSIGN_OR_RETURN(options->max_memory, JsonInt(*memory, "max_memory"));
  }
  MESHIFT_ASSIGN_OR_RETURN(const auto buffers, ReadOptional(line, "buffers"));
  if (buffers) {
    MESHIFT_ASSIGN_OR_RETURN(options->buffers, ParseBuffers(*buffers));
  }
  const auto new_groups = line.find("new_groups");
  if (new_groups != line.end() && !new_groups->is_null()) {
    if (!new_groups->is_boolean()) {
      return InvalidArgument("new_groups: {} is neither true nor false", JsonQuote(*new_groups));
    }
    options->groups.allow_new_groups = new_groups->get<bool>();
  }
  for (const auto& [key, number] :
       {std::pair("max_communicators", &options->groups.max_communicators),
        std::pair("expected_uses", &options->groups.expected_uses)}) {
    const auto value = line.find(key);
    if (value == line.end() || value->is_null()) continue;
    MESHIFT_ASSIGN_OR_RETURN(*number, JsonInt(*value, key));
  }
  const auto topology = line.find("topology");
  if (topology == line.end() || topology->is_null()) return absl::OkStatus();
  const std::string text =
      topology->is_string() ? topology->get<std::string>() : JsonText(*topology);
  MESHIFT_ASSIGN_OR_RETURN(options->topology, Topology::Parse(text));
  return absl::OkStatus();
}

absl::StatusOr<Plan> PlanOf(const absl::StatusOr<Json>& line, PlannerOptions options,
                            std::optional<std::string> existing_groups) {
  if (!line.ok()) return line.status();
  if (!line->is_object()) return InvalidArgument("{} is no object", JsonQuote(*line));
  MESHIFT_ASSIGN_OR_RETURN(const Json* mesh_json, JsonMember(*line, "mesh"));
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, ReadMesh(*mesh_json, "mesh"));
  DeviceMesh to_mesh = mesh;
  if (const auto other = line->find("to_mesh"); other != line->end() && !other->is_null()) {
    MESHIFT_ASSIGN_OR_RETURN(to_mesh, ReadMesh(*other, "to_mesh"));
  }
  MESHIFT_ASSIGN_OR_RETURN(const std::string tensor, ReadString(*line, "tensor"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string from_text, ReadString(*line, "from"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string to_text, ReadString(*line, "to"));
  MESHIFT_RETURN_IF_ERROR(ReadOptions(*line, &options));
  const absl::StatusOr<TensorType> type = TensorType::Parse(tensor);
  if (!type.ok()) return Annotate(type.status(), fmt::format("tensor '{}'", tensor));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from,
                           At("from", Sharding::Parse(*type, mesh, from_text)));
  MESHIFT_ASSIGN_OR_RETURN(const auto to_dtype, ReadOptional(*line, "to_dtype"));
  TensorType to_type = *type;
  if (to_dtype) {
    MESHIFT_ASSIGN_OR_RETURN(const DType dtype, At("to_dtype", ParseDType(*to_dtype)));
    MESHIFT_ASSIGN_OR_RETURN(to_type, TensorType::Create(dtype, type->shape));
  }
  MESHIFT_ASSIGN_OR_RETURN(Sharding to, At("to", Sharding::Parse(to_type, to_mesh, to_text)));
  if (const auto relabel = line->find("relabel_ranks"); relabel != line->end()) {
    if (!relabel->is_boolean()) {
      return InvalidArgument("relabel_ranks: {} is neither true nor false", JsonQuote(*relabel));
    }
    if (relabel->get<bool>()) {
      MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh relabelled, RelabelRanks({{from, to}}));
      MESHIFT_ASSIGN_OR_RETURN(to, OnMesh(to, relabelled));
    }
  }
  MESHIFT_ASSIGN_OR_RETURN(const auto groups, ReadOptional(*line, "existing_groups"));
  if (groups) existing_groups = groups;
  if (existing_groups) {
    std::vector<DeviceMesh> meshes = {from.mesh()};
    if (!(from.mesh() == to.mesh())) meshes.push_back(to.mesh());
    absl::StatusOr<std::vector<MeshGroups>> parsed = ParseMeshGroups(*existing_groups, meshes);
    if (!parsed.ok()) return Annotate(parsed.status(), "existing_groups");
    options.groups.existing_groups = *std::move(parsed);
  }
  return MakePlan(from, to, options);
}

// Keys that PlanLine does not read: misspelt ones, as a rule.
std::vector<std::string> UnknownKeys(std::string_view text) {
  constexpr std::string_view kKnown[] = {"id",
                                         "mesh",
                                         "to_mesh",
                                         "tensor",
                                         "from",
                                         "to",
                                         "to_dtype",
                                         "relabel_ranks",
                                         "topology",
                                         "planner",
                                         "reproducibility",
                                         "reduce_dtype",
                                         "reduce_block",
                                         "ragged_sizes",
                                         "max_memory",
                                         "buffers",
                                         "new_groups",
                                         "existing_groups",
                                         "max_communicators",
                                         "expected_uses"};
  std::vector<std::string> unknown;
  const absl::StatusOr<Json> line = ParseJson(text);
  if (!line.ok() || !line->is_object()) return unknown;
  for (const auto& [key, value] : line->items()) {
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown)) {
      unknown.push_back(key);
    }
  }
  return unknown;
}

}  // namespace

std::string PlanLine(std::string_view text, const PlannerOptions& defaults,
                     const std::optional<std::string>& existing_groups) {
  const absl::StatusOr<Json> line = ParseJson(text);
  const std::string id = JsonText(IdOf(line));
  const absl::StatusOr<Plan> plan = PlanOf(line, defaults, existing_groups);
  if (plan.ok()) {
    // The plan is an object on one line; the id goes before its first key.
    return "{\"id\":" + id + "," + PlanToJson(*plan, /*indent=*/-1).substr(1);
  }
  const Json error = {{"code", absl::StatusCodeToString(plan.status().code())},
                      {"message", Printable(Message(plan.status()))}};
  return "{\"id\":" + id + ",\"error\":" + JsonText(error) + "}";
}

std::string CheckLine(std::string_view text, bool* ok) {
  const absl::StatusOr<Json> line = ParseJson(text);
  std::optional<PlanFault> fault;
  if (!line.ok()) {
    fault = PlanFault{std::nullopt, "format", Message(line.status())};
  } else {
    PlanFault unread;
    const absl::StatusOr<Plan> plan = PlanFromJson(text, &unread);
    fault = plan.ok() ? Verify(*plan).fault : unread;
  }
  *ok = !fault.has_value();
  Json answer = {
      {"id", IdOf(line)}, {"ok", *ok}, {"step", nullptr}, {"rule", nullptr}, {"message", nullptr}};
  if (fault) {
    if (fault->step) answer["step"] = *fault->step;
    answer["rule"] = fault->rule;
    answer["message"] = Printable(fault->message);
  }
  return JsonText(answer);
}

absl::Status PlanBatch(const std::string& path, const PlannerOptions& defaults,
                       const std::optional<std::string>& existing_groups, Io& io) {
  std::set<std::string> ignored;
  return ForEachLine(path, io, [&](const std::string& line) {
    for (const std::string& key : UnknownKeys(line)) {
      if (!ignored.insert(key).second) continue;
      io.err << fmt::format("meshift: key '{}' of a line is not known, and ignored\n",
                            Printable(Clipped(key, 40)));
    }
    io.out << PlanLine(line, defaults, existing_groups) << "\n" << std::flush;
  });
}

absl::Status CheckBatch(const std::string& path, Io& io, bool* ok) {
  *ok = true;
  return ForEachLine(path, io, [&](const std::string& line) {
    bool line_ok = false;
    io.out << CheckLine(line, &line_ok) << "\n" << std::flush;
    *ok = *ok && line_ok;
  });
}

}  // namespace meshift::cli
