#include "cli/render_text.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/messages.h"
#include "cli/text.h"
#include "mesh/device_mesh.h"
#include "placement/sharding.h"
#include "planner/plan.h"

namespace meshift::cli {
namespace {

constexpr auto kLeft = TextTable::Align::kLeft;
constexpr auto kRight = TextTable::Align::kRight;

std::string StepsTable(const Plan& plan) {
  TextTable table({{"step", kLeft},
                   {"op", kLeft},
                   {"mesh dims", kLeft},
                   {"groups", kRight},
                   {"after", kLeft},
                   {"in", kRight},
                   {"out", kRight},
                   {"sent", kRight},
                   {"est", kRight}});
  int number = 0;
  for (const Step& step : plan.steps()) {
    table.AddRow({fmt::format("{}", number++), std::string(Name(step.op)), MeshDimsText(step),
                  GroupText(step), step.after.PlacementsText(), BytesText(step.bytes_in),
                  BytesText(step.bytes_out), BytesText(step.bytes_sent), TimeText(step.est_ns)});
  }
  return table.ToString();
}

std::string ShardingText(const Plan& plan, int mesh, const Sharding& sharding) {
  const std::string placements = sharding.PlacementsText();
  return plan.meshes().size() > 1 ? fmt::format("{} on mesh {}", placements, mesh) : placements;
}

}  // namespace

std::string RenderPreamble(const Plan& plan, const std::string& verb) {
  std::string text =
      fmt::format("# meshift {}: {}, {} -> {}\n", verb, plan.from().tensor().ToString(),
                  ShardingText(plan, plan.fields().from_mesh, plan.from()),
                  ShardingText(plan, plan.fields().to_mesh, plan.to()));
  for (const DeviceMesh& mesh : plan.meshes()) {
    text += fmt::format("# mesh {} ({})\n", mesh.ToString(), CountText(mesh.NumRanks(), "rank"));
  }
  return text + RenderInputs(plan);
}

std::string RenderInputs(const Plan& plan) {
  std::string text =
      fmt::format("# topology {}, engine {}", plan.inputs().topology, plan.inputs().engine);
  for (const auto& [name, value] : plan.inputs().options) {
    text += fmt::format(", {} {}", name, value);
  }
  return text + "\n";
}

std::string RenderPromise(Reproducibility asked, bool kept, const std::string& why) {
  return fmt::format("promise {}: {}kept ({})\n", Name(asked), kept ? "" : "NOT ", why);
}

std::string GroupText(const Step& step) {
  if (!step.groups || !step.group_size) return "-";
  return fmt::format("{} x {}", *step.groups, *step.group_size);
}

std::string MeshDimsText(const Step& step) {
  std::string text;
  for (const int d : step.mesh_dims) {
    text += (text.empty() ? "" : ",") + step.after.mesh().dim(d).name;
  }
  return text;
}

std::string RenderPlan(const Plan& plan) {
  const PlanTotals& total = plan.total();
  std::string text = RenderPreamble(plan, "plan");
  text += StepsTable(plan);
  text += fmt::format("total: {}, sent {}, est {}, peak {}, workspace {}\n",
                      CountText(total.collectives, "collective"), BytesText(total.bytes_sent),
                      TimeText(total.est_ns), BytesText(total.peak_bytes),
                      BytesText(total.workspace_bytes));
  text += fmt::format("lower bound: sent {}, est {}\n", BytesText(plan.lower_bound().bytes_sent),
                      TimeText(plan.lower_bound().est_ns));
  text += RenderPromise(plan.asked(), plan.kept() >= plan.asked(), plan.why());
  text += fmt::format("fingerprint {}\n", plan.fingerprint().ToString());
  return text;
}

std::string RenderMessages(const Plan& plan) {
  TextTable table({{"step", kLeft},
                   {"source", kRight},
                   {"target", kRight},
                   {"box", kLeft},
                   {"contribution", kLeft},
                   {"bytes", kRight}});
  for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
    for (const RankMessage& message : MessagesOf(plan, i)) {
      table.AddRow({fmt::format("{}", i), fmt::format("{}", message.source),
                    fmt::format("{}", message.target), message.box.ToString(),
                    message.ContributionText(),
                    fmt::format("{}", Bytes(plan.from().dtype(), message.box.NumElements()))});
    }
  }
  return table.ToString();
}

}  // namespace meshift::cli
