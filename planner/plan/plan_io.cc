// Implements PlanToJson and PlanFromJson of meshift/plan_io.h. docs/plan_format.md has the keys,
// docs/errors.md the rules that the reader names. The reader checks types, names, and that meshes
// and dims exist, but no counts, bytes or times; Verify() checks whether the plan and its
// fingerprint are right. PlanToJson REQUIRES: each step's mesh dims exist. plan_text.cc writes the
// text form, and plan_text_reader.cc reads it.
#include "meshift/plan_io.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/parse_json.h"
#include "base/status.h"
#include "meshift/status.h"
#include "planner/plan/expanded_plan.h"
#include "planner/plan/option_table.h"

namespace meshift {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 2;  // the newest; plans without At are of version 1
constexpr std::string_view kFormat = "meshift.plan";

// --- Writing ---

template <typename T>
Json NumberOrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <typename T>
Json NameOrNull(const std::optional<T>& value) {
  if (!value) return nullptr;
  return std::string(Name(*value));
}

Json MeshToJson(const DeviceMesh& mesh) {
  Json dims = Json::array();
  for (const DeviceMesh::Dim& dim : mesh.dims()) dims.push_back({dim.name, dim.size});
  return {{"dims", std::move(dims)},
          {"ranks", mesh.IsRowMajor() ? Json(nullptr) : Json(mesh.Ranks())}};
}

Json StepToJson(const Step& step, DType before) {
  Json mesh_dims = Json::array();
  for (int d : step.mesh_dims) mesh_dims.push_back(step.after.mesh().dim(d).name);
  Json tensor_dims = Json::array();
  for (int k : step.tensor_dims) tensor_dims.push_back(k);
  Json json = {{"op", std::string(Name(step.op))},
               {"mesh", step.mesh},
               {"mesh_dims", std::move(mesh_dims)},
               {"group_size", NumberOrNull(step.group_size)},
               {"groups", NumberOrNull(step.groups)},
               {"tensor_dims", std::move(tensor_dims)},
               {"reduce_op", NameOrNull(step.reduce_op)},
               {"reduce_order", NameOrNull(step.reduce_order)},
               {"divisor", NumberOrNull(step.divisor)},
               {"sizes", NameOrNull(step.sizes)},
               {"wire_dtype", NameOrNull(step.wire_dtype)},
               {"accumulate_dtype", NameOrNull(step.accumulate_dtype)}};
  if (step.reduce_block) json["reduce_block"] = *step.reduce_block;
  if (step.reduce_stages) json["reduce_stages"] = *step.reduce_stages;
  if (step.after.dtype() != before) json["dtype"] = std::string(Name(step.after.dtype()));
  json["after"] = step.after.PlacementsText();
  json["bytes_in"] = step.bytes_in;
  json["bytes_out"] = step.bytes_out;
  json["bytes_sent"] = step.bytes_sent;
  json["est_ns"] = step.est_ns;
  return json;
}

// --- Reading ---

// Reads one plan. The first error ends the reading and is described in *fault.
class Reader {
 public:
  explicit Reader(PlanFault* fault) : fault_(fault) {}

  absl::StatusOr<Plan> Read(std::string_view text);

 private:
  // Describes an error in *fault; returns it as a Status.
  absl::Status Fault(std::string rule, const std::string& message,
                     absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    std::string where = step_ ? fmt::format("step {}: ", *step_) : "";
    fault_->step = step_;
    fault_->rule = std::move(rule);
    fault_->message = message;
    return absl::Status(code, where + message);
  }

  absl::StatusOr<const Json*> Member(const Json& object, const char* key) {
    const auto it = object.find(key);
    if (it == object.end()) return Fault("format", fmt::format("key '{}' is missing", key));
    return &*it;
  }
  absl::StatusOr<const Json*> ObjectMember(const Json& object, const char* key) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
    if (!value->is_object()) return WrongType(key, *value, "an object");
    return value;
  }
  absl::StatusOr<const Json*> ArrayMember(const Json& object, const char* key) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
    if (!value->is_array()) return WrongType(key, *value, "a list");
    return value;
  }
  absl::Status WrongType(const char* key, const Json& value, std::string_view wanted) {
    return Fault("format", fmt::format("'{}' is {}, which is not {}", key, Short(value), wanted));
  }
  static std::string Short(const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }

  absl::StatusOr<int64_t> Integer(const char* key, const Json& value) {
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})) {
      return WrongType(key, value, "an integer below 2^63");
    }
    return value.get<int64_t>();
  }
  absl::StatusOr<int64_t> IntegerMember(const Json& object, const char* key) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
    return Integer(key, *value);
  }
  absl::StatusOr<std::optional<int64_t>> OptionalInteger(const Json& object, const char* key) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
    if (value->is_null()) return std::optional<int64_t>();
    MESHIFT_ASSIGN_OR_RETURN(const int64_t number, Integer(key, *value));
    return std::optional<int64_t>(number);
  }
  absl::StatusOr<std::string> String(const Json& object, const char* key) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
    if (!value->is_string()) return WrongType(key, *value, "a string");
    return value->get<std::string>();
  }
  // A name from a fixed list, or null; an unknown name breaks `rule`.
  template <typename T, typename ParseFn>
  absl::StatusOr<std::optional<T>> OptionalName(const Json& object, const char* key,
                                                const char* rule, ParseFn parse) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* value, Member(object, key));
    if (value->is_null()) return std::optional<T>();
    if (!value->is_string()) return WrongType(key, *value, "a string or null");
    absl::StatusOr<T> parsed = parse(value->get<std::string>());
    if (!parsed.ok()) return Fault(rule, Message(parsed.status()));
    return std::optional<T>(*parsed);
  }

  absl::StatusOr<DeviceMesh> ReadMesh(const Json& json);
  // {"mesh": index, "placements": text}
  absl::StatusOr<std::pair<int, Sharding>> ReadSharding(const Json& root, const char* key,
                                                        const TensorType& tensor);
  // `before`, or its shape with the dtype that `object` states.
  absl::StatusOr<TensorType> ReadCast(const Json& object, const TensorType& before);
  absl::StatusOr<int> MeshIndex(const Json& object);
  absl::StatusOr<Step> ReadStep(const Json& json);
  // `asked`: the promise. The option reproducibility, if stated, must be the same one.
  absl::StatusOr<PlanInputs> ReadInputs(const Json& json, Reproducibility asked);

  PlanFault* fault_;
  std::optional<int> step_;
  std::vector<DeviceMesh> meshes_;
  TensorType tensor_;
  TensorType value_;  // the value before the step that is read next
};

absl::StatusOr<DeviceMesh> Reader::ReadMesh(const Json& json) {
  if (!json.is_object()) return WrongType("meshes", json, "a list of objects");
  MESHIFT_ASSIGN_OR_RETURN(const Json* dims_json, ArrayMember(json, "dims"));
  std::vector<DeviceMesh::Dim> dims;
  for (const Json& dim : *dims_json) {
    if (!dim.is_array() || dim.size() != 2 || !dim[0].is_string()) {
      return WrongType("dims", dim, "a pair of a name and a size");
    }
    MESHIFT_ASSIGN_OR_RETURN(const int64_t size, Integer("dims", dim[1]));
    dims.push_back({dim[0].get<std::string>(), size});
  }
  MESHIFT_ASSIGN_OR_RETURN(const Json* ranks_json, Member(json, "ranks"));
  std::vector<int64_t> ranks;
  if (!ranks_json->is_null()) {
    if (!ranks_json->is_array()) return WrongType("ranks", *ranks_json, "null or a list");
    for (const Json& rank : *ranks_json) {
      MESHIFT_ASSIGN_OR_RETURN(const int64_t value, Integer("ranks", rank));
      ranks.push_back(value);
    }
    if (ranks.empty()) {
      return Fault("mesh", "'ranks' is an empty list; a mesh has at least one rank");
    }
  }
  absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Create(std::move(dims), std::move(ranks));
  if (!mesh.ok()) return Fault("mesh", Message(mesh.status()));
  return mesh;
}

absl::StatusOr<int> Reader::MeshIndex(const Json& object) {
  MESHIFT_ASSIGN_OR_RETURN(const int64_t index, IntegerMember(object, "mesh"));
  if (index < 0 || index >= static_cast<int64_t>(meshes_.size())) {
    return Fault("mesh", fmt::format("mesh {} is out of range for a plan of {} mesh(es)", index,
                                     meshes_.size()));
  }
  return static_cast<int>(index);
}

absl::StatusOr<TensorType> Reader::ReadCast(const Json& object, const TensorType& before) {
  if (!object.contains("dtype")) return before;
  MESHIFT_ASSIGN_OR_RETURN(const std::string name, String(object, "dtype"));
  absl::StatusOr<DType> dtype = ParseDType(name);
  if (!dtype.ok()) return Fault("dtype", Message(dtype.status()));
  absl::StatusOr<TensorType> after = TensorType::Create(*dtype, before.shape);
  if (!after.ok()) return Fault("dtype", Message(after.status()));
  return after;
}

absl::StatusOr<std::pair<int, Sharding>> Reader::ReadSharding(const Json& root, const char* key,
                                                              const TensorType& tensor) {
  MESHIFT_ASSIGN_OR_RETURN(const Json* json, ObjectMember(root, key));
  MESHIFT_ASSIGN_OR_RETURN(const int index, MeshIndex(*json));
  MESHIFT_ASSIGN_OR_RETURN(const std::string text, String(*json, "placements"));
  absl::StatusOr<Sharding> sharding = Sharding::Parse(tensor, meshes_[index], text);
  if (!sharding.ok()) {
    return Fault("target", fmt::format("'{}': {}", key, Message(sharding.status())));
  }
  return std::pair<int, Sharding>(index, *std::move(sharding));
}

absl::StatusOr<Step> Reader::ReadStep(const Json& json) {
  if (!json.is_object()) return WrongType("steps", json, "a list of objects");
  MESHIFT_ASSIGN_OR_RETURN(const std::string op_name, String(json, "op"));
  absl::StatusOr<StepOp> op = ParseStepOp(op_name);
  if (!op.ok()) return Fault("op", Message(op.status()));
  MESHIFT_ASSIGN_OR_RETURN(const int mesh_index, MeshIndex(json));
  const DeviceMesh& mesh = meshes_[mesh_index];

  DimSet mesh_dims;
  MESHIFT_ASSIGN_OR_RETURN(const Json* mesh_dims_json, ArrayMember(json, "mesh_dims"));
  for (const Json& name : *mesh_dims_json) {
    if (!name.is_string()) return WrongType("mesh_dims", name, "the name of a mesh dim");
    const std::optional<int> dim = mesh.FindDim(name.get<std::string>());
    if (!dim) {
      return Fault("mesh_dims", fmt::format("mesh {} has no dim '{}'", mesh.ToString(),
                                            name.get<std::string>()));
    }
    if (!mesh_dims.empty() && *dim <= mesh_dims.back()) {
      return Fault("mesh_dims", fmt::format("mesh dim '{}' is not in mesh order, or named twice",
                                            name.get<std::string>()));
    }
    mesh_dims.push_back(*dim);
  }
  DimSet tensor_dims;
  MESHIFT_ASSIGN_OR_RETURN(const Json* tensor_dims_json, ArrayMember(json, "tensor_dims"));
  for (const Json& dim : *tensor_dims_json) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t k, Integer("tensor_dims", dim));
    if (k < 0 || k >= static_cast<int64_t>(tensor_.shape.size()) ||
        (!tensor_dims.empty() && k <= tensor_dims.back())) {
      return Fault("tensor_dims", fmt::format("tensor dim {} is out of range for {}, not in "
                                              "ascending order, or named twice",
                                              k, tensor_.ToString()));
    }
    tensor_dims.push_back(static_cast<int>(k));
  }
  MESHIFT_ASSIGN_OR_RETURN(const std::string after_text, String(json, "after"));
  MESHIFT_ASSIGN_OR_RETURN(value_, ReadCast(json, value_));
  absl::StatusOr<Sharding> after = Sharding::Parse(value_, mesh, after_text);
  if (!after.ok()) return Fault("after", Message(after.status()));

  Step step{.op = *op,
            .mesh = mesh_index,
            .mesh_dims = std::move(mesh_dims),
            .tensor_dims = std::move(tensor_dims),
            .after = *std::move(after)};
  MESHIFT_ASSIGN_OR_RETURN(step.group_size, OptionalInteger(json, "group_size"));
  MESHIFT_ASSIGN_OR_RETURN(step.groups, OptionalInteger(json, "groups"));
  MESHIFT_ASSIGN_OR_RETURN(step.divisor, OptionalInteger(json, "divisor"));
  if (json.contains("reduce_block")) {
    MESHIFT_ASSIGN_OR_RETURN(step.reduce_block, OptionalInteger(json, "reduce_block"));
  }
  if (json.contains("reduce_stages")) {
    MESHIFT_ASSIGN_OR_RETURN(step.reduce_stages, OptionalInteger(json, "reduce_stages"));
  }
  MESHIFT_ASSIGN_OR_RETURN(step.reduce_op,
                           OptionalName<ReduceOp>(json, "reduce_op", "reduce_op", ParseReduceOp));
  MESHIFT_ASSIGN_OR_RETURN(
      step.reduce_order,
      OptionalName<ReduceOrder>(json, "reduce_order", "reduce_order", ParseReduceOrder));
  MESHIFT_ASSIGN_OR_RETURN(step.sizes,
                           OptionalName<StepSizes>(json, "sizes", "sizes", ParseStepSizes));
  MESHIFT_ASSIGN_OR_RETURN(step.wire_dtype,
                           OptionalName<DType>(json, "wire_dtype", "dtype", ParseDType));
  MESHIFT_ASSIGN_OR_RETURN(step.accumulate_dtype,
                           OptionalName<DType>(json, "accumulate_dtype", "dtype", ParseDType));
  MESHIFT_ASSIGN_OR_RETURN(step.bytes_in, IntegerMember(json, "bytes_in"));
  MESHIFT_ASSIGN_OR_RETURN(step.bytes_out, IntegerMember(json, "bytes_out"));
  MESHIFT_ASSIGN_OR_RETURN(step.bytes_sent, IntegerMember(json, "bytes_sent"));
  MESHIFT_ASSIGN_OR_RETURN(step.est_ns, IntegerMember(json, "est_ns"));
  return step;
}

absl::StatusOr<PlanInputs> Reader::ReadInputs(const Json& json, Reproducibility asked) {
  PlanInputs inputs{{.reproducibility = asked}};
  MESHIFT_ASSIGN_OR_RETURN(const std::string topology_text, String(json, "topology"));
  absl::StatusOr<Topology> topology = Topology::Parse(topology_text);
  if (!topology.ok()) return Fault("topology", Message(topology.status()));
  inputs.options.topology = *std::move(topology);
  MESHIFT_ASSIGN_OR_RETURN(std::string engine, String(json, "engine"));
  inputs.options.engine = EngineCapabilities::Of(std::move(engine));
  MESHIFT_ASSIGN_OR_RETURN(const Json* options, ObjectMember(json, "options"));
  for (const auto& [name, value] : options->items()) {
    if (!value.is_string()) return WrongType("options", value, "an object of strings");
    std::string rule;
    const absl::Status read =
        ReadStatedOption(name, value.get<std::string>(), meshes_, &inputs, &rule);
    if (!read.ok()) return Fault(std::move(rule), Message(read));
  }
  if (inputs.options.reproducibility != asked) {
    return Fault("promise", fmt::format("option reproducibility is '{}'; key 'asked' is '{}'",
                                        Name(inputs.options.reproducibility), Name(asked)));
  }
  return inputs;
}

absl::StatusOr<Plan> Reader::Read(std::string_view text) {
  absl::StatusOr<Json> parsed = ParseJsonText(text);
  const JsonEmptier emptier(parsed);
  if (!parsed.ok()) return Fault("format", Message(parsed.status()));
  const Json& root = *parsed;
  if (root.is_discarded()) return Fault("format", "the text is not JSON, or is cut short");
  if (!root.is_object()) return Fault("format", "the text is not one JSON object");
  MESHIFT_ASSIGN_OR_RETURN(const std::string format, String(root, "format"));
  if (format != kFormat) {
    return Fault("format", fmt::format("format '{}' is not '{}'", format, kFormat));
  }
  MESHIFT_ASSIGN_OR_RETURN(const int64_t version, IntegerMember(root, "version"));
  if (version > kVersion) {
    return Fault("format",
                 fmt::format("version {} is newer than {}, the newest known", version, kVersion),
                 absl::StatusCode::kUnimplemented);
  }
  if (version < 1) return Fault("format", fmt::format("version {} is not known", version));
  MESHIFT_ASSIGN_OR_RETURN(const std::string fingerprint_text, String(root, "fingerprint"));
  absl::StatusOr<Fingerprint> fingerprint = Fingerprint::Parse(fingerprint_text);
  if (!fingerprint.ok()) return Fault("fingerprint", Message(fingerprint.status()));

  MESHIFT_ASSIGN_OR_RETURN(const Json* meshes, ArrayMember(root, "meshes"));
  for (const Json& mesh_json : *meshes) {
    MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh, ReadMesh(mesh_json));
    meshes_.push_back(std::move(mesh));
  }
  MESHIFT_ASSIGN_OR_RETURN(const Json* tensor, ObjectMember(root, "tensor"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string dtype_name, String(*tensor, "dtype"));
  absl::StatusOr<DType> dtype = ParseDType(dtype_name);
  if (!dtype.ok()) return Fault("dtype", Message(dtype.status()));
  MESHIFT_ASSIGN_OR_RETURN(const Json* shape_json, ArrayMember(*tensor, "shape"));
  Shape shape;
  for (const Json& size_json : *shape_json) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t size, Integer("shape", size_json));
    shape.push_back(size);
  }
  absl::StatusOr<TensorType> type = TensorType::Create(*dtype, std::move(shape));
  if (!type.ok()) return Fault("format", Message(type.status()));
  tensor_ = *std::move(type);
  value_ = tensor_;

  MESHIFT_ASSIGN_OR_RETURN(auto from, ReadSharding(root, "from", tensor_));
  MESHIFT_ASSIGN_OR_RETURN(const Json* to_json, ObjectMember(root, "to"));
  MESHIFT_ASSIGN_OR_RETURN(const TensorType to_tensor, ReadCast(*to_json, tensor_));
  MESHIFT_ASSIGN_OR_RETURN(auto to, ReadSharding(root, "to", to_tensor));

  PlanFields fields{.meshes = meshes_,
                    .from_mesh = from.first,
                    .to_mesh = to.first,
                    .from = std::move(from.second),
                    .to = std::move(to.second)};
  MESHIFT_ASSIGN_OR_RETURN(const Json* promise, ObjectMember(root, "reproducibility"));
  Reproducibility asked;
  for (const auto& [key, field] : {std::pair{"asked", &asked}, {"kept", &fields.kept}}) {
    MESHIFT_ASSIGN_OR_RETURN(const std::string name, String(*promise, key));
    absl::StatusOr<Reproducibility> parsed = ParseReproducibility(name);
    if (!parsed.ok()) return Fault("promise", Message(parsed.status()));
    *field = *parsed;
  }
  MESHIFT_ASSIGN_OR_RETURN(fields.why, String(*promise, "why"));

  MESHIFT_ASSIGN_OR_RETURN(const Json* total, ObjectMember(root, "total"));
  MESHIFT_ASSIGN_OR_RETURN(fields.total.collectives, IntegerMember(*total, "collectives"));
  MESHIFT_ASSIGN_OR_RETURN(fields.total.bytes_sent, IntegerMember(*total, "bytes_sent"));
  MESHIFT_ASSIGN_OR_RETURN(fields.total.est_ns, IntegerMember(*total, "est_ns"));
  if (total->contains("setup_ns")) {
    MESHIFT_ASSIGN_OR_RETURN(fields.total.setup_ns, IntegerMember(*total, "setup_ns"));
  }
  MESHIFT_ASSIGN_OR_RETURN(fields.total.peak_bytes, IntegerMember(*total, "peak_bytes"));
  MESHIFT_ASSIGN_OR_RETURN(fields.total.workspace_bytes, IntegerMember(*total, "workspace_bytes"));
  MESHIFT_ASSIGN_OR_RETURN(const Json* bound, ObjectMember(root, "lower_bound"));
  MESHIFT_ASSIGN_OR_RETURN(fields.lower_bound.bytes_sent, IntegerMember(*bound, "bytes_sent"));
  MESHIFT_ASSIGN_OR_RETURN(fields.lower_bound.est_ns, IntegerMember(*bound, "est_ns"));
  MESHIFT_ASSIGN_OR_RETURN(const Json* inputs, ObjectMember(root, "inputs"));
  MESHIFT_ASSIGN_OR_RETURN(fields.inputs, ReadInputs(*inputs, asked));

  MESHIFT_ASSIGN_OR_RETURN(const Json* steps, ArrayMember(root, "steps"));
  for (size_t i = 0; i < steps->size(); ++i) {
    step_ = static_cast<int>(i);
    MESHIFT_ASSIGN_OR_RETURN(Step step, ReadStep((*steps)[i]));
    fields.steps.push_back(std::move(step));
  }
  return Plan::FromParts(std::move(fields), *fingerprint);
}

}  // namespace

std::string PlanToJson(const Plan& plan, int indent) {
  const PlanFields& f = plan.fields();
  Json meshes = Json::array();
  for (const DeviceMesh& mesh : f.meshes) meshes.push_back(MeshToJson(mesh));
  Json shape = Json::array();
  for (int64_t size : f.from.shape()) shape.push_back(size);
  Json steps = Json::array();
  DType dtype = f.from.dtype();
  for (const Step& step : f.steps) {
    steps.push_back(StepToJson(step, dtype));
    dtype = step.after.dtype();
  }
  Json options = Json::object();
  for (auto& [name, value] : StatedOptions(f)) options[std::string(name)] = std::move(value);
  Json to = {{"mesh", f.to_mesh}, {"placements", f.to.PlacementsText()}};
  if (f.to.dtype() != f.from.dtype()) to["dtype"] = std::string(Name(f.to.dtype()));
  Json total = {{"collectives", f.total.collectives},
                {"bytes_sent", f.total.bytes_sent},
                {"est_ns", f.total.est_ns}};
  if (f.total.setup_ns != 0) total["setup_ns"] = f.total.setup_ns;
  total["peak_bytes"] = f.total.peak_bytes;
  total["workspace_bytes"] = f.total.workspace_bytes;
  const Json root = {
      {"format", std::string(kFormat)},
      {"version", HasAt(f) ? kVersion : 1},
      {"fingerprint", plan.fingerprint().ToString()},
      {"meshes", std::move(meshes)},
      {"tensor", {{"dtype", std::string(Name(f.from.dtype()))}, {"shape", std::move(shape)}}},
      {"from", {{"mesh", f.from_mesh}, {"placements", f.from.PlacementsText()}}},
      {"to", std::move(to)},
      {"reproducibility",
       {{"asked", std::string(Name(plan.asked()))},
        {"kept", std::string(Name(f.kept))},
        {"why", f.why}}},
      {"steps", std::move(steps)},
      {"total", std::move(total)},
      {"lower_bound", {{"bytes_sent", f.lower_bound.bytes_sent}, {"est_ns", f.lower_bound.est_ns}}},
      {"inputs",
       {{"topology", f.inputs.options.topology.ToString()},
        {"options", std::move(options)},
        {"engine", f.inputs.options.engine.name()}}}};
  return root.dump(indent, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Plan> PlanFromJson(std::string_view json, PlanFault* fault) {
  PlanFault unused;
  return Reader(fault != nullptr ? fault : &unused).Read(json);
}

}  // namespace meshift
