#include "cli/engines.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/status_macros.h"
#include "comm/mpi/mpi_engine.h"
#include "comm/mpi/mpi_session.h"
#include "comm/nccl/nccl_start.h"

namespace meshift::cli {
namespace {

struct Entry {
  const char* name;
  std::string (*absence)();  // why this build leaves it out; empty: it does not
  absl::StatusOr<RankJob> (*start)(bool bounded_waits);
};

absl::StatusOr<RankJob> StartMpi(bool bounded_waits) {
  RankJob job;
  MESHIFT_ASSIGN_OR_RETURN(MpiSession session, MpiSession::Start());
  job.session = std::make_shared<MpiSession>(std::move(session));
  MESHIFT_ASSIGN_OR_RETURN(job.bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(job.engine, CreateMpiEngine({.control = job.bootstrap->control(),
                                                        .bounded_waits = bounded_waits}));
  return job;
}

bool IsSet(const char* variable) { return std::getenv(variable) != nullptr; }

// mpirun may run inside of a job of torchrun's, but not the other way round.
absl::StatusOr<RankJob> StartNccl(bool) {
  RankJob job;
  if (IsSet("OMPI_COMM_WORLD_SIZE") && MpiAbsence().empty()) {
    MESHIFT_ASSIGN_OR_RETURN(MpiSession session, MpiSession::Start());
    job.session = std::make_shared<MpiSession>(std::move(session));
    MESHIFT_ASSIGN_OR_RETURN(job.bootstrap, MpiBootstrap());
  } else if (IsSet("RANK") && IsSet("WORLD_SIZE")) {
    MESHIFT_ASSIGN_OR_RETURN(job.bootstrap, Bootstrap::FromTorchrun());
  } else {
    return FailedPrecondition(
        "the nccl engine runs one rank per process: start it by mpirun{}, or with RANK, "
        "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in the environment, as torchrun does",
        MpiAbsence().empty() ? "" : " (which this build does not have: " + MpiAbsence() + ")");
  }
  MESHIFT_ASSIGN_OR_RETURN(job.engine, StartNcclEngine(job.bootstrap.get()));
  return job;
}

const std::array<Entry, 2>& RankEngines() {
  static constexpr std::array<Entry, 2> kEngines = {
      {{"mpi", MpiAbsence, StartMpi}, {"nccl", NcclAbsence, StartNccl}}};
  return kEngines;
}

}  // namespace

std::string EngineNames() {
  std::string names = "local";
  for (const Entry& entry : RankEngines()) {
    if (entry.absence().empty()) names += fmt::format(" {}", entry.name);
  }
  return names;
}

absl::Status CheckEngine(const std::string& name) {
  if (name == "local") return absl::OkStatus();
  for (const Entry& entry : RankEngines()) {
    if (name != entry.name) continue;
    const std::string absence = entry.absence();
    if (absence.empty()) return absl::OkStatus();
    return Unimplemented("--engine: {} is not in this build: {} (there is: {})", name, absence,
                         EngineNames());
  }
  return InvalidArgument("--engine: \"{}\" is no engine ({})", name, EngineNames());
}

absl::StatusOr<RankJob> StartRankJob(const std::string& name, bool bounded_waits) {
  for (const Entry& entry : RankEngines()) {
    if (name == entry.name) return entry.start(bounded_waits);
  }
  return CheckEngine(name);
}

void LeaveJob(int exit_code) { std::_Exit(exit_code); }

}  // namespace meshift::cli
