// `meshift explain --collective`: the estimated time of one collective, and its parts. No plan is
// made, and nothing is run.
//
//   meshift explain --collective all_reduce --bytes 64MiB --topology h100 --mesh a=64
//
// Sizes and bandwidths are those of nccl-tests, so that its rows can be compared with the answer:
// algbw is bytes over time; busbw is algbw times 2(n-1)/n for all_reduce, (n-1)/n for the others,
// if the group has n ranks. Times are those of the cost model (docs/cost_model.md).
#ifndef MESHIFT_CLI_EXPLAIN_COLLECTIVE_H_
#define MESHIFT_CLI_EXPLAIN_COLLECTIVE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cli/io.h"
#include "cli/problem.h"

namespace meshift::cli {

// The options' texts.
struct CollectiveFlags {
  std::optional<std::string> name;   // all_reduce all_gather reduce_scatter all_to_all
  std::optional<std::string> bytes;  // as nccl-tests counts them: all blocks together
  std::optional<std::string> dims;   // the mesh dims of the groups, "a,b"; none: all
};

// Prints the time, its algorithm and protocol, its bottleneck, NCCL's other algorithms and
// protocols, and the nearest sizes at which another variant is faster; for all_reduce and
// all_gather also the time of other calls with the same result. Only the mesh and the topology may
// be set in `flags`. INVALID_ARGUMENT: another option, a missing one, a bad value, or a group of
// one rank. RESOURCE_EXHAUSTED: it takes too much work to list the groups. Errors of a topology
// file are those of BadFile (cli/io.h). REQUIRES: the collective has a name.
absl::Status ExplainCollective(const ProblemFlags& flags, const CollectiveFlags& collective,
                               bool as_json, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_EXPLAIN_COLLECTIVE_H_
