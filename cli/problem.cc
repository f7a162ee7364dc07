#include "cli/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "base/status.h"
#include "base/work_budget.h"
#include "cli/io.h"
#include "cli/topology_text.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "planner/plan/option_table.h"

namespace meshift::cli {
namespace {

// `option` as the user wrote it: a line has the key "max_memory" for "--max-memory".
std::string Spelled(const ProblemFlags& flags, std::string_view option) {
  if (!flags.is_line) return std::string(option);
  std::string key(option.substr(2));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

// The same for a planner option. The promise has two names: --promise and --reproducibility.
std::string Spelled(const ProblemFlags& flags, const PlannerOption& option) {
  if (flags.is_line) return std::string(option.name);
  return option.name == "reproducibility" ? flags.promise_option : std::string(option.flag);
}

bool IsPartOfName(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; }

// Replaces `name` by `replacement` where it is not a part of a longer name.
std::string ReplaceName(std::string_view text, std::string_view name,
                        std::string_view replacement) {
  std::string result;
  for (size_t at = text.find(name); at != text.npos; at = text.find(name)) {
    const std::string_view rest = text.substr(at + name.size());
    const bool is_whole =
        (at == 0 || !IsPartOfName(text[at - 1])) && (rest.empty() || !IsPartOfName(rest.front()));
    result.append(text.substr(0, at)).append(is_whole ? replacement : name);
    text = rest;
  }
  return result.append(text);
}

// Replaces the planner's names of options in the message by those of the command line.
absl::Status AsTyped(const absl::Status& status) {
  std::string message(status.message());
  for (const PlannerOption& option : PlannerOptionTable()) {
    const std::string name(option.name);
    if (name.find('_') == name.npos) continue;  // may be an English word
    if (option.kind == OptionKind::kSwitch) {
      const std::string off = fmt::format("{} is given", option.flag);
      message = ReplaceName(message, name + " is off", off);
      message = ReplaceName(message, "allow_" + name + " is off", off);
    }
    message = ReplaceName(message, name, option.flag);
    // Some messages have both names.
    const std::string twice = fmt::format("{0} ({0})", option.flag);
    if (const size_t at = message.find(twice); at != message.npos) {
      message.replace(at, twice.size(), option.flag);
    }
  }
  return absl::Status(status.code(), message);
}

// *value = parse(text), if there is a text; errors name the option.
template <typename Parse, typename Value>
absl::Status Read(const ProblemFlags& flags, const std::optional<std::string>& text,
                  std::string_view option, const Parse& parse, Value* value) {
  if (!text) return absl::OkStatus();
  auto parsed = parse(*text);
  if (!parsed.ok()) return Annotate(parsed.status(), Spelled(flags, option));
  *value = *std::move(parsed);
  return absl::OkStatus();
}

absl::Status SetTopology(const ProblemFlags& flags, Topology* topology) {
  if (!flags.topology) return absl::OkStatus();
  if (flags.is_line && !flags.allow_files && NamesFile(*flags.topology)) {
    return InvalidArgument("topology '{}' names a file; lines may do so with --allow-files",
                           *flags.topology);
  }
  absl::StatusOr<TopologyText> read = ReadTopology(*flags.topology);
  if (!read.ok()) {
    // A line's message begins with "topology" already, and that of a file with the file's name.
    const bool is_whole = flags.is_line || ExitCodeOf(read.status()) == kExitBadFile;
    return is_whole ? read.status() : Annotate(read.status(), "--topology");
  }
  *topology = std::move(read->topology);
  return absl::OkStatus();
}

absl::Status SetOption(const ProblemFlags& flags, const PlannerOption& option,
                       absl::Span<const DeviceMesh> meshes, PlannerOptions* options) {
  const auto given = flags.options.find(option.name);
  if (given == flags.options.end()) return absl::OkStatus();
  return Annotate(option.read(given->second, meshes, options), Spelled(flags, option));
}

}  // namespace

absl::Status SetPlannerOptions(const ProblemFlags& flags, PlannerOptions* options) {
  MESHIFT_RETURN_IF_ERROR(SetTopology(flags, &options->topology));
  for (const PlannerOption& option : PlannerOptionTable()) {
    if (option.kind == OptionKind::kGroups) continue;
    MESHIFT_RETURN_IF_ERROR(SetOption(flags, option, {}, options));
  }
  return absl::OkStatus();
}

absl::StatusOr<PlannerOptions> ParsePlannerOptions(const ProblemFlags& flags) {
  PlannerOptions options;
  options.engine = flags.capabilities.value_or(EngineCapabilities::Of(flags.engine));
  MESHIFT_RETURN_IF_ERROR(SetPlannerOptions(flags, &options));
  return options;
}

absl::Status ParseExistingGroups(const ProblemFlags& flags, const DeviceMesh& from,
                                 const DeviceMesh& to, GroupBudget* budget) {
  std::vector<DeviceMesh> meshes = {from};
  if (!(from == to)) meshes.push_back(to);
  PlannerOptions options;
  options.groups = *budget;
  MESHIFT_RETURN_IF_ERROR(
      SetOption(flags, *FindPlannerOption("existing_groups"), meshes, &options));
  *budget = std::move(options.groups);
  return absl::OkStatus();
}

absl::StatusOr<DeviceMesh> ParseTargetMesh(const DeviceMesh& mesh, const ProblemFlags& flags) {
  DeviceMesh to_mesh = mesh;
  MESHIFT_RETURN_IF_ERROR(Read(flags, flags.to_mesh, "--to-mesh", DeviceMesh::Parse, &to_mesh));
  return to_mesh;
}

absl::StatusOr<Sharding> ParseTarget(const Sharding& source, const DeviceMesh& mesh,
                                     const std::string& placements, const ProblemFlags& flags) {
  TensorType tensor = source.tensor();
  const auto cast = [&](const std::string& text) -> absl::StatusOr<TensorType> {
    MESHIFT_ASSIGN_OR_RETURN(const DType dtype, ParseDType(text));
    return TensorType::Create(dtype, source.shape());
  };
  MESHIFT_RETURN_IF_ERROR(Read(flags, flags.to_dtype, "--to-dtype", cast, &tensor));
  absl::StatusOr<Sharding> to = Sharding::Parse(std::move(tensor), mesh, placements);
  if (!to.ok()) return Annotate(to.status(), flags.rules ? "to" : Spelled(flags, "--to"));
  return to;
}

absl::StatusOr<Problem> ParseProblem(const ProblemFlags& flags) {
  MESHIFT_ASSIGN_OR_RETURN(const std::string mesh_text, Require(flags.mesh, "--mesh"));
  MESHIFT_RETURN_IF_ERROR(Require(flags.tensor, "--tensor").status());
  MESHIFT_RETURN_IF_ERROR(Require(flags.from, "--from").status());
  MESHIFT_RETURN_IF_ERROR(Require(flags.to, "--to").status());
  MESHIFT_ASSIGN_OR_RETURN(PlannerOptions options, ParsePlannerOptions(flags));
  if (flags.rules) return InvalidArgument("--rules needs --model");
  if (flags.dtype) return InvalidArgument("--dtype needs --model; --tensor contains its own dtype");

  const absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(mesh_text);
  if (!mesh.ok()) return Annotate(mesh.status(), "--mesh");
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh to_mesh, ParseTargetMesh(*mesh, flags));
  return ParseProblem(flags, *mesh, to_mesh, std::move(options));
}

absl::StatusOr<Problem> ParseProblem(const ProblemFlags& flags, const DeviceMesh& mesh,
                                     const DeviceMesh& to_mesh, PlannerOptions options) {
  const absl::StatusOr<TensorType> tensor = TensorType::Parse(*flags.tensor);
  if (!tensor.ok()) {
    return Annotate(tensor.status(),
                    fmt::format("{} '{}'", Spelled(flags, "--tensor"), *flags.tensor));
  }
  absl::StatusOr<Sharding> from = Sharding::Parse(*tensor, mesh, *flags.from);
  if (!from.ok()) return Annotate(from.status(), Spelled(flags, "--from"));
  MESHIFT_ASSIGN_OR_RETURN(Sharding to, ParseTarget(*from, to_mesh, *flags.to, flags));
  if (flags.relabel_ranks) {
    // Up to half of max_work, beside the max_work that planning may use.
    WorkBudget budget(options.max_work / 2);
    const absl::StatusOr<DeviceMesh> relabelled = RelabelRanks({{*from, to}}, &budget);
    if (!relabelled.ok()) return Annotate(relabelled.status(), Spelled(flags, "--relabel-ranks"));
    MESHIFT_ASSIGN_OR_RETURN(to, to.OnMesh(*relabelled));
  }
  MESHIFT_RETURN_IF_ERROR(ParseExistingGroups(flags, mesh, to.mesh(), &options.groups));
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

absl::Status ExcludeOptions(const ProblemFlags& flags, const char* other,
                            std::initializer_list<std::string_view> but) {
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.topology, "--topology", other));
  for (const PlannerOption& option : PlannerOptionTable()) {
    const bool may_be = std::find(but.begin(), but.end(), option.name) != but.end();
    if (may_be || !flags.options.contains(option.name)) continue;
    return InvalidArgument("{} and {} exclude each other", Spelled(flags, option), other);
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
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.dtype, "--dtype", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.model, "--model", other));
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.rules, "--rules", other));
  return Exclude(flags.filter, "--filter", other);
}

absl::StatusOr<Plan> PlanOf(const Problem& problem) {
  absl::StatusOr<Plan> plan = MakePlan(problem.from, problem.to, problem.options);
  if (!plan.ok()) return AsTyped(plan.status());
  return plan;
}

}  // namespace meshift::cli
