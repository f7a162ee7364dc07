#include "cli/dump_command.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <iterator>
#include <ostream>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/clipped.h"
#include "base/ranges_text.h"
#include "base/status.h"
#include "cli/file_set.h"
#include "cli/text.h"
#include "comm/record/dump_reader.h"
#include "comm/record/flight_recorder.h"

namespace meshift::cli {
namespace {

// The most late ranks, or sides of a disagreement, that get a line each.
constexpr size_t kMaxLines = 16;

std::string UtcText(int64_t unix_ns) {
  if (unix_ns < 0) return "an unknown time";
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm parts = {};
  if (gmtime_r(&seconds, &parts) == nullptr) return "an unknown time";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     unix_ns / 1'000'000 % 1000);
}

// "rank 3", "ranks 0-2,7"; a long list is cut.
std::string Ranks(absl::Span<const int64_t> ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s",
                     Clipped(RangesText(ranks), kMaxShown));
}

void RenderStuck(const StuckCall& stuck, std::string* out) {
  const auto to = std::back_inserter(*out);
  const auto waiting = static_cast<int64_t>(stuck.in_it.size());
  fmt::format_to(to, "call {} of the redistributor of {}: {}\n", stuck.call,
                 Shown(stuck.redistributor), Shown(stuck.plan));
  if (!stuck.groups.empty()) {
    std::string groups;
    for (const std::string& group : stuck.groups) {
      groups += (groups.empty() ? "{" : " {") + group + "}";
    }
    fmt::format_to(to, "  its groups: {}\n", Shown(groups));
  }
  for (size_t i = 0; i < stuck.late.size() && i < kMaxLines; ++i) {
    const StuckCall::LateRank& late = stuck.late[i];
    fmt::format_to(to, "  LATE: rank {} has not made this call; it has made only {}", late.rank,
                   CountText(late.num_calls, "call"));
    if (late.last_ended_unix_ns >= 0) {
      fmt::format_to(to, ", the last of which ended at {}", UtcText(late.last_ended_unix_ns));
    }
    *out += "\n";
  }
  if (stuck.late.size() > kMaxLines) {
    std::vector<int64_t> ranks;
    for (size_t i = kMaxLines; i < stuck.late.size(); ++i) ranks.push_back(stuck.late[i].rank);
    fmt::format_to(to, "  also LATE: {}\n", Ranks(ranks));
  }
  if (!stuck.missing.empty()) {
    fmt::format_to(to, "  NO RECORD: {}: stopped, ended, or on a host with another record folder\n",
                   Ranks(stuck.missing));
  }
  if (!stuck.held.empty()) {
    fmt::format_to(to, "  HELD: {}: made the call, and wait{} for earlier work on {} own streams\n",
                   Ranks(stuck.held), stuck.held.size() == 1 ? "s" : "",
                   stuck.held.size() == 1 ? "its" : "their");
  }
  if (!stuck.issuing.empty()) {
    fmt::format_to(to, "  still inside the call that issues it: {}\n", Ranks(stuck.issuing));
  }
  if (waiting > 0) {
    fmt::format_to(to, "  in it: {} of {}, since {}: {}\n", CountText(waiting, "rank"),
                   stuck.num_ranks, UtcText(stuck.since_unix_ns), Ranks(stuck.in_it));
  }
  if (!stuck.past.empty()) fmt::format_to(to, "  past it: {}\n", Ranks(stuck.past));
}

void RenderDisagreement(const Disagreement& found, std::string* out) {
  const auto to = std::back_inserter(*out);
  fmt::format_to(to, "DISAGREE: call {} of the redistributor of {}:\n", found.call,
                 Shown(found.redistributor));
  for (size_t i = 0; i < found.sides.size() && i < kMaxLines; ++i) {
    fmt::format_to(to, "  {}: {}\n", Ranks(found.sides[i].ranks), Shown(found.sides[i].plan));
  }
}

// Writes one file per rank to the folder, all or none. Makes the folder if it is missing.
absl::Status WriteFlightRecords(absl::Span<const DumpFile> files, const std::string& folder) {
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return FailedPrecondition("{}: cannot be made: {}", folder, std::strerror(errno));
  }
  FileSet set;
  MESHIFT_RETURN_IF_ERROR(
      ForEachPyTorchFlightRecord(files, [&](int64_t rank, const std::string& record) {
        const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(record.data()),
                                                record.size());
        return set.Add(fmt::format("{}/meshift_rank_{}", folder, rank), {bytes});
      }));
  return set.Commit();
}

}  // namespace

std::string RenderDump(const DumpReport& report) {
  std::string out =
      fmt::format("records of {} of {}", report.num_files, CountText(report.world_size, "rank"));
  if (!report.missing.empty()) out += fmt::format("; none of {}", Ranks(report.missing));
  out += "\n";
  if (report.first) {
    out += fmt::format("first error: rank {}, {}: {}: {}\n", report.first->rank,
                       UtcText(report.first->written_unix_ns), Shown(report.first->failure.code),
                       Shown(report.first->failure.message));
  } else {
    out += "no rank had failed\n";
  }
  for (const Disagreement& found : report.disagreements) RenderDisagreement(found, &out);
  for (const StuckCall& stuck : report.stuck) RenderStuck(stuck, &out);
  if (report.stuck.empty()) out += "no call is in flight\n";
  return out;
}

int DumpCommand(const DumpFlags& flags, Io& io) {
  const std::string path = ResolvePath(flags.folder);
  const absl::StatusOr<DumpFolder> folder = ReadDumpFolder(path);
  if (!folder.ok()) return Fail(io, BadFile(path, folder.status()));
  int code = kExitOk;
  for (const std::string& problem : folder->problems) {
    code = Fail(io, BadFile(path, InvalidArgument("{}", Shown(problem))));
  }
  if (folder->files.empty()) return code;
  io.out << RenderDump(ReportOf(folder->files));
  if (flags.flight_recorder.empty()) return code;
  const absl::Status status = WriteFlightRecords(folder->files, ResolvePath(flags.flight_recorder));
  return status.ok() ? code : Fail(io, status);
}

}  // namespace meshift::cli
