// Redistributions from and to a part of the mesh, under two promises, on the NCCL engine over the
// stand-in libraries: ranks are threads.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/nccl_engine.h"
#include "meshift/planner.h"
#include "testing/conformance_run.h"
#include "testing/internal/nccl/nccl_threads.h"
#include "testing/owner_world.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 8;
constexpr int64_t kCases = 1000;
constexpr int64_t kAtOnce = 100;  // on one engine

struct Part {
  Reproducibility promise = Reproducibility::kReplicas;
  int64_t first = 0;
};

// MESHIFT_TEST_FRACTION=n runs one part in n.
std::vector<Part> Parts() {
  std::vector<Part> parts;
  int64_t number = 0;
  for (int64_t first = 0; first < kCases; first += kAtOnce) {
    for (const Reproducibility promise : {Reproducibility::kReplicas, Reproducibility::kOrdered}) {
      if (number++ % testkit::TestFraction() == 0) parts.push_back({promise, first});
    }
  }
  return parts;
}

class NcclOwnerTest : public testing::TestWithParam<Part> {};

TEST_P(NcclOwnerTest, AllRight) {
  static const auto& all =
      *new std::vector<testkit::ConformanceCase>(testkit::OwnerCases(kRanks, kCases));
  const auto cases = absl::MakeConstSpan(all).subspan(GetParam().first, kAtOnce);
  auto ranks = NcclThreads::Create(kRanks, {}, /*seed=*/GetParam().first + 1);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  std::vector<absl::StatusOr<testkit::ConformanceReport>> reports(kRanks);
  (*ranks)->Run([&](NcclEngine& engine, int64_t rank) {
    reports[rank] = testkit::RunConformance(cases, engine, (*ranks)->bootstrap(rank),
                                            {.reproducibility = GetParam().promise});
  });
  for (const auto& report : reports) {
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->ok()) << report->first;
    EXPECT_EQ(report->cases, kAtOnce);
  }
  *ranks = nullptr;
  EXPECT_EQ(Violations(), "");
}

INSTANTIATE_TEST_SUITE_P(Parts, NcclOwnerTest, testing::ValuesIn(Parts()),
                         [](const testing::TestParamInfo<Part>& info) {
                           return std::string(Name(info.param.promise)) + "From" +
                                  std::to_string(info.param.first);
                         });

}  // namespace
}  // namespace meshift
