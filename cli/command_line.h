// The command line of `meshift`: parses the arguments with CLI11 and calls the command that they
// name (cli/*_command.h). Commands do the work; this file has the options and help texts.
//
//   Io io{std::cin, std::cout, std::cerr};
//   return RunMeshift({"plan", "--mesh", "a=2", ...}, io);
#ifndef MESHIFT_CLI_COMMAND_LINE_H_
#define MESHIFT_CLI_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "cli/io.h"

namespace meshift::cli {

// `args` does not contain the program's name. Returns the exit code (cli/io.h): 2 for wrong
// arguments, which are printed to io.err, and 1 if io.out cannot be written. On a rank of a job (an
// engine other than local), some errors end the process: the call flushes `io` first. Rank 0 alone
// prints an error that all ranks have (cli/run_as_rank.h). Throws only if memory or threads run
// out; cli/main.cc handles that. One thread at a time may call.
int RunMeshift(std::vector<std::string> args, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_COMMAND_LINE_H_
