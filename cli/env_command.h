// `meshift env`: what NCCL must find in the environment, so that its sums keep a promise.
//
//   eval "$(meshift env --profile batch-invariant)"
//   meshift env --profile batch-invariant --check
#ifndef MESHIFT_CLI_ENV_COMMAND_H_
#define MESHIFT_CLI_ENV_COMMAND_H_

#include <optional>
#include <string>

#include "cli/io.h"
#include "comm/nccl/environment.h"

namespace meshift::cli {

struct EnvFlags {
  std::string profile;                                     // comm/nccl/environment.h
  std::optional<std::string> nccl_version = std::nullopt;  // "2.31"; else the installed library's
  bool check = false;  // judge the environment instead of printing exports
};

// Prints one `export` line per variable, with what it does as a comment; or a table of findings,
// and exit code 1 where one breaks the promise.
int EnvCommand(const EnvFlags& flags, const Environment& environment, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_ENV_COMMAND_H_
