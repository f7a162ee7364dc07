// The table of planner options: names, flags, help, and a reader and a writer for each. Plans,
// lines of `meshift plan --batch`, the command line and the C API use it.
//
//   const PlannerOption* option = FindPlannerOption("max_memory");
//   option->flag;                                    // "--max-memory"
//   MESHIFT_RETURN_IF_ERROR(option->read("1.5GiB", meshes, &options));   // sets options.max_memory
//   option->write(options, meshes);                  // "1610612736"
//
// The table also has native_invariance, a property of the engine. It has neither the topology nor
// the engine's name, which have keys and flags of their own. It checks each option by itself;
// planning refuses combinations. The table is constant, and safe for concurrent use.
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

// The JSON type of an option's value in a line of a batch; plans state every value as a string.
// kName: a string. kGroups: a string that names dims of the plan's meshes. kNumber: an integer.
// kBytes: an integer in bytes, or a string, which may have a unit from B to EiB. kSwitch: true or
// false; as text "on" or "off".
enum class OptionKind : uint8_t { kName, kGroups, kNumber, kBytes, kSwitch };

struct PlannerOption {
  std::string_view name;  // "max_memory"
  std::string_view flag;  // "--max-memory"; a switch has the flag that turns it off
  OptionKind kind;
  std::string_view value_name;  // "BYTES", for help; empty for a switch
  std::string_view help;
  std::string_view rule;  // the rule of docs/errors.md that a bad value breaks

  // Sets the option from `text`. Only kGroups reads `meshes`, those of the plan. INVALID_ARGUMENT
  // names the text; *options is unchanged.
  absl::Status (*read)(std::string_view text, absl::Span<const DeviceMesh> meshes,
                       PlannerOptions* options);
  // The option's value as text, which `read` accepts if the value is valid. nullopt if a plan does
  // not state it: it is not set, has its default, or does not affect this plan.
  std::optional<std::string> (*write)(const PlannerOptions& options,
                                      absl::Span<const DeviceMesh> meshes);
};

// In the order in which plans state them.
absl::Span<const PlannerOption> PlannerOptionTable();
// Null if no option has that name.
const PlannerOption* FindPlannerOption(std::string_view name);

// The options that a plan states: pairs of a name and a text, in the order of the table. Last comes
// exceeded_max_value, unless it is 0: plans state it as an option, but it is not in the table.
std::vector<std::pair<std::string_view, std::string>> StatedOptions(const PlanFields& plan);
// Sets one stated option, also exceeded_max_value. `meshes`: those of the plan. Unknown names are
// ignored. INVALID_ARGUMENT: `text` is not a value of the option. *rule is always set; it has a
// meaning only with an error: the rule that `text` breaks.
absl::Status ReadStatedOption(std::string_view name, std::string_view text,
                              absl::Span<const DeviceMesh> meshes, PlanInputs* inputs,
                              std::string* rule);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_OPTION_TABLE_H_
