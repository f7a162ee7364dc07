#include "cli/conformance.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/text_table.h"
#include "cli/text.h"
#include "meshift/bootstrap.h"
#include "meshift/local_world.h"
#include "meshift/status.h"
#include "testing/conformance_cases.h"
#include "testing/conformance_run.h"

namespace meshift::cli {
namespace {

using testkit::ConformanceCase;
using testkit::ConformanceReport;

constexpr int64_t kDefaultCases = 2000;
constexpr int64_t kDefaultRanks = 8;
constexpr int64_t kCrossRanks = 12;  // as the sample of cross-mesh cases needs

std::vector<ConformanceCase> Cases(const RunFlags& flags, int64_t ranks) {
  const int64_t cases = flags.cases.value_or(kDefaultCases);
  return flags.cross ? testkit::CrossConformanceCases(ranks, cases)
                     : testkit::ConformanceCases(ranks, cases);
}

int Print(const ConformanceReport& report, const RunFlags& flags, int64_t ranks, Io& io) {
  constexpr auto kRight = TextTable::Align::kRight;
  TextTable table({{"cases", kRight},
                   {"on all ranks", kRight},
                   {"runs", kRight},
                   {"wrong", kRight},
                   {"replicas differ", kRight},
                   {"bytes not as planned", kRight}});
  table.AddRow({fmt::format("{}", report.cases), fmt::format("{}", report.whole),
                fmt::format("{}", report.runs), fmt::format("{}", report.wrong),
                fmt::format("{}", report.replicas_differ), fmt::format("{}", report.miscounted)});
  io.out << fmt::format("# meshift run --conformance{}: engine {}, {}\n",
                        flags.cross ? " --cross" : "", flags.problem.engine,
                        CountText(ranks, "rank"))
         << table.ToString();
  if (!report.ok()) io.out << fmt::format("first wrong: {}\n", report.first);
  return report.ok() ? kExitOk : kExitCheckFailed;
}

}  // namespace

absl::StatusOr<int> RunConformance(const RunFlags& flags, RankJob* job, Io& io) {
  const int64_t ranks = job->engine->world_size();
  if (ranks < 2) return InvalidArgument("--conformance needs two ranks or more; this job has one");
  MESHIFT_ASSIGN_OR_RETURN(
      const ConformanceReport report,
      testkit::RunConformance(Cases(flags, ranks), *job->engine, *job->bootstrap));
  return Print(report, flags, ranks, io);
}

absl::StatusOr<int> RunLocalConformance(const RunFlags& flags, Io& io) {
  const int64_t ranks = flags.ranks.value_or(flags.cross ? kCrossRanks : kDefaultRanks);
  const std::vector<ConformanceCase> cases = Cases(flags, ranks);
  MESHIFT_ASSIGN_OR_RETURN(const auto world,
                           LocalWorld::Create({.num_ranks = ranks, .num_workers = 0}));
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstraps, Bootstrap::InProcess(ranks));
  std::vector<absl::StatusOr<ConformanceReport>> reports(ranks);
  {
    std::vector<std::jthread> threads;
    for (int64_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        reports[r] = testkit::RunConformance(cases, *world->engine(r), *bootstraps[r]);
      });
    }
  }
  MESHIFT_ASSIGN_OR_RETURN(const ConformanceReport report, reports[0]);
  return Print(report, flags, ranks, io);
}

}  // namespace meshift::cli
