// `meshift env`: prints or checks the environment variables that make NCCL's sums keep a promise.
// It sets nothing itself.
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
  std::optional<std::string> nccl_version = std::nullopt;  // "2.31"; none: the installed library's
  bool check = false;  // check the environment instead of printing exports
};

// Prints one `export` line per variable, with its effect as a comment. If no variables can make
// this NCCL version keep the promise, it prints them all the same, warns on io.err and returns 0.
// With `check` prints a table of findings; the exit code is 1 if one breaks the promise. Exit code
// 2: the profile is unknown, or nccl_version is not a version. If no NCCL library that gives its
// version is found, and no version is given, it assumes NCCL 2.28.9, and says so on io.err.
int EnvCommand(const EnvFlags& flags, const Environment& environment, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_ENV_COMMAND_H_
