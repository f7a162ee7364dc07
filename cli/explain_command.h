// `meshift explain`: the best plan, what else could be done, and the cost or the rule that speaks
// against it.
//
//   meshift explain --mesh ddp=8,fsdp=5,tp=1 --tensor 'f32[512,512]' --from P,P,R --to R,R,R
//   --topology nvlink=8
//
// With --collective, how long one collective takes (cli/explain_collective.h).
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
  // That keep the promise, at most: 0 .. 1000; none: 8.
  std::optional<int64_t> alternatives;
  CollectiveFlags collective;
};

// Exit code 0 where there is a plan.
int ExplainCommand(const ExplainFlags& flags, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_EXPLAIN_COMMAND_H_
