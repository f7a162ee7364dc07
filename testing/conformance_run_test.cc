#include "testing/conformance_run.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/local_world.h"
#include "testing/conformance_cases.h"

namespace meshift::testkit {
namespace {

constexpr int64_t kCases = 2000;

class ConformanceCasesTest : public testing::TestWithParam<int64_t> {};

TEST_P(ConformanceCasesTest, ManyOfAllRanksAndOfEveryDType) {
  const int64_t n = GetParam();
  const std::vector<ConformanceCase> cases = ConformanceCases(n, kCases);
  EXPECT_EQ(std::ssize(cases), kCases);
  int64_t whole = 0;
  std::set<DType> dtypes;
  std::set<std::string> different;
  for (const ConformanceCase& c : cases) {
    whole += c.from.mesh().NumRanks() == n ? 1 : 0;
    dtypes.insert(c.from.dtype());
    different.insert(c.ToString());
    for (const int64_t rank : c.from.mesh().Ranks()) EXPECT_LT(rank, n);
  }
  EXPECT_GE(whole, 500);
  EXPECT_EQ(std::ssize(dtypes), kNumDTypes);
  EXPECT_GE(std::ssize(different), kCases * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ConformanceCasesTest, testing::Values(2, 3, 5, 6, 8));

TEST(CrossConformanceCasesTest, FromOneMeshToAnother) {
  for (const int64_t n : {4, 12}) {
    const std::vector<ConformanceCase> cases = CrossConformanceCases(n, n == 12 ? kCases : 100);
    EXPECT_EQ(std::ssize(cases), n == 12 ? kCases : 100);
    std::set<DType> dtypes;
    for (const ConformanceCase& c : cases) {
      EXPECT_FALSE(c.from.mesh() == c.to.mesh());
      dtypes.insert(c.from.dtype());
      for (const DeviceMesh& mesh : {c.from.mesh(), c.to.mesh()}) {
        for (const int64_t rank : mesh.Ranks()) EXPECT_LT(rank, n);
      }
    }
    EXPECT_EQ(std::ssize(dtypes), kNumDTypes);
  }
}

// Ranks are threads on the local engine. `order`: the order of its sums.
std::vector<absl::StatusOr<ConformanceReport>> RunLocally(int64_t n,
                                                          const std::vector<ConformanceCase>& cases,
                                                          ReductionOrder order) {
  auto world = LocalWorld::Create({.num_ranks = n, .num_workers = 0, .reduction_order = order});
  auto bootstraps = Bootstrap::InProcess(n);
  std::vector<absl::StatusOr<ConformanceReport>> reports(n);
  EXPECT_TRUE(world.ok() && bootstraps.ok());
  if (!world.ok() || !bootstraps.ok()) return reports;
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < n; ++r) {
    threads.emplace_back(
        [&, r] { reports[r] = RunConformance(cases, *(*world)->engine(r), *(*bootstraps)[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  return reports;
}

TEST(ConformanceRunTest, TheLocalEngineIsRight) {
  constexpr int64_t kCount = 200;
  for (const int64_t n : {2, 5}) {
    for (const auto& report : RunLocally(n, ConformanceCases(n, kCount), ReductionOrder::kRanks)) {
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->first, "");
      EXPECT_EQ(report->cases, kCount);
      EXPECT_EQ(report->runs, 3 * kCount);
      EXPECT_GE(report->whole, kCount / 4);
    }
  }
}

TEST(ConformanceRunTest, TheLocalEngineIsRightFromOneMeshToAnother) {
  constexpr int64_t kCount = 200;
  for (const auto& report :
       RunLocally(12, CrossConformanceCases(12, kCount), ReductionOrder::kRanks)) {
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->first, "");
    EXPECT_EQ(report->cases, kCount);
  }
}

// Its sums are off by more than rounding, differently in each group.
TEST(ConformanceRunTest, AnEngineThatSumsWronglyIsFound) {
  for (const auto& report : RunLocally(4, ConformanceCases(4, 100), ReductionOrder::kAdversarial)) {
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GT(report->wrong, 0);
    EXPECT_EQ(report->miscounted, 0);
    EXPECT_NE(report->first, "");
  }
}

}  // namespace
}  // namespace meshift::testkit
