// The NCCL engine over the stand-in libraries under the conformance tests: ranks are threads.
#include "testing/internal/conformance/conformance.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

class NcclContext final : public ConformanceJob {
 public:
  explicit NcclContext(std::unique_ptr<NcclThreads> ranks) : ranks_(std::move(ranks)) {}
  ~NcclContext() override {
    ranks_ = nullptr;
    EXPECT_EQ(Violations(), "");
    EXPECT_EQ(TheFake()->record_leaks(), 0) << Violations();
  }
  int64_t size() const override { return ranks_->size(); }
  void Run(const std::vector<Phase>& phases) override {
    ranks_->Run([&](NcclEngine& engine, int64_t rank) {
      for (const Phase& phase : phases) phase(engine, rank);
    });
  }

 private:
  std::unique_ptr<NcclThreads> ranks_;
};

uint64_t Seed() {
  const char* text = std::getenv("MESHIFT_FAKE_SEED");
  return text == nullptr ? 1 : static_cast<uint64_t>(std::atoll(text));
}

ConformanceCase Case(const char* name, const NcclOptions& options) {
  const auto make = [options](int num_ranks) -> std::unique_ptr<ConformanceJob> {
    auto ranks = NcclThreads::Create(num_ranks, options, Seed());
    EXPECT_TRUE(ranks.ok()) << ranks.status();
    if (!ranks.ok()) return nullptr;
    return std::make_unique<NcclContext>(*std::move(ranks));
  };
  return {name, make, {1, 2, 3, 5, 8}};
}

INSTANTIATE_TEST_SUITE_P(Nccl, EngineConformance,
                         testing::Values(Case("Chained", {}), Case("InFlight", {.max_ctas = 8}),
                                         Case("Bounded", {.bounded_calls = true})),
                         ConformanceName);

}  // namespace
}  // namespace meshift
