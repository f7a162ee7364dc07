// Opens and reads files that a user names. The files may come from a stranger, so only regular
// files are read.
//
//   MESHIFT_ASSIGN_OR_RETURN(const auto file, OpenRegularFile("plan.json"));
//   MESHIFT_ASSIGN_OR_RETURN(const std::string text, ReadUpTo(*file, kMaxFileBytes));
//
// A FIFO would block, opening a device may have effects, and a link may lead anywhere. So the file
// is checked before it is opened, and again afterwards. If another file takes the name in between,
// a link is refused, and a FIFO or device is opened without blocking and closed unread. The folders
// of a path may be links. Errors do not name the file; BadFile (cli/io.h) does.
#ifndef MESHIFT_CLI_INPUT_FILE_H_
#define MESHIFT_CLI_INPUT_FILE_H_

#include <cstdint>
#include <functional>
#include <istream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift::cli {

// The limit for a file that is read as a whole: a plan, a model, rules, a topology. The parsed form
// takes up to 25 times as much memory.
inline constexpr int64_t kMaxFileBytes = int64_t{32} << 20;
// The limit for a line of a batch, without its end.
inline constexpr int64_t kMaxLineBytes = int64_t{16} << 20;

// Opens a regular file for reading. INVALID_ARGUMENT "cannot be read: ..." for anything else, or if
// it cannot be opened.
absl::StatusOr<std::unique_ptr<std::istream>> OpenRegularFile(const std::string& path);

// The remaining bytes of `in`. INVALID_ARGUMENT if they are more than `limit`, or cannot be read.
absl::StatusOr<std::string> ReadUpTo(std::istream& in, int64_t limit);

// Calls line(text) for every line, without its "\n", as soon as it is read; a "\r" before it stays.
// For a line of more than `limit` bytes it calls skipped() instead, and does not keep the line in
// memory. INVALID_ARGUMENT if `in` cannot be read.
absl::Status ReadLines(std::istream& in, int64_t limit,
                       const std::function<void(const std::string&)>& line,
                       const std::function<void()>& skipped);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_INPUT_FILE_H_
