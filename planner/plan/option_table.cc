#include "planner/plan/option_table.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "planner/plan/quantity.h"

namespace meshift {
namespace {

using Meshes = absl::Span<const DeviceMesh>;
using Text = std::string_view;
using Options = PlannerOptions;
using Written = std::optional<std::string>;
using enum OptionKind;

template <typename Parsed, typename Value>
absl::Status Set(absl::StatusOr<Parsed> parsed, Value* value) {
  if (!parsed.ok()) return parsed.status();
  *value = *std::move(parsed);
  return absl::OkStatus();
}

template <typename Value>
absl::Status SetNumber(Text text, int64_t least, Value* value) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < least) {
    return InvalidArgument("'{}' is not a number in {}..{}", text, least,
                           std::numeric_limits<int64_t>::max());
  }
  *value = number;
  return absl::OkStatus();
}

absl::Status SetSwitch(Text text, bool* value) {
  if (text != "on" && text != "off") return InvalidArgument("'{}' is neither on nor off", text);
  *value = text == "on";
  return absl::OkStatus();
}

template <typename Enum>
Written NameUnless(Enum value, Enum by_default) {
  return value == by_default ? Written() : Written(Name(value));
}

Written NumberUnless(int64_t value, int64_t by_default) {
  return value == by_default ? Written() : fmt::format("{}", value);
}

Written Number(const std::optional<int64_t>& value) {
  return value ? Written(fmt::format("{}", *value)) : std::nullopt;
}

Written OffUnless(bool value) { return value ? Written() : "off"; }

// Plans state it as an option, but callers cannot set it (PlanInputs::exceeded_max_value).
constexpr Text kExceeded = "exceeded_max_value";

constexpr PlannerOption kTable[] = {
    {"planner", "--planner", kName, "PLANNER", "best (default), per-dim", "planner",
     [](Text text, Meshes, Options* o) { return Set(ParsePlannerKind(text), &o->planner); },
     [](const Options& o, Meshes) { return Written(Name(o.planner)); }},
    {"reproducibility", "--promise", kName, "PROMISE",
     "the promise about bits: none, replicas (default), batch-invariant, ordered", "promise",
     [](Text text, Meshes, Options* o) {
       return Set(ParseReproducibility(text), &o->reproducibility);
     },
     [](const Options& o, Meshes) { return Written(Name(o.reproducibility)); }},
    {"reduce_dtype", "--reduce-dtype", kName, "DTYPE",
     "dtype of reductions, instead of the planner's choice: f32", "cast",
     [](Text text, Meshes, Options* o) { return Set(ParseDType(text), &o->reduce_dtype); },
     [](const Options& o, Meshes) {
       return o.reduce_dtype ? Written(Name(*o.reduce_dtype)) : std::nullopt;
     }},
    {"ragged_sizes", "--ragged-sizes", kName, "SIZES",
     "gathers and scatters of ragged shards: max (padded), sum (exact), cost (the cheaper; "
     "default)",
     "ragged_sizes",
     [](Text text, Meshes, Options* o) { return Set(ParseRaggedSizes(text), &o->ragged_sizes); },
     [](const Options& o, Meshes) { return NameUnless(o.ragged_sizes, RaggedSizes::kCost); }},
    {"ordered_reductions", "--no-ordered-reductions", kSwitch, "",
     "no ordered sums by messages and local adds; fail if the promise needs them",
     "ordered_reductions",
     [](Text text, Meshes, Options* o) { return SetSwitch(text, &o->ordered_reductions); },
     [](const Options& o, Meshes) { return OffUnless(o.ordered_reductions); }},
    {"reduce_block", "--reduce-block", kNumber, "K",
     "ordered: add blocks of K consecutive coordinates first", "reduce_block",
     [](Text text, Meshes, Options* o) { return SetNumber(text, 1, &o->reduce_block); },
     [](const Options& o, Meshes) { return NumberUnless(o.reduce_block, 0); }},
    {"max_memory", "--max-memory", kBytes, "BYTES",
     "most bytes of source, target and workspace together on a rank: 1.5GiB", "max_memory",
     [](Text text, Meshes, Options* o) { return Set(ParseBytes(text), &o->max_memory); },
     [](const Options& o, Meshes) { return Number(o.max_memory); }},
    {"max_value", "--max-value", kBytes, "BYTES",
     "most bytes of a value between two steps on a rank: 64MiB (default: 1.25 times the larger of "
     "source and target, at least 4 MiB)",
     "max_value",
     [](Text text, Meshes, Options* o) { return Set(ParseBytes(text), &o->max_value); },
     [](const Options& o, Meshes) { return Number(o.max_value); }},
    {"buffers", "--buffers", kName, "BUFFERS",
     "memory of a run: source and target in buffers of their own (two, default), the source given "
     "up (consumed), both in one buffer (one)",
     "total", [](Text text, Meshes, Options* o) { return Set(ParseBuffers(text), &o->buffers); },
     [](const Options& o, Meshes) { return NameUnless(o.buffers, Buffers::kTwo); }},
    {"new_groups", "--no-new-groups", kSwitch, "",
     "use only groups that exist: the root, and those of --existing-groups", "new_groups",
     [](Text text, Meshes, Options* o) { return SetSwitch(text, &o->groups.allow_new_groups); },
     [](const Options& o, Meshes) { return OffUnless(o.groups.allow_new_groups); }},
    {"existing_groups", "--existing-groups", kGroups, "GROUPS",
     "existing groups, such as fsdp;ddp,fsdp (1:tp for the target's mesh, - for none; default: "
     "those of each mesh dim)",
     "existing_groups",
     [](Text text, Meshes meshes, Options* o) {
       return Set(ParseMeshGroups(text, meshes), &o->groups.existing_groups);
     },
     [](const Options& o, Meshes meshes) {
       return o.groups.existing_groups ? Written(MeshGroupsText(*o.groups.existing_groups, meshes))
                                       : std::nullopt;
     }},
    {"max_communicators", "--max-communicators", kNumber, "N",
     "most communicators that a rank needs for a plan, the root included", "max_communicators",
     [](Text text, Meshes, Options* o) { return SetNumber(text, 0, &o->groups.max_communicators); },
     [](const Options& o, Meshes) { return Number(o.groups.max_communicators); }},
    {"expected_uses", "--expected-uses", kNumber, "N",
     "how often a plan runs: each new group costs its set-up time divided by N", "expected_uses",
     [](Text text, Meshes, Options* o) { return SetNumber(text, 1, &o->groups.expected_uses); },
     [](const Options& o, Meshes) { return Number(o.groups.expected_uses); }},
    {"max_work", "--max-work", kNumber, "N",
     "most work of planning, in states, steps, ranks and messages (default 2^29, a few seconds)",
     "max_work", [](Text text, Meshes, Options* o) { return SetNumber(text, 1, &o->max_work); },
     [](const Options& o, Meshes) { return NumberUnless(o.max_work, kDefaultMaxWork); }},
    {"native_invariance", "--native-invariance", kName, "OPS",
     "which of the engine's own reductions are batch-invariant: none, all_reduce, reduce_scatter "
     "(both); default: what Meshift knows of the engine",
     "promise",
     [](Text text, Meshes, Options* o) {
       return Set(ParseNativeInvariance(text), &o->engine.native_invariance);
     },
     // Plans with another promise do not depend on it.
     [](const Options& o, Meshes) {
       return o.reproducibility == Reproducibility::kBatchInvariant
                  ? Written(Name(o.engine.native_invariance))
                  : std::nullopt;
     }},
};

}  // namespace

absl::Span<const PlannerOption> PlannerOptionTable() { return kTable; }

const PlannerOption* FindPlannerOption(std::string_view name) {
  for (const PlannerOption& option : kTable) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::vector<std::pair<std::string_view, std::string>> StatedOptions(const PlanFields& plan) {
  std::vector<std::pair<std::string_view, std::string>> stated;
  for (const PlannerOption& option : kTable) {
    if (Written text = option.write(plan.inputs.options, plan.meshes)) {
      stated.emplace_back(option.name, *std::move(text));
    }
  }
  if (plan.inputs.exceeded_max_value != 0) {
    stated.emplace_back(kExceeded, fmt::format("{}", plan.inputs.exceeded_max_value));
  }
  return stated;
}

absl::Status ReadStatedOption(Text name, Text text, Meshes meshes, PlanInputs* inputs,
                              std::string* rule) {
  const PlannerOption* const option = FindPlannerOption(name);
  *rule = option != nullptr ? option->rule : kExceeded;
  const absl::Status read = option != nullptr   ? option->read(text, meshes, &inputs->options)
                            : name == kExceeded ? SetNumber(text, 0, &inputs->exceeded_max_value)
                                                : absl::OkStatus();
  return read.ok() ? read : Annotate(read, fmt::format("option {}", name));
}

}  // namespace meshift
