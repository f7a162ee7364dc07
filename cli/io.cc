#include "cli/io.h"

#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <istream>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "cli/input_file.h"
#include "cli/text.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

std::string NameOf(const std::string& path) { return path == "-" ? "stdin" : path; }

}  // namespace

absl::Status BadFile(const std::string& path, const absl::Status& status) {
  return absl::DataLossError(fmt::format("{}: {}", NameOf(path), ShownMessage(Message(status))));
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kDataLoss:
      return kExitBadFile;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return kExitBadUsage;
    default:
      return kExitCheckFailed;
  }
}

int Fail(Io& io, const absl::Status& status) {
  // In one write, so that messages of processes that share stderr do not mix.
  io.err << ShownMessage(fmt::format("meshift: {}", Message(status))) + "\n";
  return ExitCodeOf(status);
}

std::string ResolvePath(const std::string& path) {
  const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (folder == nullptr || folder[0] == '\0' || path.empty() || path[0] == '/') return path;
  return std::string(folder) + "/" + path;
}

absl::StatusOr<std::unique_ptr<std::istream>> OpenFile(const std::string& path) {
  absl::StatusOr<std::unique_ptr<std::istream>> file = OpenRegularFile(ResolvePath(path));
  if (!file.ok()) return BadFile(path, file.status());
  return file;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<std::istream> file, OpenFile(path));
  absl::StatusOr<std::string> text = ReadUpTo(*file, kMaxFileBytes);
  if (!text.ok()) return BadFile(path, text.status());
  return text;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, Io& io) {
  if (path != "-") return ReadFile(path);
  absl::StatusOr<std::string> text = ReadUpTo(io.in, kMaxFileBytes);
  if (!text.ok()) return BadFile(path, text.status());
  return text;
}

absl::Status ForEachLine(const std::string& path, Io& io,
                         const std::function<void(const std::string&)>& line,
                         const std::function<void()>& skipped) {
  std::unique_ptr<std::istream> file;
  if (path != "-") {
    MESHIFT_ASSIGN_OR_RETURN(file, OpenFile(path));
  }
  const absl::Status status = ReadLines(file ? *file : io.in, kMaxLineBytes, line, skipped);
  return status.ok() ? status : BadFile(path, status);
}

}  // namespace meshift::cli
