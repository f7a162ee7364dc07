// Names the algorithm, the protocol and the links that a collective's estimated time assumes
// (CollectiveTime in planner/cost/collective_time.h). Indices are -1 or valid for the topology.
//
//   AlgorithmText(parts.algorithm, parts.protocol, topology);  // "in-switch, Simple"
//   LinksText(parts.level, parts.sharing, topology);  // "net, 8 links per group and domain"
#ifndef MESHIFT_CLI_TIME_TEXT_H_
#define MESHIFT_CLI_TIME_TEXT_H_

#include <cstdint>
#include <string>

#include "meshift/topology.h"
#include "planner/cost/collective_time.h"

namespace meshift::cli {

// The algorithm, and the protocol unless it is -1.
std::string AlgorithmText(Algorithm algorithm, int protocol, const Topology& topology);
// The links that are the bottleneck; empty for level -1. `sharing` is CollectiveTime::sharing.
std::string LinksText(int level, int64_t sharing, const Topology& topology);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_TIME_TEXT_H_
