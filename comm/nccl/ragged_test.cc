// Ragged shards, padded and exact, on the NCCL engine over the stand-in libraries: ranks are
// threads.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/nccl_engine.h"
#include "meshift/planner.h"
#include "testing/conformance_run.h"
#include "testing/internal/nccl/nccl_threads.h"
#include "testing/payload_check.h"
#include "testing/ragged_cases.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 8;
constexpr int64_t kCases = 1000;
constexpr int64_t kAtOnce = 100;  // on one engine

struct Part {
  RaggedSizes sizes = RaggedSizes::kMax;
  int64_t first = 0;
};

// MESHIFT_TEST_FRACTION=n runs one case in n.
std::vector<Part> Parts() {
  std::vector<Part> parts;
  int64_t number = 0;
  for (int64_t first = 0; first < kCases; first += kAtOnce) {
    for (const RaggedSizes sizes : {RaggedSizes::kMax, RaggedSizes::kSum}) {
      if (number++ % testkit::TestFraction() == 0) parts.push_back({sizes, first});
    }
  }
  return parts;
}

class NcclRaggedTest : public testing::TestWithParam<Part> {};

TEST_P(NcclRaggedTest, AllRight) {
  static const auto& all =
      *new std::vector<testkit::ConformanceCase>(testkit::RaggedCases(kRanks, kCases));
  const auto cases = absl::MakeConstSpan(all).subspan(GetParam().first, kAtOnce);
  auto ranks = NcclThreads::Create(kRanks, {}, /*seed=*/GetParam().first + 1);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  std::vector<absl::StatusOr<testkit::ConformanceReport>> reports(kRanks);
  (*ranks)->Run([&](NcclEngine& engine, int64_t rank) {
    reports[rank] = testkit::RunConformance(cases, engine, (*ranks)->bootstrap(rank),
                                            {.ragged_sizes = GetParam().sizes});
  });
  for (const auto& report : reports) {
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->ok()) << report->first;
    EXPECT_EQ(report->cases, kAtOnce);
  }
  *ranks = nullptr;
  EXPECT_EQ(Violations(), "");
}

TEST(NcclPayloadTest, ScalesGoWithTheirPayload) {
  auto ranks = NcclThreads::Create(4, {}, /*seed=*/1);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  (*ranks)->Run(
      [](NcclEngine& engine, int64_t) { EXPECT_EQ(Message(testkit::CheckPayloads(&engine)), ""); });
  *ranks = nullptr;
  EXPECT_EQ(TheFake()->record_leaks(), 0);
  EXPECT_EQ(Violations(), "");
}

INSTANTIATE_TEST_SUITE_P(Parts, NcclRaggedTest, testing::ValuesIn(Parts()),
                         [](const testing::TestParamInfo<Part>& info) {
                           return std::string(Name(info.param.sizes)) + "From" +
                                  std::to_string(info.param.first);
                         });

}  // namespace
}  // namespace meshift
