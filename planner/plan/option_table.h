// The options of planning by name: as a plan's text, a line of a batch and the command line say
// them.
//
//   const PlannerOption* option = FindPlannerOption("max_memory");
//   option->flag;                                    // "--max-memory"
//   option->read("1.5GiB", meshes, &options);        // sets options.max_memory
//   option->write(options, meshes);                  // "1610612736"
//
// The topology and the engine have places of their own in all three.
#ifndef MESHIFT_PLANNER_PLAN_OPTION_TABLE_H_
#define MESHIFT_PLANNER_PLAN_OPTION_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner_options.h"

namespace meshift {

// What the value of an option is in JSON: a string; one in words of the plan's meshes; an integer;
// an integer, or a string with a unit; true or false, "on" or "off" as text.
enum class OptionKind : uint8_t { kName, kGroups, kNumber, kBytes, kSwitch };

struct PlannerOption {
  std::string_view name;  // "max_memory"
  std::string_view flag;  // "--max-memory"; of a switch the one that says "off"
  OptionKind kind;
  std::string_view value_name;  // "BYTES", for help; of a switch empty
  std::string_view help;
  std::string_view rule;  // that a plan breaks in which the option has no value of its own

  // Sets what `text` says. `meshes`: of the plan; only kGroups reads them. INVALID_ARGUMENT names
  // the text; the options are then as before.
  absl::Status (*read)(std::string_view text, absl::Span<const DeviceMesh> meshes,
                       PlannerOptions* options);
  // What `read` takes for the value that it has; nullopt where a plan does not say it, since it is
  // as by default.
  std::optional<std::string> (*write)(const PlannerOptions& options,
                                      absl::Span<const DeviceMesh> meshes);
};

// In the order in which plans say them.
absl::Span<const PlannerOption> PlannerOptionTable();
// Null: no option has that name.
const PlannerOption* FindPlannerOption(std::string_view name);

// What a plan says of its options: pairs of a name and a text, in the table's order.
std::vector<std::pair<std::string_view, std::string>> StatedOptions(const PlanFields& plan);
// Takes one of them in. `meshes`: the plan's. Names that are not known say nothing.
// INVALID_ARGUMENT: the text is no value of the option; *rule is then the one that is broken.
absl::Status ReadStatedOption(std::string_view name, std::string_view text,
                              absl::Span<const DeviceMesh> meshes, PlanInputs* inputs,
                              std::string* rule);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_OPTION_TABLE_H_
