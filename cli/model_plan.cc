#include "cli/model_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "base/text_table.h"
#include "cli/io.h"
#include "cli/json.h"
#include "cli/model.h"
#include "cli/problem.h"
#include "cli/render_text.h"
#include "cli/text.h"
#include "mesh/device_mesh.h"
#include "placement/sharding.h"
#include "planner/plan.h"
#include "planner/plan_io.h"
#include "planner/plan_text.h"
#include "planner/planner.h"

namespace meshift::cli {
namespace {

// count * value, saturating.
int64_t Times(int64_t count, int64_t value) {
  int64_t product = 0;
  return CheckedMul(count, value, &product) ? product : INT64_MAX;
}

absl::StatusOr<Plan> PlanParameter(const Parameter& parameter, const DeviceMesh& mesh,
                                   const std::string& from_text, const std::string& to_text,
                                   const ProblemFlags& flags, const PlannerOptions& options) {
  const absl::StatusOr<Sharding> from = Sharding::Parse(parameter.type, mesh, from_text);
  if (!from.ok()) return Annotate(from.status(), "--from");
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, ParseTarget(*from, to_text, flags));
  return MakePlan(*from, to, options);
}

}  // namespace

int64_t ModelPlan::NumParameters() const {
  int64_t count = 0;
  for (const ModelRow& row : rows) count += row.count;
  return count;
}

PlanTotals ModelPlan::Total() const {
  PlanTotals sum;
  for (const ModelRow& row : rows) {
    const PlanTotals& total = row.plan.total();
    sum.collectives = SaturatingAdd(sum.collectives, Times(row.count, total.collectives));
    sum.bytes_sent = SaturatingAdd(sum.bytes_sent, Times(row.count, total.bytes_sent));
    sum.est_ns = SaturatingAdd(sum.est_ns, Times(row.count, total.est_ns));
    sum.peak_bytes = std::max(sum.peak_bytes, total.peak_bytes);
    sum.workspace_bytes = std::max(sum.workspace_bytes, total.workspace_bytes);
  }
  return sum;
}

LowerBound ModelPlan::Bound() const {
  LowerBound sum;
  for (const ModelRow& row : rows) {
    const LowerBound& bound = row.plan.lower_bound();
    sum.bytes_sent = SaturatingAdd(sum.bytes_sent, Times(row.count, bound.bytes_sent));
    sum.est_ns = SaturatingAdd(sum.est_ns, Times(row.count, bound.est_ns));
  }
  return sum;
}

absl::StatusOr<ModelPlan> PlanModel(const ProblemFlags& flags, Io& io) {
  MESHIFT_RETURN_IF_ERROR(Exclude(flags.tensor, "--tensor", "--model"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string path, Require(flags.model, "--model"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string mesh_text, Require(flags.mesh, "--mesh"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string from, Require(flags.from, "--from"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string to, Require(flags.to, "--to"));
  MESHIFT_ASSIGN_OR_RETURN(const PlannerOptions options, ParsePlannerOptions(flags, io));
  const absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(mesh_text);
  if (!mesh.ok()) return Annotate(mesh.status(), "--mesh");
  MESHIFT_ASSIGN_OR_RETURN(Model model, ReadModel(path, io));
  if (flags.filter) {
    absl::StatusOr<Model> kept = Filter(std::move(model), *flags.filter);
    if (!kept.ok()) return Annotate(kept.status(), "--filter");
    model = *std::move(kept);
  }

  if (flags.dtype) {
    const absl::StatusOr<DType> dtype = ParseDType(*flags.dtype);
    if (!dtype.ok()) return Annotate(dtype.status(), "--dtype");
    for (Parameter& parameter : model.parameters) {
      absl::StatusOr<TensorType> type = TensorType::Create(*dtype, parameter.type.shape);
      if (!type.ok()) {
        return Annotate(type.status(), fmt::format("parameter '{}'", parameter.name));
      }
      parameter.type = *std::move(type);
    }
  }

  ModelPlan result{model.name, {}};
  std::map<std::string, size_t> row_of;  // by tensor and placements
  for (const Parameter& parameter : model.parameters) {
    const std::string from_text = PlacementsFor(from, parameter);
    const std::string to_text = PlacementsFor(to, parameter);
    const std::string key = fmt::format("{}|{}|{}", parameter.type.ToString(), from_text, to_text);
    const auto [known, is_new] = row_of.emplace(key, result.rows.size());
    if (!is_new) {
      ++result.rows[known->second].count;
      continue;
    }
    absl::StatusOr<Plan> plan = PlanParameter(parameter, *mesh, from_text, to_text, flags, options);
    if (!plan.ok()) {
      return Annotate(plan.status(), fmt::format("parameter '{}'", parameter.name));
    }
    result.rows.push_back({1, parameter.name, *std::move(plan)});
  }
  return result;
}

std::string StepsText(const Plan& plan) {
  std::string text;
  for (const Step& step : plan.steps()) {
    text += (text.empty() ? "" : "; ") + step.Label();
  }
  return text.empty() ? "nothing to do" : text;
}

std::string RenderModelPreamble(const ModelPlan& model, const ProblemFlags& flags,
                                const std::string& verb) {
  const Plan& first = model.rows[0].plan;
  std::string text =
      fmt::format("# meshift {}: {} parameters of {}, {} -> {}\n", verb, model.NumParameters(),
                  model.name, flags.from.value_or(""), flags.to.value_or(""));
  text += fmt::format("# mesh {} ({})\n", first.from().mesh().ToString(),
                      CountText(first.from().mesh().NumRanks(), "rank"));
  return text + PlanInputsLine(first);
}

std::string RenderModelPlan(const ModelPlan& model, const ProblemFlags& flags) {
  constexpr auto kLeft = TextTable::Align::kLeft;
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"count", kLeft},
                   {"tensor", kLeft},
                   {"from", kLeft},
                   {"to", kLeft},
                   {"plan", kLeft},
                   {"sent", kRight},
                   {"est", kRight},
                   {"first parameter", kLeft}});
  for (const ModelRow& row : model.rows) {
    const Plan& plan = row.plan;
    table.AddRow({fmt::format("{}", row.count), plan.from().tensor().ToString(),
                  plan.from().PlacementsText(), plan.to().PlacementsText(), StepsText(plan),
                  BytesText(plan.total().bytes_sent), TimeText(plan.total().est_ns), row.first});
  }
  const PlanTotals total = model.Total();
  const LowerBound bound = model.Bound();
  std::string text = RenderModelPreamble(model, flags, "plan") + table.ToString();
  text += fmt::format("total: {}, {}, {}, sent {}, est {}\n",
                      CountText(model.NumParameters(), "parameter"),
                      CountText(static_cast<int64_t>(model.rows.size()), "distinct plan"),
                      CountText(total.collectives, "collective"), BytesText(total.bytes_sent),
                      TimeText(total.est_ns));
  text += fmt::format("lower bound: sent {}, est {}\n", BytesText(bound.bytes_sent),
                      TimeText(bound.est_ns));
  return text + RenderModelPromise(model);
}

std::string RenderModelPromise(const ModelPlan& model) {
  for (const ModelRow& row : model.rows) {
    if (row.plan.kept() >= row.plan.asked()) continue;
    return RenderPromise(row.plan.asked(), false, fmt::format("{}: {}", row.first, row.plan.why()));
  }
  const int64_t count = model.NumParameters();
  return RenderPromise(model.rows[0].plan.asked(), true,
                       fmt::format("by the plans of all {}", CountText(count, "parameter")));
}

std::string ModelPlanToJson(const ModelPlan& model) {
  Json rows = Json::array();
  for (const ModelRow& row : model.rows) {
    rows.push_back({{"count", row.count},
                    {"first", row.first},
                    {"plan", Json::parse(PlanToJson(row.plan, -1))}});
  }
  const PlanTotals total = model.Total();
  const LowerBound bound = model.Bound();
  const Json json = {{"format", "meshift.model_plan"},
                     {"version", 1},
                     {"model", model.name},
                     {"rows", std::move(rows)},
                     {"total",
                      {{"parameters", model.NumParameters()},
                       {"collectives", total.collectives},
                       {"bytes_sent", total.bytes_sent},
                       {"est_ns", total.est_ns}}},
                     {"lower_bound", {{"bytes_sent", bound.bytes_sent}, {"est_ns", bound.est_ns}}}};
  return json.dump(2);
}

}  // namespace meshift::cli
