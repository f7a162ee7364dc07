// The command `meshift`: calls RunMeshift (cli/command_line.h) and returns its exit code. If memory
// or threads run out, the process ends with exit code 1, without destructors; any other exception
// aborts it.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <ios>
#include <iostream>
#include <new>
#include <system_error>

#include "cli/command_line.h"
#include "cli/io.h"
#include "cli/run_as_rank.h"

namespace {

// The handler for exceptions that nothing catches. The standard library throws, in any thread,
// where it gets no memory or no thread: the command then ends with a message and exit code 1.
[[noreturn]] void EndWithMessage() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "meshift: %s\n", meshift::cli::kNoMemory);
    meshift::cli::ReportExitReason(meshift::cli::kNoMemory);
    std::_Exit(meshift::cli::kExitCheckFailed);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "meshift: cannot create a thread or lock a mutex: %s\n", error.what());
    meshift::cli::ReportExitReason("cannot create a thread or lock a mutex");
    std::_Exit(meshift::cli::kExitCheckFailed);
  } catch (...) {
  }
  std::abort();
}

// Opens /dev/null in place of each closed standard stream. Otherwise the next file that is opened
// would get its number, and messages would go into that file. The mode is the wrong one on purpose:
// using the stream fails, and the command says so.
void OpenClosedStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    const int mode = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    // open() takes the lowest free number, which is this one.
    if (open("/dev/null", mode) != fd) std::_Exit(meshift::cli::kExitCheckFailed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  OpenClosedStreams();
  std::set_terminate(EndWithMessage);
  std::ios::sync_with_stdio(false);
  std::cin.tie(nullptr);
  meshift::cli::Io io{std::cin, std::cout, std::cerr};
  return meshift::cli::RunMeshift({argv + 1, argv + argc}, io);
}
