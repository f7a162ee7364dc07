// main() of a test that is one function, called on each rank of an MPI job.
//
//   int main() { return meshift::RunAsRank("owner_test", meshift::Run); }
#ifndef MESHIFT_TESTING_INTERNAL_MPI_RANK_MAIN_H_
#define MESHIFT_TESTING_INTERNAL_MPI_RANK_MAIN_H_

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/mpi_engine.h"

namespace meshift {

// Returns 0 if `run` succeeds. Otherwise prints its error and ends the process: MPI_Finalize would
// wait for ranks that still work.
inline int RunAsRank(std::string_view test, absl::FunctionRef<absl::Status()> run) {
  auto session = MpiSession::Start();
  const absl::Status status = session.ok() ? run() : session.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}: {}\n", test, Message(status));
  std::fflush(stderr);
  MpiSession::Leave(1);
}

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_MPI_RANK_MAIN_H_
