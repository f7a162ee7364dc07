// The command line of `meshift`: parses the arguments with CLI11 and calls the command that they
// name (cli/*_command.h). Commands do the work; this file knows only options and help texts.
//
//   Io io{std::cin, std::cout, std::cerr};
//   return RunMeshift({"plan", "--mesh", "a=2", ...}, io);
#ifndef MESHIFT_CLI_COMMAND_LINE_H_
#define MESHIFT_CLI_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "cli/io.h"

namespace meshift::cli {

// `args` does not contain the program's name. Returns the exit code (cli/io.h); wrong arguments are
// printed to io.err and give 2; output that cannot be written to io.out gives 1. Throws only if
// memory or threads run out; cli/main.cc handles that. One thread at a time may call.
int RunMeshift(std::vector<std::string> args, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_COMMAND_LINE_H_
