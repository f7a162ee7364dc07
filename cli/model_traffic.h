// Counts, from plans alone, the bytes that ranks send for all parameters of a model, and the links
// that they cross.
//
//   const ModelTraffic traffic = TrafficOf(model);
//   traffic.busiest.rank, traffic.busiest.bytes      // over all parameters and steps
//   traffic.levels[1].total                          // across the second level of the topology
#ifndef MESHIFT_CLI_MODEL_TRAFFIC_H_
#define MESHIFT_CLI_MODEL_TRAFFIC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/model_plan.h"

namespace meshift::cli {

// The lowest of the ranks that send the most bytes. Sums saturate.
struct Busiest {
  int64_t rank = 0;
  int64_t bytes = 0;
};

struct LevelTraffic {
  std::string name;  // of the topology's level
  int64_t total = 0;
  Busiest busiest;
};

struct ModelTraffic {
  int64_t ranks = 0;  // of all meshes
  int64_t total = 0;  // bytes sent by all ranks
  Busiest busiest;
  std::vector<LevelTraffic> levels;  // innermost first
};

// The sums of planner/together/link_loads.h, as plans count bytes. Those of levels may be fewer
// than those that ranks send (docs/plan_format.md), which ModelTraffic::total counts. REQUIRES: the
// model has rows. Takes O(plans * (ranks * members of groups + messages)).
ModelTraffic TrafficOf(const ModelPlan& model);
// The work of TrafficOf, in units of WorkBudget (base/work_budget.h).
int64_t TrafficWork(const ModelPlan& model);

// Lines "per rank: ..." and "over LEVEL: ...".
std::string RenderTraffic(const ModelTraffic& traffic);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MODEL_TRAFFIC_H_
