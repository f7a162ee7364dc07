// Implements the functions of meshift/c.h on options and plans. Plans never change, so any threads
// may read them; options are for one thread at a time. An option's value is checked when it is set,
// "existing_groups" only when a plan's meshes are known. Whether options suit each other and the
// meshes is checked only when a plan is made.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/call.h"
#include "capi/handles.h"
#include "capi/numbers.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/verifier.h"
#include "planner/plan/option_table.h"

namespace meshift::capi {
namespace {

// The two options that are not in the table of planner/plan/option_table.h.
struct ExtraOption {
  const char* name;
  const char* value_name;
  const char* help;
  absl::Status (*Read)(const std::string& text, PlannerOptions* options);
};
constexpr ExtraOption kExtraOptions[] = {
    {"topology", "TOPOLOGY", "the machine: a preset (h100), nvlink=8, or JSON (default: flat)",
     [](const std::string& text, PlannerOptions* options) -> absl::Status {
       MESHIFT_ASSIGN_OR_RETURN(options->topology, Topology::Parse(text));
       return absl::OkStatus();
     }},
    {"engine", "ENGINE", "the engine that runs the plans: local (default), mpi, nccl",
     [](const std::string& text, PlannerOptions* options) -> absl::Status {
       if (text != "local" && text != "mpi" && text != "nccl") {
         return InvalidArgument("unknown engine '{}'; expected local, mpi or nccl", text);
       }
       options->engine = EngineCapabilities::Of(text);
       return absl::OkStatus();
     }},
};
constexpr size_t kNumExtraOptions = std::size(kExtraOptions);

const ExtraOption* FindExtraOption(std::string_view name) {
  for (const ExtraOption& option : kExtraOptions) {
    if (name == option.name) return &option;
  }
  return nullptr;
}

absl::Status CheckStep(const meshift_plan* plan, int32_t step) {
  MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}}));
  return CheckIndex("step", step, static_cast<int64_t>(plan->value.steps().size()));
}

}  // namespace

absl::StatusOr<PlannerOptions> PlanningOptions(const meshift_options* options, const Sharding& from,
                                               const Sharding& to) {
  if (options == nullptr) return PlannerOptions();
  std::vector<DeviceMesh> meshes = {from.mesh()};
  if (to.mesh() != from.mesh()) meshes.push_back(to.mesh());
  return options->On(meshes);
}

}  // namespace meshift::capi

using meshift::capi::Call;
using meshift::capi::CheckStruct;
using meshift::capi::Clear;
using meshift::capi::Give;
using meshift::capi::GiveOr;
using meshift::capi::GiveText;
using meshift::capi::NotNull;
using meshift::capi::NumberOf;

absl::StatusOr<meshift::PlannerOptions> meshift_options::On(
    absl::Span<const meshift::DeviceMesh> meshes) const {
  meshift::PlannerOptions options;
  // The engine first: native_invariance changes it.
  for (const meshift::capi::ExtraOption& option : meshift::capi::kExtraOptions) {
    const auto found = texts.find(option.name);
    if (found != texts.end()) MESHIFT_RETURN_IF_ERROR(option.Read(found->second, &options));
  }
  for (const meshift::PlannerOption& option : meshift::PlannerOptionTable()) {
    const auto found = texts.find(std::string(option.name));
    if (found == texts.end()) continue;
    MESHIFT_RETURN_IF_ERROR(
        meshift::Annotate(option.read(found->second, meshes, &options), "option " + found->first));
  }
  return options;
}

meshift_code meshift_options_create(meshift_options** options, char** error) {
  Clear(options);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"options", options}}));
    return Give(options);
  });
}

void meshift_options_destroy(meshift_options* options) { delete options; }

meshift_code meshift_options_set(meshift_options* options, const char* name, const char* value,
                                 char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"options", options}, {"name", name}, {"value", value}}));
    meshift::PlannerOptions scratch;
    const meshift::PlannerOption* const option = meshift::FindPlannerOption(name);
    const meshift::capi::ExtraOption* const extra = meshift::capi::FindExtraOption(name);
    if (option == nullptr && extra == nullptr) {
      return meshift::InvalidArgument("unknown option '{}'", name);
    }
    absl::Status read;
    if (extra != nullptr) {
      read = extra->Read(value, &scratch);
    } else if (option->kind != meshift::OptionKind::kGroups) {
      read = option->read(value, {}, &scratch);
    }
    if (!read.ok()) return meshift::Annotate(read, std::string("option ") + name);
    options->texts[name] = value;
    return absl::OkStatus();
  });
}

size_t meshift_option_count() {
  return meshift::capi::kNumExtraOptions + meshift::PlannerOptionTable().size();
}

meshift_code meshift_option_get_info(size_t index, meshift_option_info* info, char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(CheckStruct("info", info));
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckIndex(index, meshift_option_count()));
    if (index < meshift::capi::kNumExtraOptions) {
      const meshift::capi::ExtraOption& extra = meshift::capi::kExtraOptions[index];
      *info = {sizeof(*info), extra.name, extra.value_name, extra.help};
      return absl::OkStatus();
    }
    // The table's texts are literals, so they end with a zero byte.
    const meshift::PlannerOption& option =
        meshift::PlannerOptionTable()[index - meshift::capi::kNumExtraOptions];
    *info = {sizeof(*info), option.name.data(), option.value_name.data(), option.help.data()};
    return absl::OkStatus();
  });
}

meshift_code meshift_plan_make(const meshift_sharding* from, const meshift_sharding* to,
                               const meshift_options* options, meshift_plan** plan, char** error) {
  Clear(plan);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"from", from}, {"to", to}, {"plan", plan}}));
    MESHIFT_ASSIGN_OR_RETURN(const meshift::PlannerOptions planning,
                             meshift::capi::PlanningOptions(options, from->value, to->value));
    return GiveOr(plan, meshift::MakePlan(from->value, to->value, planning));
  });
}

meshift_code meshift_plan_read(const char* text, meshift_plan** plan, char** error) {
  Clear(plan);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"text", text}, {"plan", plan}}));
    return GiveOr(plan, meshift::ReadPlan(text));
  });
}

void meshift_plan_destroy(meshift_plan* plan) { delete plan; }

meshift_code meshift_plan_text(const meshift_plan* plan, char** text, char** error) {
  Clear(text);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}, {"text", text}}));
    return GiveText(meshift::PlanToText(plan->value), text);
  });
}

meshift_code meshift_plan_json(const meshift_plan* plan, int32_t indent, char** json,
                               char** error) {
  Clear(json);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}, {"json", json}}));
    if (indent < -1 || indent > 16) {
      return meshift::InvalidArgument("indent is {}; it must be -1 to 16", indent);
    }
    return GiveText(meshift::PlanToJson(plan->value, indent), json);
  });
}

meshift_code meshift_plan_fingerprint(const meshift_plan* plan, char** text, char** error) {
  Clear(text);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}, {"text", text}}));
    return GiveText(plan->value.fingerprint().ToString(), text);
  });
}

meshift_code meshift_plan_promise(const meshift_plan* plan, char** kept, char** why, char** error) {
  Clear(kept);
  Clear(why);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}}));
    char* name = nullptr;
    if (kept != nullptr) MESHIFT_RETURN_IF_ERROR(GiveText(Name(plan->value.kept()), &name));
    if (why != nullptr) {
      const absl::Status given = GiveText(plan->value.why(), why);
      if (!given.ok()) {
        meshift_free(name);
        return given;
      }
    }
    if (kept != nullptr) *kept = name;
    return absl::OkStatus();
  });
}

meshift_code meshift_plan_from(const meshift_plan* plan, meshift_sharding** from, char** error) {
  Clear(from);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}, {"from", from}}));
    return Give(from, plan->value.from());
  });
}

meshift_code meshift_plan_to(const meshift_plan* plan, meshift_sharding** to, char** error) {
  Clear(to);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}, {"to", to}}));
    return Give(to, plan->value.to());
  });
}

meshift_code meshift_plan_verify(const meshift_plan* plan, int64_t max_work, char** rule,
                                 int32_t* step, char** error) {
  Clear(rule);
  if (step != nullptr) *step = -1;
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}}));
    if (max_work < 0)
      return meshift::InvalidArgument("max_work is {}; it must be 0 or more", max_work);
    meshift::VerifyOptions options;
    if (max_work > 0) options.max_work = max_work;
    const meshift::Verdict verdict = meshift::Verify(plan->value, options);
    if (verdict.ok()) return absl::OkStatus();
    const meshift::PlanFault& fault = *verdict.fault;
    if (rule != nullptr) MESHIFT_RETURN_IF_ERROR(GiveText(fault.rule, rule));
    if (step != nullptr) *step = fault.step.value_or(-1);
    return absl::FailedPreconditionError(fault.message);
  });
}

meshift_code meshift_plan_get_info(const meshift_plan* plan, meshift_plan_info* info,
                                   char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}}));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("info", info));
    const meshift::PlanTotals& total = plan->value.total();
    info->num_steps = static_cast<int32_t>(plan->value.steps().size());
    info->num_meshes = static_cast<int32_t>(plan->value.meshes().size());
    info->collectives = total.collectives;
    info->bytes_sent = total.bytes_sent;
    info->est_ns = total.est_ns;
    info->setup_ns = total.setup_ns;
    info->peak_bytes = total.peak_bytes;
    info->workspace_bytes = total.workspace_bytes;
    info->lower_bound_bytes_sent = plan->value.lower_bound().bytes_sent;
    info->lower_bound_est_ns = plan->value.lower_bound().est_ns;
    return absl::OkStatus();
  });
}

meshift_code meshift_plan_mesh(const meshift_plan* plan, int32_t mesh, meshift_mesh** out,
                               char** error) {
  Clear(out);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(NotNull({{"plan", plan}, {"out", out}}));
    const std::vector<meshift::DeviceMesh>& meshes = plan->value.meshes();
    MESHIFT_RETURN_IF_ERROR(
        meshift::capi::CheckIndex("mesh", mesh, static_cast<int64_t>(meshes.size())));
    return Give(out, meshes[mesh]);
  });
}

meshift_code meshift_plan_step(const meshift_plan* plan, int32_t step, meshift_step* out,
                               char** error) {
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckStep(plan, step));
    MESHIFT_RETURN_IF_ERROR(CheckStruct("out", out));
    const meshift::Step& from = plan->value.steps()[step];
    out->op = NumberOf(from.op);
    out->mesh = from.mesh;
    out->mesh_dims = from.mesh_dims.data();
    out->num_mesh_dims = from.mesh_dims.size();
    out->reduce_op = NumberOf(from.reduce_op);
    out->in_order = from.reduce_order == meshift::ReduceOrder::kAscending ? 1 : 0;
    out->divisor = from.divisor.value_or(0);
    out->wire_dtype = NumberOf(from.wire_dtype);
    out->group_size = from.group_size.value_or(0);
    out->groups = from.groups.value_or(0);
    out->bytes_in = from.bytes_in;
    out->bytes_out = from.bytes_out;
    out->bytes_sent = from.bytes_sent;
    out->est_ns = from.est_ns;
    return absl::OkStatus();
  });
}

meshift_code meshift_plan_step_text(const meshift_plan* plan, int32_t step, char** text,
                                    char** error) {
  Clear(text);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckStep(plan, step));
    MESHIFT_RETURN_IF_ERROR(NotNull({{"text", text}}));
    return GiveText(plan->value.steps()[step].ToString(), text);
  });
}

meshift_code meshift_plan_step_after(const meshift_plan* plan, int32_t step,
                                     meshift_sharding** after, char** error) {
  Clear(after);
  return Call(error, [&]() -> absl::Status {
    MESHIFT_RETURN_IF_ERROR(meshift::capi::CheckStep(plan, step));
    MESHIFT_RETURN_IF_ERROR(NotNull({{"after", after}}));
    return Give(after, plan->value.steps()[step].after);
  });
}
