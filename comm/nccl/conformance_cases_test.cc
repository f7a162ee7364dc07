// Redistributions on the NCCL engine over the stand-in libraries, under many schedules: on one mesh
// and from one mesh to another, with ragged shards, and from and to a part of the mesh. Ranks are
// threads.
#include "testing/conformance_cases.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/planner.h"
#include "testing/conformance_run.h"
#include "testing/internal/nccl/nccl_threads.h"
#include "testing/owner_world.h"
#include "testing/ragged_cases.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

using testkit::ConformanceCase;

constexpr int64_t kAtOnce = 100;  // on one engine

struct Sample {
  std::string name;
  std::vector<ConformanceCase> (*make)(int64_t num_ranks, int64_t count);
  int64_t ranks = 8;
  int64_t count = 1000;
  int64_t schedules = 1;
  PlannerOptions planning = {};
};

const std::vector<Sample>& Samples() {
  static const auto& samples = *new std::vector<Sample>{
      {.name = "OneMesh", .make = testkit::ConformanceCases, .count = 2000, .schedules = 10},
      {.name = "TwoMeshes", .make = testkit::CrossConformanceCases, .ranks = 12, .count = 2000},
      {.name = "RaggedPadded",
       .make = testkit::RaggedCases,
       .planning = {.ragged_sizes = RaggedSizes::kMax}},
      {.name = "RaggedExact",
       .make = testkit::RaggedCases,
       .planning = {.ragged_sizes = RaggedSizes::kSum}},
      {.name = "Owners", .make = testkit::OwnerCases},
      {.name = "OwnersOrdered",
       .make = testkit::OwnerCases,
       .planning = {.reproducibility = Reproducibility::kOrdered}},
  };
  return samples;
}

const std::vector<ConformanceCase>& CasesOf(size_t sample) {
  static auto& made = *new std::vector<std::vector<ConformanceCase>>(Samples().size());
  const Sample& s = Samples()[sample];
  if (made[sample].empty()) made[sample] = s.make(s.ranks, s.count);
  return made[sample];
}

// The cases [first, first + kAtOnce) of a sample, under one schedule.
struct Part {
  size_t sample = 0;
  int64_t first = 0;
  uint64_t seed = 0;
};

// MESHIFT_TEST_FRACTION=n runs one part in n.
std::vector<Part> Parts() {
  int64_t number = 0;
  std::vector<Part> parts;
  for (size_t s = 0; s < Samples().size(); ++s) {
    for (int64_t schedule = 0; schedule < Samples()[s].schedules; ++schedule) {
      for (int64_t first = 0; first < Samples()[s].count; first += kAtOnce) {
        const auto seed = static_cast<uint64_t>(1 + first / kAtOnce + 100 * schedule);
        if (number++ % testkit::TestFraction() == 0) parts.push_back({s, first, seed});
      }
    }
  }
  return parts;
}

class ConformanceCasesTest : public testing::TestWithParam<Part> {};

TEST_P(ConformanceCasesTest, AllRight) {
  const Part& part = GetParam();
  const Sample& sample = Samples()[part.sample];
  const std::vector<ConformanceCase>& all = CasesOf(part.sample);
  ASSERT_EQ(static_cast<int64_t>(all.size()), sample.count);
  const auto cases = absl::MakeConstSpan(all).subspan(part.first, kAtOnce);
  auto ranks = NcclThreads::Create(sample.ranks, {}, part.seed);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  std::vector<absl::StatusOr<testkit::ConformanceReport>> reports(sample.ranks);
  (*ranks)->Run([&](NcclEngine& engine, int64_t rank) {
    reports[rank] =
        testkit::RunConformance(cases, engine, (*ranks)->bootstrap(rank), sample.planning);
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

INSTANTIATE_TEST_SUITE_P(Parts, ConformanceCasesTest, testing::ValuesIn(Parts()),
                         [](const testing::TestParamInfo<Part>& info) {
                           return Samples()[info.param.sample].name + "Seed" +
                                  std::to_string(info.param.seed);
                         });

}  // namespace
}  // namespace meshift
