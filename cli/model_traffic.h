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
  int64_t ranks = 0;  // of both meshes
  int64_t total = 0;  // bytes sent by all ranks
  Busiest busiest;
  std::vector<LevelTraffic> levels;  // innermost first
};

// A message counts for the lowest level at which sender and receiver share a domain. A sum in order
// sends contributions to all other members. A sum in blocks is counted the same way, although more
// of its messages stay inside a domain. An all_reduce in order then gathers its results by a ring.
//
// For other collectives, the algorithm whose time the plan assumes decides:
// - Ring: it enters and leaves each domain once. The domain's members share those bytes equally.
// - Tree: the tensor goes up and down between each two domains that the tree joins.
// - Sums in switches: each rank or domain sends the tensor once.
// These bytes may be fewer than those that ranks send (docs/plan_format.md), which
// ModelTraffic::total counts. REQUIRES: the model has rows. Takes O(plans * (ranks * members of
// groups + messages)).
ModelTraffic TrafficOf(const ModelPlan& model);

// Lines "per rank: ..." and "over LEVEL: ...".
std::string RenderTraffic(const ModelTraffic& traffic);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_MODEL_TRAFFIC_H_
