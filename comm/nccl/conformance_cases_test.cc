// The conformance cases on the NCCL engine over the stand-in libraries, each under ten schedules;
// cases from one mesh to another under one. Ranks are threads.
#include "testing/conformance_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "testing/conformance_run.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 8;
constexpr int64_t kCrossRanks = 12;
constexpr int64_t kCases = 2000;
constexpr int64_t kAtOnce = 100;  // on one engine
constexpr int64_t kSeeds = 10;

// A seed, and the first of the cases to run.
struct Part {
  uint64_t seed = 0;
  int64_t first = 0;
  bool cross = false;  // the cases from one mesh to another
};

// MESHIFT_TEST_FRACTION=n runs one part in n.
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
  for (int64_t first = 0; first < kCases; first += kAtOnce) {
    const auto seed = static_cast<uint64_t>(1 + first / kAtOnce);
    if (number++ % fraction == 0) parts.push_back({seed, first, /*cross=*/true});
  }
  return parts;
}

class ConformanceCasesTest : public testing::TestWithParam<Part> {};

TEST_P(ConformanceCasesTest, AllRight) {
  const Part& part = GetParam();
  const int64_t n = part.cross ? kCrossRanks : kRanks;
  static const auto& one_mesh =
      *new std::vector<testkit::ConformanceCase>(testkit::ConformanceCases(kRanks, kCases));
  static const auto& two_meshes = *new std::vector<testkit::ConformanceCase>(
      testkit::CrossConformanceCases(kCrossRanks, kCases));
  const std::vector<testkit::ConformanceCase>& all = part.cross ? two_meshes : one_mesh;
  ASSERT_EQ(static_cast<int64_t>(all.size()), kCases);
  const auto cases = absl::MakeConstSpan(all).subspan(part.first, kAtOnce);
  auto ranks = NcclThreads::Create(n, {}, part.seed);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  std::vector<absl::StatusOr<testkit::ConformanceReport>> reports(n);
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
                           return std::string(info.param.cross ? "Cross" : "") + "Seed" +
                                  std::to_string(info.param.seed) + "From" +
                                  std::to_string(info.param.first);
                         });

}  // namespace
}  // namespace meshift
