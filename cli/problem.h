// The problem options that the verbs share: which tensor goes from where to where, and how to plan.
//
//   ProblemFlags flags{.mesh = "ddp=8,fsdp=5,tp=1", .tensor = "bf16[4096,512]",
//                      .from = "P,P,R", .to = "R,R,R", .topology = "nvlink=8"};
//   MESHIFT_ASSIGN_OR_RETURN(Problem problem, ParseProblem(flags));
#ifndef MESHIFT_CLI_PROBLEM_H_
#define MESHIFT_CLI_PROBLEM_H_

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"

namespace meshift::cli {

// Options of planner/plan/option_table.h, by name: as typed.
using OptionTexts = std::map<std::string, std::string, std::less<>>;

// As typed; nullopt where an option was not given and has no default.
struct ProblemFlags {
  // From a line of `plan --batch`: errors name its keys ("max_memory"), not options.
  bool is_line = false;
  bool allow_files = false;  // of a line: it may name a file that is then read
  std::optional<std::string> mesh;
  std::optional<std::string> to_mesh;  // of the target; none: the source's
  bool relabel_ranks = false;          // the target's ranks in the order that moves the least
  std::optional<std::string> tensor;
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::optional<std::string> to_dtype;  // of the target; none: the source's
  std::optional<std::string> topology;
  OptionTexts options;
  const char* promise_option = "--promise";  // or "--reproducibility": by which it was given
  std::string engine = "local";              // that the plan is for: cli/engines.h
  // Of the engine that runs; none: what is known of its kind.
  std::optional<EngineCapabilities> capabilities;
  std::optional<std::string> model;
  std::optional<std::string> dtype;  // of all the model's sources; none: the model's
  std::optional<std::string> filter;
  std::optional<std::string> rules;  // what goes where, by parameter: cli/rules.h
};

struct Problem {
  Sharding from;
  Sharding to;
  PlannerOptions options;
};

// Errors name the option: "--tensor: ...".
absl::StatusOr<Problem> ParseProblem(const ProblemFlags& flags);
// The same on meshes that are read already, and with these options but for the existing groups.
// REQUIRES: flags.tensor, flags.from and flags.to.
absl::StatusOr<Problem> ParseProblem(const ProblemFlags& flags, const DeviceMesh& mesh,
                                     const DeviceMesh& to_mesh, PlannerOptions options);

// The cheapest plan. Refusals name the options as they are typed: "--max-memory is 9 bytes ...".
absl::StatusOr<Plan> PlanOf(const Problem& problem);

// The part of the flags that says how to plan, but --existing-groups, which ParseExistingGroups
// reads. cli/topology_text.h says what a topology may be.
absl::StatusOr<PlannerOptions> ParsePlannerOptions(const ProblemFlags& flags);
// Changes what the flags name; the engine stays.
absl::Status SetPlannerOptions(const ProblemFlags& flags, PlannerOptions* options);
// What --existing-groups says of plans from one mesh to another, or on one.
absl::Status ParseExistingGroups(const ProblemFlags& flags, const DeviceMesh& from,
                                 const DeviceMesh& to, GroupBudget* budget);

// The mesh of the target: that of --to-mesh, else `mesh`.
absl::StatusOr<DeviceMesh> ParseTargetMesh(const DeviceMesh& mesh, const ProblemFlags& flags);

// `source` as the target has it: on `mesh`, placed as `placements` say, of the dtype of --to-dtype.
absl::StatusOr<Sharding> ParseTarget(const Sharding& source, const DeviceMesh& mesh,
                                     const std::string& placements, const ProblemFlags& flags);

// The value of an option that must be there; INVALID_ARGUMENT "--mesh is missing" where it is not.
absl::StatusOr<std::string> Require(const std::optional<std::string>& value, const char* option);
// INVALID_ARGUMENT where `value` was given although `other` excludes it.
absl::Status Exclude(const std::optional<std::string>& value, const char* option,
                     const char* other);
// Excludes the topology and all other options of planning but the named ones.
absl::Status ExcludeOptions(const ProblemFlags& flags, const char* other,
                            std::initializer_list<std::string_view> but = {});
// Excludes those that state a problem: meshes, tensor, from, to, dtypes, model, filter.
absl::Status ExcludeProblem(const ProblemFlags& flags, const char* other);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_PROBLEM_H_
