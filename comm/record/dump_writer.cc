#include "comm/record/dump_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "base/ranges_text.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr size_t kMaxPlansBytes = 4 << 20;  // later plans have no steps and groups
constexpr size_t kMaxTextBytes = 4096;      // of one text, except lists of ranks

// A JSON string. Non-ASCII bytes are escaped as Latin-1, so that any bytes give valid JSON.
std::string Quoted(std::string_view text, size_t max_bytes = kMaxTextBytes) {
  std::string quoted = "\"";
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      quoted += fmt::format("\\u{:04x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string FailureText(const absl::Status& status) {
  if (status.ok()) return "null";
  return fmt::format(R"({{"code":"{}","message":{}}})", absl::StatusCodeToString(status.code()),
                     Quoted(Message(status)));
}

std::string_view Name(CallState state) {
  switch (state) {
    case CallState::kIssuing:
      return "issuing";
    case CallState::kInFlight:
      return "in_flight";
    case CallState::kCaptured:
      return "captured";
    case CallState::kFailed:
      return "failed";
    default:
      return "ended";
  }
}

void AddPlan(const CallText& text, bool with_steps, std::string* out) {
  fmt::format_to(std::back_inserter(*out), R"({{"text":{},"bytes":{},"groups":[)",
                 Quoted(text.plan), text.bytes);
  for (size_t i = 0; with_steps && i < text.groups.size(); ++i) {
    *out += (i == 0 ? "" : ",") + Quoted(text.groups[i], SIZE_MAX);
  }
  fmt::format_to(std::back_inserter(*out), R"(],"num_steps":{},"steps":[)", text.num_steps);
  for (size_t i = 0; with_steps && i < text.steps.size(); ++i) {
    const CallText::Step& s = text.steps[i];
    fmt::format_to(std::back_inserter(*out), R"({}[{},"{}","{}",{},{},{},{}])", i == 0 ? "" : ",",
                   s.step, s.op, meshift::Name(s.dtype), s.count_in, s.count_out, s.bytes, s.group);
  }
  *out += "]}";
}

absl::Status FileError(std::string_view what, const std::string& path) {
  return absl::UnavailableError(fmt::format("cannot {} '{}': {}", what, path, strerror(errno)));
}

// A temporary file. The destructor removes it unless MoveTo() has renamed it.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)) {}
  ~NewFile() {
    if (fd_ >= 0) close(fd_);
    if (made_) unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  absl::Status Write(std::string_view text) {
    unlink(path_.c_str());  // left by a process that was killed while writing
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd_ < 0) return FileError("create", path_);
    made_ = true;
    while (!text.empty()) {
      const ssize_t n = write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return FileError("write", path_);
      text.remove_prefix(static_cast<size_t>(n));
    }
    if (fsync(fd_) != 0) return FileError("sync", path_);
    return absl::OkStatus();
  }
  absl::Status MoveTo(const std::string& path) {
    if (rename(path_.c_str(), path.c_str()) != 0) return FileError("rename to", path);
    made_ = false;
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  int fd_ = -1;
  bool made_ = false;
};

void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

std::string DumpHostName() {
  std::array<char, 65> name = {};
  if (gethostname(name.data(), name.size() - 1) != 0) return "host";
  std::string text(name.data());
  for (char& c : text) {
    const bool plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.';
    if (!plain) c = '-';
  }
  return text.empty() ? "host" : text;
}

std::string DumpText(const Dump& dump) {
  // Each shared text is written once.
  std::map<const CallText*, size_t> numbers;
  std::string plans;
  for (const RecordedCall& call : dump.calls) {
    if (call.text == nullptr || !numbers.emplace(call.text.get(), numbers.size()).second) continue;
    if (!plans.empty()) plans += ",\n";
    AddPlan(*call.text, plans.size() < kMaxPlansBytes, &plans);
  }
  std::string out;
  out.reserve(plans.size() + 128 * dump.calls.size() + 4096);
  const auto to = std::back_inserter(out);
  fmt::format_to(to,
                 "{{\"format\":\"meshift-dump\",\"version\":1,\"engine\":{},\"library\":{},"
                 "\"host\":{},\"rank\":{},\"world_size\":{},\n\"written_unix_ns\":{},\"now_ns\":{},"
                 "\"setup_timeout_ns\":{},\"running_timeout_ns\":{},\n\"failure\":{},\n"
                 "\"redistributors\":[",
                 Quoted(dump.engine), Quoted(dump.library), Quoted(dump.host), dump.rank,
                 dump.world_size, dump.written_unix_ns, dump.now_ns, dump.timeouts.setup.count(),
                 dump.timeouts.running.count(), FailureText(dump.failure));
  for (size_t i = 0; i < dump.sources.size(); ++i) {
    const DumpedSource& source = dump.sources[i];
    fmt::format_to(to, "{}{{\"name\":{},\"ranks\":{},\"failure\":{}}}", i == 0 ? "" : ",\n",
                   Quoted(source.name), Quoted(RangesText(source.ranks), SIZE_MAX),
                   FailureText(source.failure));
  }
  fmt::format_to(to, "],\n\"plans\":[{}],\n\"calls\":[", plans);
  for (size_t i = 0; i < dump.calls.size(); ++i) {
    const RecordedCall& c = dump.calls[i];
    const int64_t plan = c.text == nullptr ? -1 : static_cast<int64_t>(numbers[c.text.get()]);
    fmt::format_to(to, "{}[{},{},{},{},\"{}\",{},{},{},{},{}]", i == 0 ? "\n" : ",\n", c.number,
                   c.source, c.call, plan, Name(c.state), c.is_first ? 1 : 0, c.issued_ns,
                   c.started_ns, c.ended_ns, c.thread);
  }
  out += "]}\n";
  return out;
}

absl::StatusOr<std::string> WriteDump(const Dump& dump, const std::string& folder) {
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return FileError("make", folder);
  const std::string name = fmt::format("meshift-{}-rank{:05}.json", dump.host, dump.rank);
  const std::string path = fmt::format("{}/{}", folder, name);
  NewFile file(fmt::format("{}/.{}.{}", folder, name, getpid()));
  MESHIFT_RETURN_IF_ERROR(file.Write(DumpText(dump)));
  MESHIFT_RETURN_IF_ERROR(file.MoveTo(path));
  SyncFolder(folder);
  return path;
}

}  // namespace meshift
