// The promise `batch-invariant` on the in-process engine: an element's bits depend only on its
// contributions, whatever the size of its tensor, its place and shard, and whether it is sent in
// one tensor or in parts, alone or with others. The engine adds by a topology whose domains the
// groups fill unevenly, so that the choice of group matters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/local/reduction_order.h"
#include "meshift/local_world.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/status.h"
#include "meshift/verifier.h"
#include "testing/small_world.h"
#include "tests/invariant_case.h"

namespace meshift {
namespace {

constexpr int kShards = 4;
constexpr int64_t kCases = 500;

class InvariantTest : public ::testing::TestWithParam<int> {
 protected:
  // Runs all batches on all ranks; an error if an element's bits differ.
  absl::Status Run(const InvariantCase& c, Reproducibility promise) {
    const int64_t size = c.mesh().NumRanks();
    std::unique_ptr<LocalWorld>& world = worlds_[size];
    if (world == nullptr) world = LocalWorld::Create({.num_ranks = size}).value();
    world->SetReductionOrder(ReductionOrder::kTopology, c.domain());
    const RedistributorOptions options{
        .planning = {.reproducibility = promise, .topology = c.topology()}};
    std::vector<Redistributor> redistributors;
    for (int64_t r = 0; r < size; ++r) {
      MESHIFT_ASSIGN_OR_RETURN(Redistributor made,
                               Redistributor::Create(c.mesh(), world->engine(r), options));
      redistributors.push_back(std::move(made));
    }
    InvariantBits bits;
    for (const InvariantBatch& batch : c.Batches()) {
      std::vector<InvariantRun> runs;
      for (int64_t r = 0; r < size; ++r) {
        MESHIFT_ASSIGN_OR_RETURN(
            InvariantRun run, InvariantRun::Start(c, batch, world->engine(r), redistributors[r]));
        runs.push_back(std::move(run));
      }
      // Finish all of them: others may read data that one of them has sent.
      absl::Status status;
      for (InvariantRun& run : runs) status.Update(run.Finish(&bits));
      MESHIFT_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  // The first difference.
  std::string FindDifference(const InvariantCase& c, Reproducibility promise) {
    const absl::Status status = Run(c, promise);
    return status.ok() ? "" : status.ToString();
  }

  std::map<int64_t, std::unique_ptr<LocalWorld>> worlds_;
};

TEST_P(InvariantTest, BitsAreThoseOfTheContributions) {
  int64_t cases = 0;
  int64_t ordered = 0;
  int64_t replicas_differ = 0;  // in the same runs under the weaker promise
  for (int64_t seed = GetParam(); seed < kCases; seed += kShards * testkit::TestFraction()) {
    const InvariantCase c(static_cast<uint64_t>(seed));
    ++cases;
    const InvariantTensor tensor = c.First()[0];
    const absl::StatusOr<Plan> plan =
        MakePlan(tensor.from, tensor.to,
                 {.reproducibility = Reproducibility::kBatchInvariant, .topology = c.topology()});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->kept(), Reproducibility::kBatchInvariant);
    const Verdict verdict = Verify(*plan);
    ASSERT_TRUE(verdict.ok()) << verdict.fault->rule << ": " << verdict.fault->message;
    ordered += std::any_of(plan->steps().begin(), plan->steps().end(), [](const Step& step) {
      return step.reduce_order == ReduceOrder::kAscending;
    });
    EXPECT_EQ(FindDifference(c, Reproducibility::kBatchInvariant), "")
        << "seed " << seed << ": " << c.ToString();
    replicas_differ += FindDifference(c, Reproducibility::kReplicas).empty() ? 0 : 1;
  }
  fmt::print(
      "batch-invariant: {} cases, {} of them in order, 0 differ; under replicas, of the same {} "
      "differ\n",
      cases, ordered, replicas_differ);
  if (cases < 50) return;  // too few in a fraction of the cases
  EXPECT_GT(ordered, 0);
  EXPECT_LT(ordered, cases);
  EXPECT_GT(replicas_differ, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, InvariantTest, ::testing::Range(0, kShards));

}  // namespace
}  // namespace meshift
