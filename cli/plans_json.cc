#include "cli/plans_json.h"

#include <cstdint>
#include <utility>

#include "cli/json.h"
#include "cli/model_traffic.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/topology.h"

namespace meshift::cli {
namespace {

Json TotalJson(const ModelPlan& model) {
  const PlanTotals total = model.Total();
  Json json = {{"parameters", model.NumParameters()},
               {"collectives", total.collectives},
               {"bytes_sent", total.bytes_sent},
               {"est_ns", total.est_ns}};
  if (total.setup_ns != 0) json["setup_ns"] = total.setup_ns;
  return json;
}

Json LowerBoundJson(const ModelPlan& model) {
  const LowerBound bound = model.Bound();
  return {{"bytes_sent", bound.bytes_sent}, {"est_ns", bound.est_ns}};
}

Json BusiestLinkJson(const TogetherTotals& together, const Topology& topology) {
  return {{"rank", together.busiest.rank},
          {"level", topology.level(together.busiest.level).name},
          {"direction", together.busiest.received ? "received" : "sent"},
          {"ns", together.busiest_ns}};
}

Json TrafficJson(const ModelTraffic& traffic) {
  const auto busiest = [](const Busiest& b) {
    return Json{{"rank", b.rank}, {"bytes_sent", b.bytes}};
  };
  Json levels = Json::array();
  for (const LevelTraffic& level : traffic.levels) {
    levels.push_back(
        {{"name", level.name}, {"bytes_sent", level.total}, {"busiest", busiest(level.busiest)}});
  }
  return {{"ranks", traffic.ranks},
          {"bytes_sent", traffic.total},
          {"busiest", busiest(traffic.busiest)},
          {"levels", std::move(levels)}};
}

}  // namespace

std::string PlansToJson(const ModelPlan& model, bool with_traffic) {
  Json rows = Json::array();
  for (const ModelRow& row : model.rows) {
    rows.push_back({{"count", row.count},
                    {"first", row.first},
                    {"plan", Json::parse(PlanToJson(row.plan, -1))}});
  }
  Json json = {{"format", model.together ? "meshift.plans" : "meshift.model_plan"},
               {"version", 1},
               {"model", model.name},
               {"rows", std::move(rows)},
               {"total", TotalJson(model)},
               {"lower_bound", LowerBoundJson(model)}};
  if (model.together) {
    const Topology& topology = model.rows[0].plan.options().topology;
    json["together"] = {{"busiest", BusiestLinkJson(*model.together, topology)},
                        {"bound_ns", model.together->bound_ns}};
  }
  if (with_traffic) json["traffic"] = TrafficJson(TrafficOf(model));
  return json.dump(2, ' ', /*ensure_ascii=*/true);
}

}  // namespace meshift::cli
