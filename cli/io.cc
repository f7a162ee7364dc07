#include "cli/io.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "cli/text.h"

namespace meshift::cli {
namespace {

std::string NameOf(const std::string& path) { return path == "-" ? "stdin" : path; }

absl::Status Unreadable(const std::string& path, const char* why) {
  return BadFile(path, InvalidArgument("cannot be read: {}", why));
}

absl::StatusOr<std::string> ReadAll(const std::string& path, std::istream& in) {
  std::string content{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) return Unreadable(path, "an error while reading");
  return content;
}

}  // namespace

absl::Status BadFile(const std::string& path, const absl::Status& status) {
  return absl::DataLossError(fmt::format("{}: {}", NameOf(path), Message(status)));
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
  // In one piece: where processes share stderr, their messages do not get into each other.
  io.err << fmt::format("meshift: {}\n", Printable(Message(status)));
  return ExitCodeOf(status);
}

std::string ResolvePath(const std::string& path) {
  const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (folder == nullptr || folder[0] == '\0' || path.empty() || path[0] == '/') return path;
  return std::string(folder) + "/" + path;
}

absl::Status OpenFile(const std::string& path, std::ifstream* file) {
  const std::string resolved = ResolvePath(path);
  // A folder opens well and fails later without a reason.
  struct stat info = {};
  if (stat(resolved.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return Unreadable(path, "it is a folder");
  }
  errno = 0;
  file->open(resolved, std::ios::binary);
  if (file->is_open()) return absl::OkStatus();
  return Unreadable(path, errno != 0 ? std::strerror(errno) : "it does not open");
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file;
  MESHIFT_RETURN_IF_ERROR(OpenFile(path, &file));
  return ReadAll(path, file);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, Io& io) {
  return path == "-" ? ReadAll(path, io.in) : ReadFile(path);
}

absl::Status ForEachLine(const std::string& path, Io& io,
                         const std::function<void(const std::string&)>& line) {
  std::ifstream file;
  if (path != "-") MESHIFT_RETURN_IF_ERROR(OpenFile(path, &file));
  std::istream& in = path == "-" ? io.in : file;
  for (std::string text; std::getline(in, text);) line(text);
  if (in.bad()) return Unreadable(path, "an error while reading");
  return absl::OkStatus();
}

}  // namespace meshift::cli
