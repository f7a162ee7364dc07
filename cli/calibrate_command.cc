#include "cli/calibrate_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/text_table.h"
#include "cli/calibrate_logs.h"
#include "cli/engines.h"
#include "cli/execute.h"
#include "cli/execution_context.h"
#include "cli/local_tensors.h"
#include "cli/problem.h"
#include "cli/run_as_rank.h"
#include "cli/text.h"
#include "comm/local/reduction_order.h"
#include "meshift/calibration.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/status.h"
#include "meshift/topology.h"
#include "planner/plan/quantity.h"

namespace meshift::cli {
namespace {

constexpr int64_t kDefaultRanks = 8;
constexpr int kWarmUps = 3;  // runs of each probe that are not timed

struct Options {
  Topology structure;  // its domains are kept, its numbers are fitted
  int64_t max_bytes;   // of a rank's largest tensor
  int64_t repeat;      // timed runs of each probe
  std::chrono::nanoseconds timeout;
};

absl::StatusOr<Options> ParseOptions(const CalibrateFlags& flags) {
  MESHIFT_RETURN_IF_ERROR(CheckEngine(flags.engine));
  if (flags.format != "text" && flags.format != "json") {
    return InvalidArgument("--format: unknown format '{}'; expected text or json", flags.format);
  }
  if (flags.ranks && flags.engine != "local") {
    return InvalidArgument("--ranks is for the local engine; mpirun -n sets it for others");
  }
  const absl::StatusOr<int64_t> max_bytes = ParseBytes(flags.max_bytes);
  if (!max_bytes.ok()) return Annotate(max_bytes.status(), "--max-bytes");
  MESHIFT_ASSIGN_OR_RETURN(const std::chrono::nanoseconds timeout, JobTimeout(flags.timeout));
  ProblemFlags problem;
  problem.topology = flags.topology;
  MESHIFT_ASSIGN_OR_RETURN(PlannerOptions options, ParsePlannerOptions(problem));
  return Options{std::move(options.topology), *max_bytes, flags.repeat, timeout};
}

// The time of the fastest run, in ns, at least 1. The time of a run is that of its slowest rank.
absl::StatusOr<int64_t> Time(const Probe& probe, const Options& options,
                             ExecutionContext* context) {
  MESHIFT_ASSIGN_OR_RETURN(
      const Plan plan, MakePlan(probe.from, probe.to,
                                {.topology = ProbeTopology(options.structure), .max_value = 0}));
  if (plan.steps().size() != 1 || plan.steps()[0].op != probe.op) {
    return Internal("{} -> {} is not one {}", probe.from.ToString(), probe.to.ToString(),
                    Name(probe.op));
  }
  MESHIFT_RETURN_IF_ERROR(context->Agree(context->CheckFits(plan)));
  const LocalTensors sources = context->MakeTensors(plan.from());
  LocalTensors targets = context->MakeTensors(plan.to());
  MESHIFT_ASSIGN_OR_RETURN(const auto runner, context->NewRunner(plan, ReductionOrder::kRanks));
  int64_t fastest = INT64_MAX;
  for (int64_t i = 0; i < kWarmUps + options.repeat; ++i) {
    MESHIFT_ASSIGN_OR_RETURN(const RunStats run, runner->Run(sources, &targets));
    if (i >= kWarmUps) fastest = std::min(fastest, run.steps[0].ns);
  }
  return std::max<int64_t>(fastest, 1);
}

std::string_view Word(Probe::Kind kind) {
  switch (kind) {
    case Probe::Kind::kCopy:
      return "copy";
    case Probe::Kind::kGather:
      return "gather";
    case Probe::Kind::kReduce:
      return "reduce";
    case Probe::Kind::kPair:
      return "pair";
    case Probe::Kind::kMessages:
      return "messages";
  }
  return "";
}

absl::StatusOr<int> Calibrate(const CalibrateFlags& flags, const Options& options, int64_t ranks,
                              ExecutionContext* context, Io& io) {
  const absl::StatusOr<std::vector<Probe>> listed =
      CalibrationProbes(options.structure, ranks, options.max_bytes);
  MESHIFT_RETURN_IF_ERROR(context->Agree(listed.status()));
  const std::vector<Probe>& probes = *listed;
  std::vector<int64_t> times;
  for (const Probe& probe : probes) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t ns, Time(probe, options, context));
    times.push_back(ns);
  }
  MESHIFT_ASSIGN_OR_RETURN(const Topology fitted, FitTopology(options.structure, probes, times));
  if (flags.format == "json") {
    io.out << fitted.ToJson() << "\n";
    return kExitOk;
  }
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"probe"},
                   {"level"},
                   {"ranks", kRight},
                   {"bytes", kRight},
                   {"time", kRight},
                   {"fitted", kRight},
                   {"fitted/time", kRight}});
  std::vector<FittedTime> both;
  for (size_t i = 0; i < probes.size(); ++i) {
    const Probe& probe = probes[i];
    MESHIFT_ASSIGN_OR_RETURN(const int64_t ns, ProbeNs(probe, fitted));
    table.AddRow({std::string(Word(probe.kind)), fitted.level(probe.level).name,
                  fmt::format("{}", probe.from.mesh().dim(1).size), BytesText(probe.bytes),
                  TimeText(times[i]), TimeText(ns),
                  fmt::format("{:.2f}", static_cast<double>(ns) / static_cast<double>(times[i]))});
    both.push_back({probe.bytes, times[i], ns});
  }
  io.out << fmt::format("# meshift calibrate: engine {}, {}, the fastest of {} runs\n",
                        flags.engine, CountText(ranks, "rank"), options.repeat)
         << table.ToString() << ErrorLines(both) << fitted.ToJson() << "\n";
  return kExitOk;
}

}  // namespace

int CalibrateCommand(const CalibrateFlags& flags, Io& io) {
  if (!flags.logs.empty()) return CalibrateFromLogs(flags.logs, flags.topology, flags.format, io);
  const absl::StatusOr<Options> options = ParseOptions(flags);
  if (!options.ok()) return FailAsRank(flags.engine, options.status(), io);
  if (flags.engine != "local") {
    const auto body = [&](RankJob*, ExecutionContext* context, Io& own) {
      return Calibrate(flags, *options, context->num_ranks(), context, own);
    };
    // Without bounded waits, which would add to the times.
    JobCall call{.verb = "calibrate", .engine = flags.engine};
    call.options = {.bounded_waits = false, .timeout = options->timeout};
    call.arguments = {fmt::format("--engine {}", flags.engine),
                      fmt::format("--max-bytes {}", flags.max_bytes),
                      fmt::format("--repeat {}", flags.repeat)};
    if (flags.topology) call.arguments.push_back(fmt::format("--topology {}", *flags.topology));
    return RunAsRank(call, body, io);
  }
  const std::unique_ptr<ExecutionContext> context = MakeLocalContext(options->timeout);
  const absl::StatusOr<int> code =
      Calibrate(flags, *options, flags.ranks.value_or(kDefaultRanks), context.get(), io);
  return code.ok() ? *code : Fail(io, code.status());
}

}  // namespace meshift::cli
