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
    if (engine->rank() == 0) {
      fmt::print("{}: {} cases, {} runs, {} wrong, {} with differing replicas, {} miscounted\n",
                 Name(promise), report.cases, report.runs, report.wrong, report.replicas_differ,
                 report.miscounted);
    }
    if (!report.ok()) return Internal("{}", report.first);
    if (report.cases != kCases) return Internal("{} cases were run", report.cases);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main() {
  auto session = meshift::MpiSession::Start();
  const absl::Status status = session.ok() ? meshift::Run() : session.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "owner_test: {}\n", meshift::Message(status));
  meshift::MpiSession::Leave(1);
}
