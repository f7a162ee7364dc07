// Parses the options with which several commands state a problem: the tensor, its source and target
// shardings, and how to plan.
//
//   ProblemFlags flags{.mesh = "ddp=8,fsdp=5,tp=1", .tensor = "bf16[4096,512]",
//                      .from = "P,P,R", .to = "R,R,R", .topology = "nvlink=8"};
//   MESHIFT_ASSIGN_OR_RETURN(Problem problem, ParseProblem(flags));
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, PlanOf(problem));
//
// Errors are INVALID_ARGUMENT and name the option ("--tensor ..."), or the key for a batch line.
// Exceptions: a topology file gives BadFile (cli/io.h); --relabel-ranks gives RESOURCE_EXHAUSTED if
// it needs more than half of max_work; PlanOf gives the errors of MakePlan. Opens no file but that
// of the topology. Does not read models and rules (cli/model_plan.h).
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

// Options of planner/plan/option_table.h by name, as typed.
using OptionTexts = std::map<std::string, std::string, std::less<>>;

// Options as typed; nullopt for an option that was not given and has no default.
struct ProblemFlags {
  // From a line of `plan --batch`: errors name its keys ("max_memory"), not options.
  bool is_line = false;
  bool allow_files = false;  // for a line: its topology may be a file
  std::optional<std::string> mesh;
  std::optional<std::string> to_mesh;  // the target's; none: the source's
  bool relabel_ranks = false;          // reorder the target's ranks to move the fewest bytes
  std::optional<std::string> tensor;
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::optional<std::string> to_dtype;  // the target's; none: the source's
  std::optional<std::string> topology;
  OptionTexts options;
  const char* promise_option = "--promise";  // or "--reproducibility", if that was given
  std::string engine = "local";              // the engine to plan for: cli/engines.h
  // Of the running engine; none: the typical capabilities of its kind.
  std::optional<EngineCapabilities> capabilities;
  std::optional<std::string> model;
  std::optional<std::string> dtype;  // for all sources of the model; none: the file's
  std::optional<std::string> filter;
  std::optional<std::string> rules;  // placements by parameter: cli/rules.h
};

struct Problem {
  Sharding from;
  Sharding to;
  PlannerOptions options;
};

// The problem of one tensor. Refuses missing options, and `rules` and `dtype`, which need a model.
// Ignores `model` and `filter`.
absl::StatusOr<Problem> ParseProblem(const ProblemFlags& flags);
// The same for meshes that are parsed already and for these options, to which it adds the existing
// groups. Does not refuse `rules` and `dtype`. REQUIRES: flags.tensor, flags.from and flags.to are
// set.
absl::StatusOr<Problem> ParseProblem(const ProblemFlags& flags, const DeviceMesh& mesh,
                                     const DeviceMesh& to_mesh, PlannerOptions options);

// The plan that MakePlan makes. Errors are those of MakePlan, but name options as the command line
// does: "--max-memory is 9 bytes ...".
absl::StatusOr<Plan> PlanOf(const Problem& problem);

// The planner options among the flags, except --existing-groups, which ParseExistingGroups reads.
// Does not check the name of the engine (CheckEngine).
// cli/topology_text.h describes the forms of a topology.
absl::StatusOr<PlannerOptions> ParsePlannerOptions(const ProblemFlags& flags);
// Sets the options that the flags name, except --existing-groups; keeps the others. Does not read
// the engine and its capabilities.
absl::Status SetPlannerOptions(const ProblemFlags& flags, PlannerOptions* options);
// Reads --existing-groups for plans from one mesh to another, or on one.
absl::Status ParseExistingGroups(const ProblemFlags& flags, const DeviceMesh& from,
                                 const DeviceMesh& to, GroupBudget* budget);

// The target's mesh: --to-mesh, else `mesh`.
absl::StatusOr<DeviceMesh> ParseTargetMesh(const DeviceMesh& mesh, const ProblemFlags& flags);

// The target's sharding of the tensor of `source`: on `mesh`, with `placements` and the dtype of
// --to-dtype. With `rules`, errors of `placements` begin with "to".
absl::StatusOr<Sharding> ParseTarget(const Sharding& source, const DeviceMesh& mesh,
                                     const std::string& placements, const ProblemFlags& flags);

// The value of a required option; INVALID_ARGUMENT "--mesh is missing" if it was not given.
absl::StatusOr<std::string> Require(const std::optional<std::string>& value, const char* option);
// INVALID_ARGUMENT if `value` was given although `other` excludes it.
absl::Status Exclude(const std::optional<std::string>& value, const char* option,
                     const char* other);
// As Exclude, for the topology and all other planner options except the named ones.
absl::Status ExcludeOptions(const ProblemFlags& flags, const char* other,
                            std::initializer_list<std::string_view> but = {});
// As Exclude, for the options of a problem: meshes, relabel_ranks, tensor, from, to, dtypes, model,
// rules, filter.
absl::Status ExcludeProblem(const ProblemFlags& flags, const char* other);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_PROBLEM_H_
