// Also implements plan_text_parts.h, and PlanToText of meshift/plan_io.h; plan_text_reader.cc reads
// its output.
#include "planner/plan/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "planner/plan/expanded_plan.h"
#include "planner/plan/option_table.h"
#include "planner/plan/plan_text_parts.h"

namespace meshift {
namespace {

template <typename T>
std::string NumberOrDash(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "-";
}

template <typename T>
std::string_view NameOrDash(const std::optional<T>& value) {
  return value ? Name(*value) : "-";
}

// The facts that have no column of their own: "sum bf16+f32 even dims=0".
std::string HowText(const Step& step, DType before) {
  std::vector<std::string> parts;
  if (step.reduce_op || step.reduce_order || step.reduce_block || step.reduce_stages ||
      step.divisor) {
    std::string part(NameOrDash(step.reduce_op));
    if (step.divisor) part += fmt::format("/{}", *step.divisor);
    const std::optional<ReduceOrder> usual =
        step.reduce_op ? std::optional(ReduceOrder::kAny) : std::nullopt;
    if (step.reduce_order != usual || step.reduce_block || step.reduce_stages) {
      part += fmt::format(":{}", NameOrDash(step.reduce_order));
    }
    if (step.reduce_block || step.reduce_stages) {
      part += fmt::format(":{}", NumberOrDash(step.reduce_block));
    }
    if (step.reduce_stages) part += fmt::format(":{}", *step.reduce_stages);
    parts.push_back(std::move(part));
  }
  if (step.wire_dtype || step.accumulate_dtype) {
    std::string part(NameOrDash(step.wire_dtype));
    const std::optional<DType> usual = step.reduce_op ? step.wire_dtype : std::nullopt;
    if (step.accumulate_dtype != usual) {
      part += fmt::format("+{}", NameOrDash(step.accumulate_dtype));
    }
    parts.push_back(std::move(part));
  }
  if (step.sizes) parts.emplace_back(Name(*step.sizes));
  if (!step.tensor_dims.empty()) {
    parts.push_back(fmt::format("dims={}", fmt::join(step.tensor_dims, ",")));
  }
  if (step.after.dtype() != before) {
    parts.push_back(fmt::format("to={}", Name(step.after.dtype())));
  }
  if (step.mesh != 0) parts.push_back(fmt::format("mesh={}", step.mesh));
  return fmt::format("{}", fmt::join(parts, " "));
}

std::string PromiseText(const Plan& plan) {
  std::string kept = "kept";
  if (plan.kept() < plan.asked()) kept = fmt::format("NOT kept, only {}", Name(plan.kept()));
  if (plan.kept() > plan.asked()) kept = fmt::format("kept, even {}", Name(plan.kept()));
  return fmt::format("promise {}: {} ({})\n", Name(plan.asked()), kept, Escaped(plan.why(), ""));
}

std::string ShardingText(const Plan& plan, int mesh, const Sharding& sharding) {
  std::string text = sharding.PlacementsText();
  if (plan.meshes().size() > 1) text += fmt::format(" on mesh {}", mesh);
  if (sharding.dtype() != plan.from().dtype()) {
    text += fmt::format(" as {}", Name(sharding.dtype()));
  }
  return text;
}

}  // namespace

std::string Escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || byte < 0x20 || byte >= 0x7f || special.find(c) != std::string_view::npos) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

std::string PlanStepsTable(const Plan& plan) {
  constexpr auto kLeft = TextTable::Align::kLeft;
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"step", kLeft},
                   {"op", kLeft},
                   {"mesh dims", kLeft},
                   {"groups", kRight},
                   {"after", kLeft},
                   {"in", kRight},
                   {"out", kRight},
                   {"sent", kRight},
                   {"est", kRight},
                   {"how", kLeft}});
  int number = 0;
  DType dtype = plan.from().dtype();
  for (const Step& step : plan.steps()) {
    table.AddRow({fmt::format("{}", number++), std::string(Name(step.op)), MeshDimsText(step),
                  GroupText(step), step.after.PlacementsText(), ExactBytesText(step.bytes_in),
                  ExactBytesText(step.bytes_out), ExactBytesText(step.bytes_sent),
                  ExactTimeText(step.est_ns), HowText(step, dtype)});
    dtype = step.after.dtype();
  }
  return table.ToString();
}

std::string PlanPreamble(const Plan& plan, std::string_view verb) {
  std::string text = fmt::format(
      "# meshift {}{}: {}, {} -> {}\n", verb, verb == "plan" && HasAt(plan.fields()) ? " 2" : "",
      plan.from().tensor().ToString(), ShardingText(plan, plan.fields().from_mesh, plan.from()),
      ShardingText(plan, plan.fields().to_mesh, plan.to()));
  for (const DeviceMesh& mesh : plan.meshes()) {
    text += fmt::format("# mesh {} ({} rank{})\n", mesh.ToString(), mesh.NumRanks(),
                        mesh.NumRanks() == 1 ? "" : "s");
  }
  return text + PlanInputsLine(plan);
}

std::string PlanInputsLine(const Plan& plan) {
  std::string text =
      fmt::format("# topology {}, engine {}", Escaped(plan.options().topology.ToString(), ","),
                  Escaped(plan.options().engine.name(), ","));
  for (const auto& [name, value] : StatedOptions(plan.fields())) {
    // A comma ends a value only if a space comes next.
    const bool ends = value.find(", ") != std::string::npos || value.ends_with(',');
    text += fmt::format(", {} {}", Escaped(name, ", "), Escaped(value, ends ? "," : ""));
  }
  return text + "\n";
}

std::string GroupText(const Step& step) {
  if (!step.groups && !step.group_size) return "-";
  return fmt::format("{} x {}", NumberOrDash(step.groups), NumberOrDash(step.group_size));
}

std::string MeshDimsText(const Step& step) {
  std::string text;
  for (const int d : step.mesh_dims) {
    text += (text.empty() ? "" : ",") + step.after.mesh().dim(d).name;
  }
  return text.empty() ? "-" : text;
}

std::string PlanToText(const Plan& plan) {
  const PlanTotals& total = plan.total();
  std::string text = PlanPreamble(plan, "plan") + PlanStepsTable(plan);
  const std::string setup =
      total.setup_ns == 0 ? "" : fmt::format(", setup {}", ExactTimeText(total.setup_ns));
  text += fmt::format("total: {} collective{}, sent {}, est {}{}, peak {}, workspace {}\n",
                      total.collectives, total.collectives == 1 ? "" : "s",
                      ExactBytesText(total.bytes_sent), ExactTimeText(total.est_ns), setup,
                      ExactBytesText(total.peak_bytes), ExactBytesText(total.workspace_bytes));
  text +=
      fmt::format("lower bound: sent {}, est {}\n", ExactBytesText(plan.lower_bound().bytes_sent),
                  ExactTimeText(plan.lower_bound().est_ns));
  text += PromiseText(plan);
  text += fmt::format("fingerprint {}\n", plan.fingerprint().ToString());
  return text;
}

}  // namespace meshift
