// The conformance tests of engines, for the in-process engine: with one thread for all ranks and
// one per rank, with and without workers.
#include "testing/internal/conformance/conformance.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "meshift/local_world.h"

namespace meshift {
namespace {

class OneThreadJob : public ConformanceJob {
 public:
  OneThreadJob(std::unique_ptr<LocalWorld> world, int64_t size)
      : world_(std::move(world)), size_(size) {}
  int64_t size() const override { return size_; }
  void Run(const std::vector<Phase>& phases) override {
    for (const Phase& phase : phases) {
      for (int64_t r = 0; r < size_; ++r) phase(*world_->engine(r), r);
    }
  }

 protected:
  const std::unique_ptr<LocalWorld> world_;
  const int64_t size_;
};

class ThreadPerRankJob final : public OneThreadJob {
 public:
  using OneThreadJob::OneThreadJob;
  void Run(const std::vector<Phase>& phases) override {
    std::vector<std::thread> threads;
    threads.reserve(size_);
    for (int64_t r = 0; r < size_; ++r) {
      threads.emplace_back([&, r] {
        for (const Phase& phase : phases) phase(*world_->engine(r), r);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

template <typename Job>
ConformanceCase Case(const char* name, int num_workers) {
  const auto make = [num_workers](int num_ranks) -> std::unique_ptr<ConformanceJob> {
    LocalWorldOptions options;
    options.num_ranks = num_ranks;
    options.num_workers = num_workers;
    auto world = LocalWorld::Create(options);
    if (!world.ok()) return nullptr;
    return std::make_unique<Job>(*std::move(world), num_ranks);
  };
  return {name, make, {1, 2, 3, 5, 8}};
}

INSTANTIATE_TEST_SUITE_P(Local, EngineConformance,
                         testing::Values(Case<OneThreadJob>("OneThread", 0),
                                         Case<OneThreadJob>("OneThreadAndWorkers", 2)),
                         ConformanceName);

INSTANTIATE_TEST_SUITE_P(LocalThreads, EngineConformance,
                         testing::Values(Case<ThreadPerRankJob>("ThreadPerRank", 0),
                                         Case<ThreadPerRankJob>("ThreadPerRankAndWorkers", 2)),
                         ConformanceName);

}  // namespace
}  // namespace meshift
