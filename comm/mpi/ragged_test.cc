// Ragged shards across processes, with padded and with exact messages, and SizeExchange.
#include "meshift/ragged.h"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/mpi_engine.h"
#include "meshift/planner.h"
#include "meshift/status.h"
#include "testing/conformance_run.h"
#include "testing/internal/mpi/rank_main.h"
#include "testing/payload_check.h"
#include "testing/ragged_cases.h"

namespace meshift {
namespace {

constexpr int64_t kCases = 300;

absl::Status CheckSizes(Engine* engine) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                           DeviceMesh::Create({{.name = "ep", .size = engine->world_size()}}));
  MESHIFT_ASSIGN_OR_RETURN(const auto exchange, SizeExchange::Create(mesh, engine));
  for (int64_t round = 0; round < 10; ++round) {
    MESHIFT_ASSIGN_OR_RETURN(const Placement::Sizes sizes,
                             exchange->Gather(0, engine->rank() * round));
    for (int64_t i = 0; i < mesh.NumRanks(); ++i) {
      if (sizes[i] != i * round) return Internal("rank {} has {} rows", i, sizes[i]);
    }
  }
  // All ranks get the error of one.
  const auto wrong = exchange->Gather(0, engine->rank() == 1 ? -1 : 3);
  const std::string expected = "rank 1 has -1 rows; expected at least 0";
  if (wrong.ok() || Message(wrong.status()) != expected) {
    return Internal("'{}' instead of '{}'", wrong.status().ToString(), expected);
  }
  return absl::OkStatus();
}

absl::Status Run() {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  MESHIFT_RETURN_IF_ERROR(CheckSizes(engine.get()));
  MESHIFT_RETURN_IF_ERROR(testkit::CheckPayloads(engine.get()));
  const auto cases = testkit::RaggedCases(engine->world_size(), kCases);
  for (const RaggedSizes sizes : {RaggedSizes::kMax, RaggedSizes::kSum}) {
    MESHIFT_ASSIGN_OR_RETURN(
        const testkit::ConformanceReport report,
        testkit::RunConformance(cases, *engine, *bootstrap, {.ragged_sizes = sizes}));
    if (engine->rank() == 0) fmt::print("{}: {}\n", Name(sizes), report.ToString());
    if (!report.ok()) return Internal("{}", report.first);
    if (report.cases != kCases) return Internal("{} cases were run", report.cases);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main() { return meshift::RunAsRank("ragged_test", meshift::Run); }
