// Implements MpiSession and MpiBootstrap of meshift/mpi_engine.h in a build with MPI: initialises
// and finalises MPI, and sends the address of rank 0's hub to all ranks. INTERNAL: MPI has returned
// an error; an error handler such as MPI_ERRORS_ARE_FATAL, MPI's default, ends the job instead. The
// calls of MPI have no time-out.
#include <mpi.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "base/status.h"
#include "comm/mpi/mpi_threads.h"
#include "comm/mpi/requests.h"
#include "meshift/mpi_engine.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr char kFailed[] = "!";  // prefix of an error text; an address begins with a hex digit

}  // namespace

absl::StatusOr<MpiSession> MpiSession::Start() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) return MpiSession(false);
  int level = MPI_THREAD_SINGLE;  // unused: the engine queries the level that MPI provides
  MESHIFT_RETURN_IF_ERROR(
      MpiError(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread"));
#ifdef MPICH_VERSION
  // MPICH 4.0.2 calls this communicator's error handler for messages of all other communicators
  // (MPI_Test, MPI_Testall).
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#endif
  return MpiSession(true);
}

MpiSession::~MpiSession() {
  if (owns_) MPI_Finalize();
}

bool MpiSession::HasThreads() {
  const absl::StatusOr<MpiThreads> threads = MpiThreads::Query();
  return threads.ok() && threads->any();
}

void MpiSession::Leave(int exit_code) { std::_Exit(exit_code); }

absl::StatusOr<std::unique_ptr<Bootstrap>> MpiBootstrap(Bootstrap::Timeout timeout,
                                                        std::optional<int> communicator) {
  MESHIFT_RETURN_IF_ERROR(MpiThreads::Query().status());
  const MPI_Comm comm = communicator ? MPI_Comm_f2c(*communicator) : MPI_COMM_WORLD;
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Comm host = MPI_COMM_NULL;
  MESHIFT_RETURN_IF_ERROR(
      MpiError(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host),
               "MPI_Comm_split_type"));
  JobRank job{.rank = rank, .world_size = size};
  int local_rank = 0;
  MPI_Comm_rank(host, &local_rank);
  job.local_rank = local_rank;
  int local_size = 0;
  MPI_Comm_size(host, &local_size);
  job.local_world_size = local_size;
  MPI_Comm_free(&host);

  absl::StatusOr<std::unique_ptr<Bootstrap>> bootstrap =
      absl::UnknownError("only rank 0 opens the hub");
  std::string address;
  if (rank == 0) {
    const char* const interfaces = std::getenv("MESHIFT_SOCKET_IFNAME");
    bootstrap =
        Bootstrap::Listen(job, /*port=*/0, timeout, interfaces == nullptr ? "" : interfaces);
    address = bootstrap.ok() ? (*bootstrap)->address() : kFailed + Message(bootstrap.status());
  }
  auto length = static_cast<int>(address.size());
  MESHIFT_RETURN_IF_ERROR(MpiError(MPI_Bcast(&length, 1, MPI_INT, 0, comm), "MPI_Bcast"));
  address.resize(length);
  MESHIFT_RETURN_IF_ERROR(
      MpiError(MPI_Bcast(address.data(), length, MPI_CHAR, 0, comm), "MPI_Bcast"));
  if (rank == 0) return bootstrap;
  // Rank 0 sends its error in place of the address.
  if (address.substr(0, 1) == kFailed) {
    return absl::UnavailableError("rank 0 could not open the hub of the job: " + address.substr(1));
  }
  return Bootstrap::Connect(job, address, timeout);
}

}  // namespace meshift
