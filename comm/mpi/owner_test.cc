// Redistributions from and to a part of the mesh, across processes, under two promises.
#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/mpi_engine.h"
#include "meshift/planner.h"
#include "meshift/status.h"
#include "testing/conformance_run.h"
#include "testing/internal/mpi/rank_main.h"
#include "testing/owner_world.h"

namespace meshift {
namespace {

constexpr int64_t kCases = 1000;

absl::Status Run() {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  const auto cases = testkit::OwnerCases(engine->world_size(), kCases);
  for (const Reproducibility promise : {Reproducibility::kReplicas, Reproducibility::kOrdered}) {
    MESHIFT_ASSIGN_OR_RETURN(
        const testkit::ConformanceReport report,
        testkit::RunConformance(cases, *engine, *bootstrap, {.reproducibility = promise}));
    if (engine->rank() == 0) fmt::print("{}: {}\n", Name(promise), report.ToString());
    if (!report.ok()) return Internal("{}", report.first);
    if (report.cases != kCases) return Internal("{} cases were run", report.cases);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main() { return meshift::RunAsRank("owner_test", meshift::Run); }
