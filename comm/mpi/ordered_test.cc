// The promise `ordered` across processes: sums have the bits of a plain loop.
#include <cstdint>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/mpi_engine.h"
#include "meshift/plan.h"
#include "meshift/status.h"
#include "testing/internal/mpi/rank_main.h"
#include "tests/ordered_check.h"

namespace meshift {
namespace {

absl::Status Run() {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  const uint64_t seed = OrderedSeed(engine->world_size());
  MESHIFT_RETURN_IF_ERROR(CheckOrdered(engine.get(), {.seed = seed}));
  // Many processes on few cores wait for each other most of the time.
  const int64_t more = engine->world_size() <= 8 ? 100 : 10;
  MESHIFT_RETURN_IF_ERROR(
      CheckOrdered(engine.get(), {.cases = more / 2, .seed = seed + 500, .blocks = true}));
  // The engine reduces in ascending order of ranks; on these meshes that is the order of
  // coordinates.
  return CheckOrdered(engine.get(),
                      {.cases = more, .seed = seed, .promise = Reproducibility::kBatchInvariant});
}

}  // namespace
}  // namespace meshift

int main() { return meshift::RunAsRank("ordered_test", meshift::Run); }
