// Promises about bits across processes: those of a plain loop.
#include <fmt/format.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/mpi/mpi_engine.h"
#include "comm/mpi/mpi_session.h"
#include "planner/plan.h"
#include "tests/ordered_check.h"

namespace meshift {
namespace {

absl::Status Run() {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  const auto seed = static_cast<uint64_t>(1000 * engine->world_size());
  MESHIFT_RETURN_IF_ERROR(CheckOrdered(engine.get(), {.cases = 100, .seed = seed}));
  MESHIFT_RETURN_IF_ERROR(
      CheckOrdered(engine.get(), {.cases = 50, .seed = seed + 500, .blocks = true}));
  // Its own reductions are in ascending order of ranks, which on these meshes is that of
  // coordinates.
  return CheckOrdered(engine.get(),
                      {.cases = 100, .seed = seed, .promise = Reproducibility::kBatchInvariant});
}

}  // namespace
}  // namespace meshift

int main() {
  auto session = meshift::MpiSession::Start();
  const absl::Status status = session.ok() ? meshift::Run() : session.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "ordered_test: {}\n", meshift::Message(status));
  meshift::MpiSession::Leave(1);
}
