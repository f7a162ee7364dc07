// Files that a user names, which may be a stranger's: only regular files are opened.
//
//   MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<std::istream> file, OpenFile("plan.json"));
//   MESHIFT_ASSIGN_OR_RETURN(const std::string text, ReadUpTo(*file, kMaxFileBytes));
//
// A FIFO would block, a device may do anything when it is opened, and a link may lead anywhere;
// none of them is. Errors do not name the file: BadFile (cli/io.h) does.
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

// Of a file that is read as a whole: a plan, a model, rules, a topology. What is made of it takes
// up to 25 times as much memory.
inline constexpr int64_t kMaxFileBytes = int64_t{32} << 20;
// Of a line of a batch, without its end.
inline constexpr int64_t kMaxLineBytes = int64_t{16} << 20;

// Opens a regular file to be read byte by byte. INVALID_ARGUMENT "cannot be read: ..." for anything
// else, and where it does not open.
absl::StatusOr<std::unique_ptr<std::istream>> OpenRegularFile(const std::string& path);

// All that is left in `in`. INVALID_ARGUMENT where that is more than `limit` bytes, or cannot be
// read.
absl::StatusOr<std::string> ReadUpTo(std::istream& in, int64_t limit);

// Calls line(text) for every line, as soon as it has come, without its end; where a line has more
// than `limit` bytes, skipped() in its place, for which no more memory is taken. INVALID_ARGUMENT
// where `in` cannot be read.
absl::Status ReadLines(std::istream& in, int64_t limit,
                       const std::function<void(const std::string&)>& line,
                       const std::function<void()>& skipped);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_INPUT_FILE_H_
