#include "cli/calibrate_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "base/text_table.h"
#include "cli/nccl_tests_log.h"
#include "cli/text.h"
#include "cli/topology_text.h"
#include "mesh/topology_presets.h"
#include "meshift/status.h"
#include "planner/cost/collective_time.h"

namespace meshift::cli {
namespace {

using ObservationKind = Observation::Kind;

constexpr std::string_view kDefaultTopology = "h100";
constexpr int64_t kLarge = int64_t{4} << 20;  // bytes; from here on links take more than starts
constexpr int64_t kMaxRanks = INT32_MAX;      // of a mesh

// One argument of --from-nccl-tests.
struct Source {
  std::optional<NcclTestsOp> op;  // if the argument names one
  std::string path;
};

Source ParseSource(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == word.npos) return {std::nullopt, word};
  const std::optional<NcclTestsOp> op = ParseNcclTestsOp(word.substr(0, equals));
  if (!op) return {std::nullopt, word};
  return {op, word.substr(equals + 1)};
}

// If the argument names a collective, the log must be of it. A log that names none, and whose rows
// fit several, is of the collective in the file's name.
absl::StatusOr<NcclTestsLog> ReadLog(const Source& source, Io& io) {
  MESHIFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(source.path, io));
  absl::StatusOr<NcclTestsLog> log = ParseNcclTestsLog(text, source.op);
  if (!log.ok() && !source.op) {
    const std::optional<NcclTestsOp> of_file = NcclTestsOpOfFile(source.path);
    if (of_file) log = ParseNcclTestsLog(text, of_file);
  }
  if (!log.ok()) return BadFile(source.path, log.status());
  if (!log->ranks) {
    return BadFile(source.path, InvalidArgument("it does not give the number of ranks"));
  }
  if (*log->ranks < 2) {
    return BadFile(source.path, InvalidArgument("{}; a measurement of links needs at least 2",
                                                CountText(*log->ranks, "rank")));
  }
  if (*log->ranks > kMaxRanks) {
    return BadFile(source.path,
                   InvalidArgument("{} ranks: a mesh has at most {}", *log->ranks, kMaxRanks));
  }
  return log;
}

std::optional<ObservationKind> KindOf(NcclTestsOp op) {
  switch (op) {
    case NcclTestsOp::kAllReduce:
      return ObservationKind::kAllReduce;
    case NcclTestsOp::kAllGather:
    case NcclTestsOp::kReduceScatter:
      return ObservationKind::kBlocks;
    case NcclTestsOp::kAllToAll:
      return ObservationKind::kToAll;
    default:
      return std::nullopt;
  }
}

LogTime TimeOfRow(const NcclTestsLog& log, ObservationKind kind, const NcclTestsRow& row) {
  const int64_t ranks = *log.ranks;
  Observation observation{.kind = kind, .num_ranks = ranks};
  observation.groups = {.size = ranks, .modes = {{ranks, 1}}};
  // An Observation counts the tensor of an all_reduce, and of others the bytes that leave the rank.
  observation.bytes =
      kind == ObservationKind::kAllReduce ? row.bytes : MulDivCeil(row.bytes, ranks - 1, ranks);
  observation.ns = row.time_ns;
  return {log.op, ranks, row.bytes, std::move(observation)};
}

// The sizes of the hosts in the logs.
class Hosts {
 public:
  // INVALID_ARGUMENT if hosts differ in size, or if a host's ranks are not consecutive.
  absl::Status Add(const NcclTestsLog& log) {
    const std::vector<int64_t>& hosts = log.ranks_per_host;
    if (hosts.empty()) return absl::OkStatus();
    const auto [least, most] = std::minmax_element(hosts.begin(), hosts.end());
    if (hosts.size() == 1) {
      one_host_ = std::max(one_host_, *most);
      return absl::OkStatus();
    }
    if (*least != *most) {
      return InvalidArgument(
          "its hosts have {} to {} ranks; set the size of a domain by --topology nvlink=SIZE",
          *least, *most);
    }
    if (log.scattered_hosts) {
      return InvalidArgument("a host's ranks are not consecutive, as those of a domain must be");
    }
    if (several_hosts_ != 0 && several_hosts_ != *most) {
      return InvalidArgument(
          "its hosts have {} ranks, those of an earlier log have {}; set the size of a domain by "
          "--topology nvlink=SIZE",
          *most, several_hosts_);
    }
    several_hosts_ = *most;
    return absl::OkStatus();
  }
  // A single host may have more GPUs than were measured, so it can only raise the count.
  NodeCounts CountsFor(int64_t domain) const {
    NodeCounts counts;
    if (several_hosts_ != 0) {
      counts.gpus = std::max(several_hosts_, one_host_);
    } else if (one_host_ > domain) {
      counts.gpus = one_host_;
    }
    return counts;
  }

 private:
  int64_t one_host_ = 0;  // the largest log of one host, in ranks
  int64_t several_hosts_ = 0;
};

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string ErrorLine(std::string_view of, const FitError& error) {
  if (error.count == 0) return "";
  return fmt::format("# error of {} {}: median {}, worst {}\n",
                     CountText(static_cast<int64_t>(error.count), "time"), of,
                     Percent(error.median), Percent(error.worst));
}

absl::StatusOr<int> Calibrate(const std::vector<std::string>& logs,
                              const std::optional<std::string>& topology, const std::string& format,
                              Io& io) {
  if (format != "text" && format != "json") {
    return InvalidArgument("--format: unknown format '{}'; expected text or json", format);
  }
  MESHIFT_ASSIGN_OR_RETURN(const LogTimes read, ReadLogTimes(logs, topology, io));
  std::vector<Observation> observations;
  for (const LogTime& time : read.times) observations.push_back(time.observation);
  MESHIFT_ASSIGN_OR_RETURN(const Topology fitted, FitObservations(read.structure, observations));
  if (format == "json") {
    io.out << fitted.ToJson() << "\n";
    return kExitOk;
  }
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"collective"},
                   {"ranks", kRight},
                   {"bytes", kRight},
                   {"measured", kRight},
                   {"fitted", kRight},
                   {"fitted/measured", kRight},
                   {"algorithm"},
                   {"protocol"}});
  std::vector<FittedTime> times;
  std::set<int64_t> ranks;
  for (const LogTime& time : read.times) {
    const CollectiveTime model = TimeOf(time.observation, fitted);
    const FittedTime both{time.bytes, time.observation.ns, model.Ns()};
    const double ratio =
        static_cast<double>(both.fitted_ns) / static_cast<double>(both.measured_ns);
    table.AddRow(
        {std::string(Name(time.op)), fmt::format("{}", time.ranks), BytesText(time.bytes),
         TimeText(both.measured_ns), TimeText(both.fitted_ns), fmt::format("{:.2f}", ratio),
         std::string(Name(model.algorithm)),
         model.protocol < 0 ? "-" : fitted.protocols()[static_cast<size_t>(model.protocol)].name});
    times.push_back(both);
    ranks.insert(time.ranks);
  }
  io.out << fmt::format("# meshift calibrate: {} of nccl-tests, {}\n",
                        CountText(static_cast<int64_t>(logs.size()), "log"),
                        ranks.size() == 1
                            ? CountText(*ranks.begin(), "rank")
                            : fmt::format("{} to {} ranks", *ranks.begin(), *ranks.rbegin()))
         << table.ToString() << ErrorLines(times);
  for (const std::string& line : read.left_out) io.out << "# left out: " << line << "\n";
  io.out << fitted.ToJson() << "\n";
  return kExitOk;
}

}  // namespace

absl::StatusOr<LogTimes> ReadLogTimes(const std::vector<std::string>& logs,
                                      const std::optional<std::string>& topology, Io& io) {
  const std::string text = topology.value_or(std::string(kDefaultTopology));
  const bool is_preset = IsPresetText(text) && text != "flat" && !NamesFile(text);
  NodeCounts counts;
  const auto read_topology = [&]() -> absl::StatusOr<Topology> {
    absl::StatusOr<TopologyText> read = ReadTopology(text, counts);
    if (read.ok()) return std::move(read->topology);
    if (ExitCodeOf(read.status()) == kExitBadFile) return read.status();
    return Annotate(read.status(), "--topology");
  };
  LogTimes result;
  MESHIFT_ASSIGN_OR_RETURN(result.structure, read_topology());
  Hosts hosts;
  for (const std::string& word : logs) {
    const Source source = ParseSource(word);
    MESHIFT_ASSIGN_OR_RETURN(const NcclTestsLog log, ReadLog(source, io));
    if (is_preset) {
      if (absl::Status bad = hosts.Add(log); !bad.ok()) return BadFile(source.path, bad);
    }
    const auto leave_out = [&](std::string why) {
      result.left_out.push_back(fmt::format("{}: {}", Shown(source.path), why));
    };
    const std::optional<ObservationKind> kind = KindOf(log.op);
    if (!kind) {
      leave_out(fmt::format("{} of {}, which is not fitted",
                            CountText(static_cast<int64_t>(log.rows.size()), "time"),
                            Name(log.op)));
      continue;
    }
    if (log.interrupted_rows > 0) {
      leave_out(
          fmt::format("{} broken by NCCL's own output", CountText(log.interrupted_rows, "row")));
    }
    if (result.times.size() + log.rows.size() > static_cast<size_t>(kMaxNcclTestsRows)) {
      return BadFile(source.path, InvalidArgument("all logs together have more than {} rows, the "
                                                  "most that are read",
                                                  kMaxNcclTestsRows));
    }
    int64_t wrong = 0;
    for (const NcclTestsRow& row : log.rows) {
      if (row.wrong != 0) {
        ++wrong;
        continue;
      }
      result.times.push_back(TimeOfRow(log, *kind, row));
    }
    if (wrong > 0) leave_out(fmt::format("{} with wrong values", CountText(wrong, "row")));
  }
  if (result.times.empty()) {
    return BadFile(ParseSource(logs.front()).path,
                   InvalidArgument("{} no times of all_reduce, all_gather, reduce_scatter or "
                                   "all_to_all, the collectives of plans",
                                   logs.size() == 1 ? "it has" : "this and the other logs have"));
  }
  if (is_preset) {
    counts = hosts.CountsFor(result.structure.level(0).domain_size);
    MESHIFT_ASSIGN_OR_RETURN(result.structure, read_topology());
  }
  return result;
}

std::string ErrorLines(const std::vector<FittedTime>& times) {
  std::vector<double> all;
  std::vector<double> large;
  for (const FittedTime& time : times) {
    all.push_back(static_cast<double>(time.fitted_ns) / static_cast<double>(time.measured_ns));
    if (time.bytes >= kLarge) large.push_back(all.back());
  }
  return ErrorLine("in all", ErrorOf(std::move(all))) +
         ErrorLine("from 4 MiB on", ErrorOf(std::move(large)));
}

int CalibrateFromLogs(const std::vector<std::string>& logs,
                      const std::optional<std::string>& topology, const std::string& format,
                      Io& io) {
  const absl::StatusOr<int> code = Calibrate(logs, topology, format, io);
  return code.ok() ? *code : Fail(io, code.status());
}

}  // namespace meshift::cli
