// main() of tests that run as ranks of an MPI job; each rank runs all tests. With the argument
// "leave" it ends without MPI_Finalize, which may hang after tests with unfinished work. mpirun
// then loses exit codes, so each rank prints that it has passed (mpi_test.sh).
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
  // Only rank 0 prints all results; the others print only failures.
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
  // The others may be waiting for this rank.
  meshift::MpiSession::Leave(1);
}
