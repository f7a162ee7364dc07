// main() of tests that run as ranks of an MPI job; each rank runs all tests. With the argument
// "leave" it ends without MPI_Finalize, which may hang after tests with unfinished work. mpirun
// then loses exit codes, so each rank prints that it has passed (mpi_test.sh).
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "meshift/mpi_engine.h"
#include "testing/internal/mpi/world.h"

namespace {

// Prints the failures of ranks that print nothing else.
class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

 private:
  // Here and not in OnTestPartResult, where UnitTest's lock is held.
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d, %s, %s:%d: %s\n", rank_, test_.c_str(),
                 result.file_name() == nullptr ? "" : result.file_name(), result.line_number(),
                 result.message());
  }
  const int rank_;
  std::string test_;
};

}  // namespace

int main(int argc, char** argv) {
  auto session = meshift::MpiSession::Start();
  if (!session.ok()) {
    std::fprintf(stderr, "%s\n", session.status().ToString().c_str());
    return 1;
  }
  const int rank = meshift::WorldRank();
  testing::InitGoogleTest(&argc, argv);
  // Only rank 0 prints all results; the others print only failures.
  if (rank > 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));
  }
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
