// Replaces mpi_engine.cc in a build without MPI: CreateMpiEngine returns UNIMPLEMENTED, and
// MpiAbsence the reason.
#include <mpi_absence.h>

#include "base/status.h"
#include "meshift/mpi_engine.h"

namespace meshift {

std::string MpiAbsence() { return kMpiAbsence; }

absl::StatusOr<std::unique_ptr<Engine>> CreateMpiEngine(const MpiEngineOptions&) {
  return Unimplemented("the MPI engine is not in this build: {}", kMpiAbsence);
}

}  // namespace meshift
