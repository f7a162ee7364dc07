#include "comm/record/dump_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/record/json_cursor.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using State = DumpFile::State;

// The most files of a folder.
constexpr size_t kMaxFiles = 1'000'000;

void ReadFailure(JsonCursor& json, DumpedFailure* failure) {
  if (json.Null()) return;
  json.Object([&](std::string_view key) {
    if (key == "code") {
      json.String(&failure->code, 64);
    } else if (key == "message") {
      json.String(&failure->message, DumpFile::kMaxText);
    } else {
      json.Skip();
    }
  });
  if (json.ok() && failure->code.empty()) json.Fail("a failure without a code");
}

void ReadRedistributor(JsonCursor& json, DumpFile::Redistributor* source, int64_t* num_ranks) {
  std::string ranks;
  json.Object([&](std::string_view key) {
    if (key == "name") {
      json.String(&source->name, DumpFile::kMaxText);
    } else if (key == "ranks") {
      json.String(&ranks, DumpFile::kMaxBytes);
    } else if (key == "failure") {
      ReadFailure(json, &source->failure);
    } else {
      json.Skip();
    }
  });
  if (!json.ok()) return;
  absl::StatusOr<std::vector<int64_t>> parsed = ParseRanksText(ranks);
  if (!parsed.ok()) return json.Fail(Message(parsed.status()));
  source->ranks = *std::move(parsed);
  // Bounds the memory of all lists together.
  *num_ranks += static_cast<int64_t>(source->ranks.size());
  if (*num_ranks > 2 * DumpFile::kMaxRanks) json.Fail("too many ranks");
}

void ReadStep(JsonCursor& json, DumpFile::Step* step) {
  int at = 0;
  json.Array([&] {
    switch (at++) {
      case 0:
        return json.Int32(&step->step);
      case 1:
        return json.String(&step->op, 64);
      case 2:
        return json.String(&step->dtype, 64);
      case 3:
        return json.Int(&step->count_in);
      case 4:
        return json.Int(&step->count_out);
      case 5:
        return json.Int(&step->bytes);
      case 6:
        return json.Int32(&step->group);
      default:
        return json.Skip();
    }
  });
  if (at < 7) json.Fail("a step has fewer than 7 parts");
  if (step->count_in < 0 || step->count_out < 0) json.Fail("a count is negative");
}

void ReadPlan(JsonCursor& json, DumpFile::Plan* plan) {
  json.Object([&](std::string_view key) {
    if (key == "text") {
      json.String(&plan->text, DumpFile::kMaxText);
    } else if (key == "bytes") {
      json.Int(&plan->bytes);
    } else if (key == "num_steps") {
      json.Int(&plan->num_steps);
    } else if (key == "groups") {
      json.Array(DumpFile::kMaxSteps,
                 [&] { json.String(&plan->groups.emplace_back(), DumpFile::kMaxBytes); });
    } else if (key == "steps") {
      json.Array(DumpFile::kMaxSteps, [&] { ReadStep(json, &plan->steps.emplace_back()); });
    } else {
      json.Skip();
    }
  });
  const auto num_groups = static_cast<int32_t>(plan->groups.size());
  for (const DumpFile::Step& step : plan->steps) {
    if (step.group < -1 || step.group >= num_groups) {
      return json.Fail(
          fmt::format("a step names group {}; it must be at least -1 and less than the number of "
                      "groups, {}",
                      step.group, num_groups));
    }
  }
}

void ReadState(JsonCursor& json, State* state) {
  std::string name;
  json.String(&name, 16);
  if (!json.ok()) return;
  constexpr std::array<std::pair<std::string_view, State>, 5> kNames = {
      {{"ended", State::kEnded},
       {"in_flight", State::kInFlight},
       {"issuing", State::kIssuing},
       {"captured", State::kCaptured},
       {"failed", State::kFailed}}};
  for (const auto& [text, value] : kNames) {
    if (name == text) {
      *state = value;
      return;
    }
  }
  json.Fail(fmt::format("unknown state '{}'", name));
}

void ReadCall(JsonCursor& json, DumpFile::Call* call) {
  int at = 0;
  json.Array([&] {
    switch (at++) {
      case 0:
        return json.Int(&call->number);
      case 1:
        return json.Int32(&call->redistributor);
      case 2:
        return json.Int(&call->call);
      case 3:
        return json.Int32(&call->plan);
      case 4:
        return ReadState(json, &call->state);
      case 5: {
        int64_t is_first = 0;
        json.Int(&is_first);
        call->is_first = is_first != 0;
        return;
      }
      case 6:
        return json.Int(&call->issued_ns);
      case 7:
        return json.Int(&call->started_ns);
      case 8:
        return json.Int(&call->ended_ns);
      case 9:
        return json.Int32(&call->thread);
      default:
        return json.Skip();
    }
  });
  if (at < 10) json.Fail("a call has fewer than 10 parts");
  // Readers count up to it.
  if (call->call < 0 || call->call == INT64_MAX) {
    json.Fail(fmt::format("a call has number {}; it must be at least 0 and less than 2^63 - 1",
                          call->call));
  }
}

absl::Status Check(const DumpFile& file, std::string_view format, int64_t version) {
  if (format != "meshift-dump") return InvalidArgument("is not a record of calls");
  if (version != 1) return InvalidArgument("unknown version {} of the format; expected 1", version);
  if (file.world_size < 1 || file.world_size > DumpFile::kMaxRanks || file.rank < 0 ||
      file.rank >= file.world_size) {
    return InvalidArgument("rank {} is out of range for {} ranks", file.rank, file.world_size);
  }
  const auto num_sources = static_cast<int64_t>(file.redistributors.size());
  const auto num_plans = static_cast<int64_t>(file.plans.size());
  for (const DumpFile::Redistributor& source : file.redistributors) {
    if (source.ranks.back() >= file.world_size) {
      return InvalidArgument("rank {} is out of range for {} ranks", source.ranks.back(),
                             file.world_size);
    }
  }
  for (size_t i = 0; i < file.calls.size(); ++i) {
    const DumpFile::Call& call = file.calls[i];
    if (call.redistributor < 0 || call.redistributor >= num_sources) {
      return InvalidArgument(
          "call {} names redistributor {}; it must be at least 0 and less than the number of "
          "redistributors, {}",
          i, call.redistributor, num_sources);
    }
    if (call.plan < -1 || call.plan >= num_plans) {
      return InvalidArgument(
          "call {} names plan {}; it must be at least -1 and less than the number of plans, {}", i,
          call.plan, num_plans);
    }
    if (i > 0 && call.number <= file.calls[i - 1].number) {
      return InvalidArgument("the numbers of calls {} and {} are not strictly ascending", i - 1, i);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmall(const std::string& path) {
  const auto error = [&](const char* what) {
    return InvalidArgument("cannot be {}: {}", what, strerror(errno));
  };
  // O_NONBLOCK, since opening a FIFO would block.
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return error("opened");
  const std::unique_ptr<const int, void (*)(const int*)> closer(
      &fd, [](const int* open_fd) { close(*open_fd); });
  struct stat info = {};
  if (fstat(fd, &info) != 0) return error("examined");
  if (!S_ISREG(info.st_mode)) return InvalidArgument("is not a regular file");
  if (info.st_size > static_cast<off_t>(DumpFile::kMaxBytes)) {
    return InvalidArgument("has {} bytes, more than {}", info.st_size, DumpFile::kMaxBytes);
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = read(fd, text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error("read");
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  text.resize(size);
  return text;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseRanksText(std::string_view text) {
  std::vector<int64_t> ranks;
  const auto wrong = [&] { return InvalidArgument("'{}' is not a list of ascending ranks", text); };
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int64_t first = 0;
    int64_t last = 0;
    std::from_chars_result read = std::from_chars(at, end, first);
    last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
    }
    if (read.ec != std::errc() || first < 0 || last < first || last >= DumpFile::kMaxRanks ||
        (!ranks.empty() && first <= ranks.back())) {
      return wrong();
    }
    for (int64_t rank = first; rank <= last; ++rank) ranks.push_back(rank);
    if (read.ptr == end) return ranks;
    if (*read.ptr != ',') return wrong();
    at = read.ptr + 1;
  }
}

absl::StatusOr<DumpFile> ReadDump(std::string_view text) {
  if (text.size() > DumpFile::kMaxBytes) {
    return InvalidArgument("has {} bytes, more than {}", text.size(), DumpFile::kMaxBytes);
  }
  DumpFile file;
  std::string format;
  int64_t version = 0;
  int64_t num_ranks = 0;
  JsonCursor json(text);
  json.Object([&](std::string_view key) {
    if (key == "format") {
      json.String(&format, 64);
    } else if (key == "version") {
      json.Int(&version);
    } else if (key == "engine") {
      json.String(&file.engine, 64);
    } else if (key == "host") {
      json.String(&file.host, 256);
    } else if (key == "rank") {
      json.Int(&file.rank);
    } else if (key == "world_size") {
      json.Int(&file.world_size);
    } else if (key == "written_unix_ns") {
      json.Int(&file.written_unix_ns);
    } else if (key == "now_ns") {
      json.Int(&file.now_ns);
    } else if (key == "setup_timeout_ns") {
      json.Int(&file.setup_timeout_ns);
    } else if (key == "running_timeout_ns") {
      json.Int(&file.running_timeout_ns);
    } else if (key == "failure") {
      ReadFailure(json, &file.failure);
    } else if (key == "redistributors") {
      json.Array(DumpFile::kMaxSources,
                 [&] { ReadRedistributor(json, &file.redistributors.emplace_back(), &num_ranks); });
    } else if (key == "plans") {
      json.Array(DumpFile::kMaxPlans, [&] { ReadPlan(json, &file.plans.emplace_back()); });
    } else if (key == "calls") {
      file.calls.reserve(std::min<size_t>(text.size() / 64, 4096));
      json.Array(DumpFile::kMaxCalls, [&] { ReadCall(json, &file.calls.emplace_back()); });
    } else {
      json.Skip();
    }
  });
  MESHIFT_RETURN_IF_ERROR(json.Finish());
  MESHIFT_RETURN_IF_ERROR(Check(file, format, version));
  return file;
}

absl::StatusOr<DumpFolder> ReadDumpFolder(const std::string& folder) {
  std::vector<std::string> names;
  {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
    if (dir == nullptr) {
      return absl::NotFoundError(
          fmt::format("cannot open the folder '{}': {}", folder, strerror(errno)));
    }
    while (const dirent* const entry = readdir(dir.get())) {
      const std::string_view name = entry->d_name;
      if (!name.starts_with("meshift-") || !name.ends_with(".json")) continue;
      names.emplace_back(name);
      if (names.size() > kMaxFiles) {
        return InvalidArgument("more than {} files are in '{}'", kMaxFiles, folder);
      }
    }
  }
  if (names.empty()) {
    return absl::NotFoundError(fmt::format("no file meshift-*.json is in '{}'", folder));
  }
  std::sort(names.begin(), names.end());
  std::vector<absl::StatusOr<DumpFile>> files(names.size(), absl::UnknownError(""));
  std::atomic<size_t> next = 0;
  const auto read = [&] {
    for (size_t i = next++; i < names.size(); i = next++) {
      absl::StatusOr<std::string> text = ReadSmall(folder + "/" + names[i]);
      files[i] = text.ok() ? ReadDump(*text) : absl::StatusOr<DumpFile>(text.status());
    }
  };
  {
    std::thread other;
    if (names.size() > 1) other = std::thread(read);
    read();
    if (other.joinable()) other.join();
  }
  DumpFolder found;
  std::map<int64_t, DumpFile> by_rank;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!files[i].ok()) {
      found.problems.push_back(fmt::format("{}: {}", names[i], Message(files[i].status())));
      continue;
    }
    const auto [it, is_new] = by_rank.try_emplace(files[i]->rank);
    if (is_new || it->second.written_unix_ns < files[i]->written_unix_ns) {
      it->second = *std::move(files[i]);
    }
  }
  for (auto& [rank, file] : by_rank) found.files.push_back(std::move(file));
  return found;
}

}  // namespace meshift
