// The command line: options to flags, flags to verbs.
//
//   Io io{std::cin, std::cout, std::cerr};
//   return RunMeshift({"plan", "--mesh", "a=2", ...}, io);
#ifndef MESHIFT_CLI_COMMAND_LINE_H_
#define MESHIFT_CLI_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "cli/io.h"

namespace meshift::cli {

// `args`: without the program's name. Returns the exit code. Throws nothing.
int RunMeshift(std::vector<std::string> args, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_COMMAND_LINE_H_
