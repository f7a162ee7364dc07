// Who sends how much of a model, and over which links.
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

// Sums saturate. The lowest rank of those that send most.
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
  int64_t ranks = 0;  // of both meshes
  int64_t total = 0;  // bytes sent by all ranks
  Busiest busiest;
  std::vector<LevelTraffic> levels;  // innermost first
};

// A message counts for the lowest level at which sender and receiver share a domain. Of the other
// collectives each level has what the algorithm that the time assumes brings across its links: a
// ring enters and leaves each domain once, whose members share that; a tree carries the tensor up
// and down between each two domains that it joins; to switches that form sums each rank, or domain,
// sends the tensor once. These are less than what ranks send (docs/plan_format.md), which the
// totals have.
// Takes O(plans * (ranks * members of groups + messages)).
ModelTraffic TrafficOf(const ModelPlan& model);

// Lines "per rank: ..." and "over LEVEL: ...".
std::string RenderTraffic(const ModelTraffic& traffic);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MODEL_TRAFFIC_H_
