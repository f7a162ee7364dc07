#include "cli/batch.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clipped.h"
#include "base/parse_json.h"
#include "base/status.h"
#include "base/work_budget.h"
#include "cli/input_file.h"
#include "cli/io.h"
#include "cli/json.h"
#include "cli/model_plan.h"
#include "cli/problem.h"
#include "cli/text.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/status.h"
#include "meshift/verifier.h"
#include "planner/plan/option_table.h"

namespace meshift::cli {
namespace {

// The most unknown keys that a batch names on io.err.
constexpr size_t kMaxIgnored = 100;

// The line's "id"; null if it has none.
Json IdOf(const absl::StatusOr<Json>& line) {
  if (!line.ok() || !line->is_object()) return nullptr;
  const auto id = line->find("id");
  return id == line->end() ? Json(nullptr) : *id;
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
      return InvalidArgument("ranks is {}; it must be null or a list of at least one rank",
                             JsonQuote(*ranks_json));
    }
    for (const Json& rank : *ranks_json) {
      MESHIFT_ASSIGN_OR_RETURN(const int64_t value, JsonInt(rank, "a rank"));
      ranks.push_back(value);
    }
  }
  absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Create(std::move(dims), std::move(ranks));
  if (!mesh.ok()) return Annotate(mesh.status(), std::string(key));
  return mesh;
}

absl::StatusOr<bool> JsonBool(const Json& json, std::string_view key) {
  if (json.is_boolean()) return json.get<bool>();
  return InvalidArgument("{}: {} is neither true nor false", key, JsonQuote(json));
}

// The value of a planner option, as text for PlannerOption::read.
absl::StatusOr<std::string> TextOf(const PlannerOption& option, const Json& value) {
  if (option.kind == OptionKind::kSwitch) {
    MESHIFT_ASSIGN_OR_RETURN(const bool is_on, JsonBool(value, option.name));
    return std::string(is_on ? "on" : "off");
  }
  const bool may_be_text = option.kind != OptionKind::kNumber;
  const bool may_be_number =
      option.kind == OptionKind::kNumber || option.kind == OptionKind::kBytes;
  if (may_be_number && !(may_be_text && value.is_string())) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t number, JsonInt(value, option.name));
    return fmt::format("{}", number);
  }
  return JsonString(value, option.name);
}

// The keys of one line. It remembers the keys that were read: any other key is probably misspelt.
// A null value counts as a missing key, except for Get().
class Line {
 public:
  // REQUIRES: `object` is an object, and outlives this.
  explicit Line(const Json& object) : object_(object) {}

  // Null if the key is missing.
  const Json* Find(const std::string& key) {
    asked_.insert(key);
    const auto value = object_.find(key);
    return value == object_.end() || value->is_null() ? nullptr : &*value;
  }
  // These leave the output unchanged if the key is missing.
  absl::Status ReadString(const std::string& key, std::optional<std::string>* text) {
    const Json* const value = Find(key);
    if (value == nullptr) return absl::OkStatus();
    MESHIFT_ASSIGN_OR_RETURN(*text, JsonString(*value, key));
    return absl::OkStatus();
  }
  absl::Status ReadBool(const std::string& key, bool* flag) {
    const Json* const value = Find(key);
    if (value == nullptr) return absl::OkStatus();
    MESHIFT_ASSIGN_OR_RETURN(*flag, JsonBool(*value, key));
    return absl::OkStatus();
  }
  // For a key that must be present.
  absl::StatusOr<const Json*> Get(const std::string& key) {
    asked_.insert(key);
    return JsonMember(object_, key);
  }
  absl::StatusOr<std::string> GetString(const std::string& key) {
    MESHIFT_ASSIGN_OR_RETURN(const Json* const value, Get(key));
    return JsonString(*value, key);
  }

  std::vector<std::string> NotAskedFor() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object_.items()) {
      if (!asked_.contains(key)) keys.push_back(key);
    }
    return keys;
  }

 private:
  const Json& object_;
  std::set<std::string> asked_;
};

// All of a line except its id and its meshes.
absl::StatusOr<ProblemFlags> ReadFlags(Line& line, bool allow_files) {
  ProblemFlags flags;
  flags.is_line = true;
  flags.allow_files = allow_files;
  MESHIFT_ASSIGN_OR_RETURN(flags.tensor, line.GetString("tensor"));
  MESHIFT_ASSIGN_OR_RETURN(flags.from, line.GetString("from"));
  MESHIFT_ASSIGN_OR_RETURN(flags.to, line.GetString("to"));
  MESHIFT_RETURN_IF_ERROR(line.ReadString("to_dtype", &flags.to_dtype));
  MESHIFT_RETURN_IF_ERROR(line.ReadBool("relabel_ranks", &flags.relabel_ranks));
  for (const PlannerOption& option : PlannerOptionTable()) {
    const std::string key(option.name);
    const Json* const value = line.Find(key);
    if (value == nullptr) continue;
    MESHIFT_ASSIGN_OR_RETURN(flags.options[key], TextOf(option, *value));
  }
  if (const Json* const topology = line.Find("topology"); topology != nullptr) {
    flags.topology = topology->is_string() ? topology->get<std::string>() : JsonText(*topology);
  }
  return flags;
}

// The problem of a line. `count` is the value of its key, if it is not null. *ignored gets its
// unknown keys once the known ones are read, else stays as it is.
absl::StatusOr<Problem> ReadProblem(const absl::StatusOr<Json>& json, const BatchDefaults& defaults,
                                    int64_t* count, std::vector<std::string>* ignored) {
  if (!json.ok()) return json.status();
  if (!json->is_object()) return InvalidArgument("{} is not an object", JsonQuote(*json));
  Line line(*json);
  line.Find("id");
  if (const Json* const given = count == nullptr ? nullptr : line.Find("count"); given != nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(*count, JsonInt(*given, "count"));
    if (*count < 1) return InvalidArgument("count is {}; it must be 1 or more", *count);
  }
  MESHIFT_ASSIGN_OR_RETURN(const Json* mesh_json, line.Get("mesh"));
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, ReadMesh(*mesh_json, "mesh"));
  DeviceMesh to_mesh = mesh;
  if (const Json* const other = line.Find("to_mesh"); other != nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(to_mesh, ReadMesh(*other, "to_mesh"));
  }
  MESHIFT_ASSIGN_OR_RETURN(const ProblemFlags flags, ReadFlags(line, defaults.allow_files));
  *ignored = line.NotAskedFor();
  if (count != nullptr && flags.relabel_ranks) {
    return InvalidArgument("relabel_ranks is true; --together takes the ranks as they are");
  }
  PlannerOptions options = defaults.options;
  MESHIFT_RETURN_IF_ERROR(SetPlannerOptions(flags, &options));
  if (options.max_work > defaults.options.max_work) {
    return InvalidArgument("max_work is {}; a line may have at most {} (--max-work)",
                           options.max_work, defaults.options.max_work);
  }
  MESHIFT_ASSIGN_OR_RETURN(Problem problem, ParseProblem(flags, mesh, to_mesh, std::move(options)));
  if (defaults.existing_groups && !flags.options.contains("existing_groups")) {
    ProblemFlags given;  // on the command line
    given.options["existing_groups"] = *defaults.existing_groups;
    MESHIFT_RETURN_IF_ERROR(ParseExistingGroups(given, problem.from.mesh(), problem.to.mesh(),
                                                &problem.options.groups));
  }
  return problem;
}

// Prints notes about unknown keys to `err`, each key once, a hundred at most.
class UnknownKeys {
 public:
  explicit UnknownKeys(std::ostream& err) : err_(err) {}
  void Tell(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      if (told_.size() >= kMaxIgnored || !told_.insert(key).second) continue;
      err_ << fmt::format("meshift: ignoring the unknown key '{}' of a line\n",
                          Printable(Clipped(key, 40)));
    }
  }

 private:
  std::ostream& err_;
  std::set<std::string> told_;
};

constexpr std::string_view kNoMemory = "out of memory: the mesh, tensor or line is too large";

absl::Status TooLong() {
  return InvalidArgument("the line has more than {} bytes, the most that are read", kMaxLineBytes);
}

// The id as the answer repeats it: on one line, of printable characters.
absl::StatusOr<std::string> IdText(const Json& id) {
  std::string text = JsonText(id);
  if (text.size() > kMaxShown) {
    return InvalidArgument("the id has {} bytes; the answer can repeat at most {}", text.size(),
                           kMaxShown);
  }
  return Printable(text) == text ? text : id.dump(-1, ' ', /*ensure_ascii=*/true);
}

std::string ErrorLine(const std::string& id, const absl::Status& status) {
  const Json error = {{"code", absl::StatusCodeToString(status.code())},
                      {"message", ShownMessage(Message(status))}};
  return "{\"id\":" + id + ",\"error\":" + JsonText(error) + "}";
}

std::string VerdictLine(const std::string& id, const std::optional<PlanFault>& fault) {
  Json answer = {
      {"ok", !fault.has_value()}, {"step", nullptr}, {"rule", nullptr}, {"message", nullptr}};
  if (fault) {
    if (fault->step) answer["step"] = *fault->step;
    answer["rule"] = Shown(fault->rule);
    answer["message"] = Shown(fault->message);
  }
  return "{\"id\":" + id + "," + JsonText(answer).substr(1);
}

}  // namespace

std::string PlanLine(std::string_view text, const BatchDefaults& defaults,
                     std::vector<std::string>* ignored) {
  std::string id = "null";
  // The standard library throws if memory runs out. That ends this line only.
  try {
    absl::StatusOr<Json> line = ParseJson(text);
    const JsonEmptier emptier(line);
    const absl::StatusOr<std::string> id_text = IdText(IdOf(line));
    if (!id_text.ok()) return ErrorLine(id, id_text.status());
    id = *id_text;
    std::vector<std::string> keys;
    const absl::StatusOr<Problem> problem = ReadProblem(line, defaults, /*count=*/nullptr, &keys);
    if (ignored != nullptr) *ignored = std::move(keys);
    if (!problem.ok()) return ErrorLine(id, problem.status());
    const absl::StatusOr<Plan> plan = MakePlan(problem->from, problem->to, problem->options);
    if (!plan.ok()) return ErrorLine(id, plan.status());
    // The plan is an object on one line; the id goes before its first key.
    return "{\"id\":" + id + "," + PlanToJson(*plan, /*indent=*/-1).substr(1);
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return ErrorLine(id, absl::ResourceExhaustedError(std::string(kNoMemory)));
}

std::string CheckLine(std::string_view text, bool* ok, int64_t max_work) {
  *ok = false;
  std::string id = "null";
  try {
    absl::StatusOr<Json> line = ParseJson(text);
    const JsonEmptier emptier(line);
    std::optional<PlanFault> fault;
    if (const absl::StatusOr<std::string> id_text = IdText(IdOf(line)); id_text.ok()) {
      id = *id_text;
    } else {
      return VerdictLine(id, PlanFault{std::nullopt, "format", Message(id_text.status())});
    }
    if (!line.ok()) {
      fault = PlanFault{std::nullopt, "format", Message(line.status())};
    } else {
      PlanFault unread;
      const absl::StatusOr<Plan> plan = PlanFromJson(text, &unread);
      fault = plan.ok() ? Verify(*plan, {.max_work = max_work}).fault : unread;
    }
    *ok = !fault.has_value();
    return VerdictLine(id, fault);
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return VerdictLine(id, PlanFault{std::nullopt, "scale", std::string(kNoMemory)});
}

absl::Status PlanBatch(const std::string& path, const BatchDefaults& defaults, Io& io) {
  UnknownKeys unknown(io.err);
  const auto answer_line = [&](const std::string& line) {
    std::vector<std::string> ignored;
    const std::string answer = PlanLine(line, defaults, &ignored);
    unknown.Tell(ignored);
    io.out << answer << "\n" << std::flush;
  };
  return ForEachLine(path, io, answer_line, [&] {
    io.out << ErrorLine("null", TooLong()) << "\n" << std::flush;
  });
}

absl::Status CheckBatch(const std::string& path, int64_t max_work, Io& io, bool* ok) {
  *ok = true;
  const auto answer_line = [&](const std::string& line) {
    bool line_ok = false;
    io.out << CheckLine(line, &line_ok, max_work) << "\n" << std::flush;
    *ok = *ok && line_ok;
  };
  return ForEachLine(path, io, answer_line, [&] {
    io.out << VerdictLine("null", PlanFault{std::nullopt, "format", Message(TooLong())}) << "\n"
           << std::flush;
    *ok = false;
  });
}

namespace {

// The lines of a batch that are planned together.
struct Update {
  std::vector<TensorMove> moves;
  std::vector<std::string> ids;  // JSON texts; "null": the line has none
  PlannerOptions options;        // of the first line, and so of all
};

// An option in which `a` and `b` differ, by its key in a line; empty: none.
std::string_view DifferingOption(const PlannerOptions& a, const PlannerOptions& b) {
  if (!(a.topology == b.topology)) return "topology";
  for (const PlannerOption& option : PlannerOptionTable()) {
    const bool same = option.kind == OptionKind::kGroups
                          ? a.groups.existing_groups == b.groups.existing_groups
                          : option.write(a, {}) == option.write(b, {});
    if (!same) return option.name;
  }
  return "";
}

// Adds a line to the update.
absl::Status AddLine(const std::string& text, const BatchDefaults& defaults, WorkBudget& budget,
                     UnknownKeys* unknown, Update* update) {
  constexpr int64_t kLineWork = 8192;  // most of it stands for memory
  if (!budget.Charge(kLineWork)) return budget.Refusal("planning");
  absl::StatusOr<Json> line = ParseJson(text);
  const JsonEmptier emptier(line);
  MESHIFT_ASSIGN_OR_RETURN(std::string id, IdText(IdOf(line)));
  int64_t count = 1;
  std::vector<std::string> ignored;
  absl::StatusOr<Problem> problem = ReadProblem(line, defaults, &count, &ignored);
  unknown->Tell(ignored);
  MESHIFT_RETURN_IF_ERROR(problem.status());
  if (update->moves.empty()) {
    update->options = std::move(problem->options);
  } else if (const auto option = DifferingOption(problem->options, update->options);
             !option.empty()) {
    return InvalidArgument("{} is not that of line 1; lines planned together have the same options",
                           option);
  }
  update->moves.push_back({std::move(problem->from), std::move(problem->to), count});
  update->ids.push_back(std::move(id));
  return absl::OkStatus();
}

std::string LineName(size_t i) { return fmt::format("line {}", i + 1); }

}  // namespace

absl::StatusOr<ModelPlan> PlanBatchTogether(const std::string& path, const BatchDefaults& defaults,
                                            std::optional<int64_t> bucket_bytes, Io& io) {
  MESHIFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, io));
  UnknownKeys unknown(io.err);
  WorkBudget budget(defaults.options.max_work);  // of all lines
  Update update;
  absl::Status bad;
  const auto add = [&](const absl::Status& added) {
    if (bad.ok()) bad = Annotate(added, LineName(update.moves.size()));
  };
  std::istringstream lines(text);
  const absl::Status read = ReadLines(
      lines, kMaxLineBytes,
      [&](const std::string& line) {
        if (bad.ok()) add(AddLine(line, defaults, budget, &unknown, &update));
      },
      [&] { add(TooLong()); });
  if (bad.ok()) bad = read;
  if (bad.ok() && update.moves.empty()) bad = InvalidArgument("there are no lines");
  if (budget.exhausted()) return bad;
  if (!bad.ok()) return BadFile(path, bad);
  ModelPlan result;
  MESHIFT_RETURN_IF_ERROR(PlanRowsTogether(
      update.moves, update.options, bucket_bytes, budget, LineName,
      [&](size_t i, Plan plan) {
        ModelRow row{.count = update.moves[i].count, .plan = std::move(plan)};
        if (update.ids[i] != "null") row.id = update.ids[i];
        return row;
      },
      &result));
  return result;
}

}  // namespace meshift::cli
