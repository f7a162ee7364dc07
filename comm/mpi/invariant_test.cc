// The promise `batch-invariant` across processes: an element's bits depend only on its
// contributions, not on its position or on the other elements of the call.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "meshift/mpi_engine.h"
#include "meshift/redistributor.h"
#include "meshift/status.h"
#include "testing/internal/mpi/rank_main.h"
#include "tests/invariant_case.h"

namespace meshift {
namespace {

constexpr int64_t kCases = 500;

absl::Status RunCase(const InvariantCase& c, Engine& engine, Bootstrap& bootstrap) {
  MESHIFT_ASSIGN_OR_RETURN(
      Redistributor redistribute,
      Redistributor::Create(c.mesh(), &engine,
                            {.planning = {.reproducibility = Reproducibility::kBatchInvariant,
                                          .topology = c.topology()}}));
  InvariantBits bits;
  for (const InvariantBatch& batch : c.Batches()) {
    MESHIFT_ASSIGN_OR_RETURN(InvariantRun run,
                             InvariantRun::Start(c, batch, &engine, redistribute));
    MESHIFT_RETURN_IF_ERROR(run.Finish(&bits));
  }
  // A moved element is on another rank.
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, bootstrap.Exchange(bits.Pack()));
  for (const std::string& packed : all) MESHIFT_RETURN_IF_ERROR(bits.Merge(packed));
  return absl::OkStatus();
}

absl::Status Run() {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const InvariantCase c(seed, engine->world_size());
    const absl::Status status = RunCase(c, *engine, *bootstrap);
    if (!status.ok()) return Annotate(status, fmt::format("seed {}: {}", seed, c.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main() { return meshift::RunAsRank("invariant_test", meshift::Run); }
