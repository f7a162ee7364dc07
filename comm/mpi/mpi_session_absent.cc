// Replaces mpi_session.cc in a build without MPI: MpiSession::Start and MpiBootstrap return
// UNIMPLEMENTED, HasThreads returns false, and Leave ends the process.
#include <mpi_absence.h>

#include <cstdlib>

#include "base/status.h"
#include "meshift/mpi_engine.h"

namespace meshift {

absl::StatusOr<MpiSession> MpiSession::Start() {
  return Unimplemented("MPI is not in this build: {}", kMpiAbsence);
}
MpiSession::~MpiSession() { static_cast<void>(owns_); }
bool MpiSession::HasThreads() { return false; }
void MpiSession::Leave(int exit_code) { std::_Exit(exit_code); }

absl::StatusOr<std::unique_ptr<Bootstrap>> MpiBootstrap(Bootstrap::Timeout, std::optional<int>) {
  return Unimplemented("MPI is not in this build: {}", kMpiAbsence);
}

}  // namespace meshift
