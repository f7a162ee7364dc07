// Makes the ExecutionContext (cli/execution_context.h) of a process that is one rank of a job, on
// any engine but `local`.
//
//   RankExchange meeting(job.bootstrap.get());
//   MESHIFT_ASSIGN_OR_RETURN(const auto context, MakeRankContext(&job, &meeting));
//
// The context has one runner at a time, and ignores NewRunner's reduction order: the engine has its
// own. After an error it keeps the runner until its own destructor, which may wait for other ranks.
// If another rank ends, the engine's calls are aborted, so that none waits for it.
// Not thread-safe.
#ifndef MESHIFT_CLI_RANK_CONTEXT_H_
#define MESHIFT_CLI_RANK_CONTEXT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cli/engines.h"
#include "cli/execution_context.h"
#include "comm/control/rank_exchange.h"

namespace meshift::cli {

// Collective, but does not wait. Both arguments must outlive the context. Errors are those of
// ControlChannel::Join: UNAVAILABLE if a rank has gone. REQUIRES: StartEngine() was OK.
absl::StatusOr<std::unique_ptr<ExecutionContext>> MakeRankContext(RankJob* job,
                                                                  RankExchange* meeting);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RANK_CONTEXT_H_
