// What a command reads and writes, and how it ends. Commands are functions of their flags and these
// sinks, so that tests call them in-process.
//
//   int PlanCommand(const PlanFlags& flags, Io& io) {
//     absl::StatusOr<Problem> problem = ParseProblem(flags.problem);
//     if (!problem.ok()) return Fail(io, problem.status());
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
inline constexpr int kExitCheckFailed = 1;  // wrong, or not as promised or planned
inline constexpr int kExitBadUsage = 2;     // options and their values
inline constexpr int kExitBadFile = 3;      // unreadable, truncated, newer, malformed

// Data goes to `out`, messages to `err`; "-" as a file name means `in`.
struct Io {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
};

// An error that lies in an input file; names the file.
absl::Status BadFile(const std::string& path, const absl::Status& status);

// The exit code for an error: 3 for those of BadFile, 2 where arguments are invalid or ask for what
// this version lacks, else 1 (the engine failed).
int ExitCodeOf(const absl::Status& status);

// Prints one line "meshift: MESSAGE" to io.err, printable and cut short (ShownMessage in
// cli/text.h), and returns the exit code.
int Fail(Io& io, const absl::Status& status);

// `path` as the caller means it: relative paths start at $BUILD_WORKING_DIRECTORY, where `bazel
// run` sets it, else in the current folder.
std::string ResolvePath(const std::string& path);

// Opens a regular file to be read byte by byte (cli/input_file.h). A BadFile error where it cannot
// be.
absl::StatusOr<std::unique_ptr<std::istream>> OpenFile(const std::string& path);

// The whole content of a file, of kMaxFileBytes at most. A BadFile error where it cannot be read.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// The same, or that of io.in for "-".
absl::StatusOr<std::string> ReadFile(const std::string& path, Io& io);

// Calls line(text) for every line of a file, or of io.in for "-", as it comes; skipped() for one of
// more than kMaxLineBytes. A BadFile error where it cannot be read.
absl::Status ForEachLine(const std::string& path, Io& io,
                         const std::function<void(const std::string&)>& line,
                         const std::function<void()>& skipped);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_IO_H_
