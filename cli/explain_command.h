// `meshift explain`: the best plan, its alternatives, and the cost or rule that excludes each.
//
//   meshift explain --topology nvlink=8 --mesh ddp=8,fsdp=5,tp=1 --tensor 'f32[512,512]'
//       --from P,P,R --to R,R,R
//
// With --collective: the time of one collective (cli/explain_collective.h). Costs are those of the
// cost model; nothing is run. Refuses --model, --rules, --dtype, --filter and --planner.
#ifndef MESHIFT_CLI_EXPLAIN_COMMAND_H_
#define MESHIFT_CLI_EXPLAIN_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "cli/explain_collective.h"
#include "cli/io.h"
#include "cli/problem.h"

namespace meshift::cli {

struct ExplainFlags {
  ProblemFlags problem;
  std::string format = "text";  // or "json"
  // The most alternatives that keep the promise: 0 .. 1000 (command_line.cc checks that); none: 8.
  // Refused with a collective.
  std::optional<int64_t> alternatives;
  CollectiveFlags collective;
};

// Returns exit code 0 if there is a plan or a time, else that of the error (cli/io.h).
int ExplainCommand(const ExplainFlags& flags, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_EXPLAIN_COMMAND_H_
