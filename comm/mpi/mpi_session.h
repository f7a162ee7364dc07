// MPI for a program that has not initialised it: for several threads, finalised at the end.
//
//   MESHIFT_ASSIGN_OR_RETURN(MpiSession session, MpiSession::Start());
//   ...
//   if (failed) MpiSession::Leave(1);
#ifndef MESHIFT_COMM_MPI_MPI_SESSION_H_
#define MESHIFT_COMM_MPI_MPI_SESSION_H_

#include <chrono>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"

namespace meshift {

// Finalises MPI when destroyed, where it has initialised it. Movable.
class MpiSession {
 public:
  // OK too where the program has initialised MPI. UNIMPLEMENTED where this build has no MPI.
  static absl::StatusOr<MpiSession> Start();
  MpiSession(MpiSession&& other) noexcept : owns_(other.owns_) { other.owns_ = false; }
  MpiSession& operator=(MpiSession&&) = delete;
  ~MpiSession();

  // Ends the process at once, without MPI_Finalize and without destructors: after an error these
  // may wait for messages that never come. The caller has flushed its output.
  [[noreturn]] static void Leave(int exit_code);

 private:
  explicit MpiSession(bool owns) : owns_(owns) {}
  bool owns_;
};

// Bootstraps the job over MPI: rank 0 opens the hub, and broadcasts where, with a secret that it
// has drawn. The hub listens on loopback where all ranks share memory, else where
// MESHIFT_SOCKET_IFNAME says (Bootstrap::Listen()). Collective; the communicator as in
// MpiEngineOptions. Errors as those of Bootstrap::Listen() and Connect(); UNAVAILABLE also where
// rank 0 could not open the hub.
absl::StatusOr<std::unique_ptr<Bootstrap>> MpiBootstrap(
    Bootstrap::Timeout timeout = Bootstrap::kDefaultTimeout,
    std::optional<int> communicator = std::nullopt);

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_MPI_SESSION_H_
