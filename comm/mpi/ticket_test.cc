// Eight threads per process use sixteen groups in different orders without deadlock and with right
// results. Two redistributors do not mix up their calls. A missing ticket is named.
#include <mpi.h>

#include <cstdio>
#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/mpi_engine.h"
#include "meshift/status.h"
#include "testing/internal/conformance/ticket_check.h"
#include "testing/internal/mpi/rank_main.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

absl::Status Run(bool missing) {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  absl::Status status =
      missing ? CheckMissingTicket(engine.get())
              : CheckTickets(engine.get(), {.rounds = 10000 / testkit::TestFraction(), .seed = 1});
  if (status.ok() && !missing) status = CheckTwoRedistributors(engine.get(), 200);
  if (status.ok()) MPI_Barrier(MPI_COMM_WORLD);  // the hub ends with rank 0's bootstrap
  return status;
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  const bool missing = argc > 1 && std::string_view(argv[1]) == "missing";
  return meshift::RunAsRank("ticket_test", [&] { return meshift::Run(missing); });
}
