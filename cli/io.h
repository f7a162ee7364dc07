// The streams of a command, its exit codes, and the reading of its input files. Commands are
// functions of their flags and an Io, so that tests call them in-process.
//
//   int PlanCommand(const PlanFlags& flags, Io& io) {
//     absl::StatusOr<Problem> problem = ParseProblem(flags.problem);
//     if (!problem.ok()) return Fail(io, problem.status());
//     ... print to io.out, return kExitOk ...
#ifndef MESHIFT_CLI_IO_H_
#define MESHIFT_CLI_IO_H_

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitCheckFailed = 1;  // a check or the run failed, or a limit ended it
inline constexpr int kExitBadUsage = 2;     // a bad option or value
inline constexpr int kExitBadFile = 3;      // unreadable, truncated, too new, malformed

// Data goes to `out`, messages to `err`; "-" as a file name means `in`.
struct Io {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
};

// DATA_LOSS with the file's name and the message of `status`: an error in an input file.
absl::Status BadFile(const std::string& path, const absl::Status& status);

// The exit code for a status: 0 for OK, 3 for DATA_LOSS (BadFile), 2 for INVALID_ARGUMENT and
// UNIMPLEMENTED, else 1.
int ExitCodeOf(const absl::Status& status);

// Prints one line "meshift: MESSAGE" to io.err, printable and cut short (ShownMessage in
// cli/text.h). Returns the exit code. REQUIRES: `status` is not OK.
int Fail(Io& io, const absl::Status& status);

// Resolves a relative path from the caller's folder: $BUILD_WORKING_DIRECTORY, which `bazel run`
// sets, else the current folder.
std::string ResolvePath(const std::string& path);

// Opens a regular file for reading (cli/input_file.h). A BadFile error if that fails.
absl::StatusOr<std::unique_ptr<std::istream>> OpenFile(const std::string& path);

// The whole content of a file. A BadFile error if it cannot be read, or is longer than
// kMaxFileBytes.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// The same; "-" reads io.in.
absl::StatusOr<std::string> ReadFile(const std::string& path, Io& io);

// Calls line(text) for every line of a file, or of io.in for "-", as soon as it is read; skipped()
// for a line of more than kMaxLineBytes. A BadFile error if the file cannot be read.
absl::Status ForEachLine(const std::string& path, Io& io,
                         const std::function<void(const std::string&)>& line,
                         const std::function<void()>& skipped);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_IO_H_
