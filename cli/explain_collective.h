// `meshift explain --collective`: the time that one collective should take, and what it is made of.
//
//   meshift explain --collective all_reduce --bytes 64MiB --topology h100 --mesh a=64
//
// Sizes and bandwidths are those of nccl-tests, so that its rows can be held against the answer:
// algbw is bytes over time, busbw is algbw times 2(n-1)/n for all_reduce, (n-1)/n for the others.
#ifndef MESHIFT_CLI_EXPLAIN_COLLECTIVE_H_
#define MESHIFT_CLI_EXPLAIN_COLLECTIVE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cli/io.h"
#include "cli/problem.h"

namespace meshift::cli {

// As typed.
struct CollectiveFlags {
  std::optional<std::string> name;   // all_reduce all_gather reduce_scatter all_to_all
  std::optional<std::string> bytes;  // as nccl-tests counts them: of all blocks together
  std::optional<std::string> dims;   // of the mesh, that the groups are over; none: all
};

// Prints the time, its algorithm and protocol, what limits it, all other ways of the library, what
// could be called instead, and from which sizes on another way is quicker. Of `flags` only the
// mesh, the topology and the limit on work may be given.
absl::Status ExplainCollective(const ProblemFlags& flags, const CollectiveFlags& collective,
                               bool as_json, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_EXPLAIN_COLLECTIVE_H_
