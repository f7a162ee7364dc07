// main() of tests that run as ranks of an MPI job: each rank runs all tests. With the argument
// "leave" it ends without MPI_Finalize, which may not come back from what tests left behind; as
// mpirun then loses exit codes, each rank says that it has passed (mpi_test.sh).
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "meshift/mpi_engine.h"
#include "testing/internal/mpi/world.h"

int main(int argc, char** argv) {
  auto session = meshift::MpiSession::Start();
  if (!session.ok()) {
    std::fprintf(stderr, "%s\n", session.status().ToString().c_str());
    return 1;
  }
  const int rank = meshift::WorldRank();
  testing::InitGoogleTest(&argc, argv);
  // All ranks say the same, but what fails.
  if (rank > 0)
    delete testing::UnitTest::GetInstance()->listeners().Release(
        testing::UnitTest::GetInstance()->listeners().default_result_printer());
  const bool leaves = argc > 1 && std::string_view(argv[1]) == "leave";
  if (RUN_ALL_TESTS() == 0) {
    if (!leaves) return 0;
    std::fprintf(stderr, "\nrank %d has passed\n", rank);
    std::fflush(nullptr);
    meshift::MpiSession::Leave(0);
  }
  std::fprintf(stderr, "rank %d has failed\n", rank);
  std::fflush(nullptr);
  // The others may wait for this rank.
  meshift::MpiSession::Leave(1);
}
