// The conformance tests of engines, for the MPI engine. Each rank is a process that runs this
// binary.
#include "testing/internal/conformance/conformance.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "meshift/mpi_engine.h"

namespace meshift {
namespace {

// This process's rank of a job over all processes.
class MpiJob final : public ConformanceJob {
 public:
  explicit MpiJob(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  int64_t size() const override { return engine_->world_size(); }
  void Run(const std::vector<Phase>& phases) override {
    for (const Phase& phase : phases) phase(*engine_, engine_->rank());
  }

 private:
  const std::unique_ptr<Engine> engine_;
};

std::vector<ConformanceCase> Cases() {
  const auto make_with = [](bool bounded_waits) {
    return [bounded_waits](int) -> std::unique_ptr<ConformanceJob> {
      auto engine =
          CreateMpiEngine({.timeout = std::chrono::seconds(20), .bounded_waits = bounded_waits});
      if (!engine.ok()) return nullptr;
      return std::make_unique<MpiJob>(*std::move(engine));
    };
  };
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<ConformanceCase> cases = {{"Processes", make_with(false), {size}}};
  if (MpiSession::HasThreads()) cases.push_back({"BoundedWaits", make_with(true), {size}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Mpi, EngineConformance, testing::ValuesIn(Cases()), ConformanceName);

}  // namespace
}  // namespace meshift
