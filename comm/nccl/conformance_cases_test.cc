// The conformance cases on the NCCL engine over the stand-in libraries, each under ten
// schedules: ranks are threads.
#include "testing/conformance_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/nccl/nccl_threads.h"
#include "testing/conformance_run.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 8;
constexpr int64_t kCases = 2000;
constexpr int64_t kAtOnce = 100;  // on one engine
constexpr int64_t kSeeds = 10;

// A seed, and which of the cases.
struct Part {
  uint64_t seed = 0;
  int64_t first = 0;
};

// MESHIFT_TEST_FRACTION = n takes one in n.
std::vector<Part> Parts() {
  const char* text = std::getenv("MESHIFT_TEST_FRACTION");
  const int64_t fraction = text == nullptr ? 1 : std::max<int64_t>(1, std::atoll(text));
  int64_t number = 0;
  std::vector<Part> parts;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (int64_t first = 0; first < kCases; first += kAtOnce) {
      if (number++ % fraction == 0) parts.push_back({seed, first});
    }
  }
  return parts;
}

class ConformanceCasesTest : public testing::TestWithParam<Part> {};

TEST_P(ConformanceCasesTest, AllRight) {
  static const auto& all =
      *new std::vector<testkit::ConformanceCase>(testkit::ConformanceCases(kRanks, kCases));
  ASSERT_EQ(static_cast<int64_t>(all.size()), kCases);
  const auto cases = absl::MakeConstSpan(all).subspan(GetParam().first, kAtOnce);
  auto ranks = NcclThreads::Create(kRanks, {}, GetParam().seed);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  std::vector<absl::StatusOr<testkit::ConformanceReport>> reports(kRanks);
  (*ranks)->Run([&](NcclEngine& engine, int64_t rank) {
    reports[rank] = testkit::RunConformance(cases, engine, (*ranks)->bootstrap(rank));
  });
  for (const auto& report : reports) {
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->ok()) << report->first;
    EXPECT_EQ(report->cases, kAtOnce);
  }
  *ranks = nullptr;
  EXPECT_EQ(TheFake()->record_leaks(), 0);
  EXPECT_EQ(Violations(), "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, ConformanceCasesTest, testing::ValuesIn(Parts()),
                         [](const testing::TestParamInfo<Part>& info) {
                           return "Seed" + std::to_string(info.param.seed) + "From" +
                                  std::to_string(info.param.first);
                         });

}  // namespace
}  // namespace meshift
