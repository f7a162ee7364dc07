// No plan of an earlier search is cheaper than a plan now, but for two permutes of single rows:
// 5,000 pairs of 2 to 5 mesh dims, with the steps found by a search with other bounds and another
// list of steps (tests/data/README.md). The steps are priced again, so costs may change.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "placement/unit_dims.h"
#include "planner/cost/cost.h"
#include "planner/cost/path_cost.h"
#include "planner/graph/state.h"
#include "planner/intra_mesh/reduction_choice.h"
#include "planner/search/search.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr int kNumShards = 4;  // as shard_count in BUILD; a test case per shard
constexpr int kCases = 5000;

std::string Text(absl::string_view text) { return {text.data(), text.size()}; }

// REQUIRES: no mesh dim of size 1, nothing ragged.
State StateOf(const Problem& problem, const Sharding& sharding) {
  State state;
  for (int d = 0; d < problem.num_dims(); ++d) {
    const Placement& placement = sharding.placement(d);
    if (placement.IsPartial()) state.SetPartial(d, placement.op());
  }
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    int place = 0;
    for (const int d : sharding.CutsOf(k)) state.SetShard(d, k, place++);
  }
  while (problem.dtype(state.stage()) != sharding.dtype()) state = state.AtStage(state.stage() + 1);
  return state;
}

struct Earlier {
  Sharding from;
  Sharding to;
  PlannerOptions options;
  std::string steps;
};

// topology|mesh|tensor|placements|tensor|placements|ns|steps
Earlier Parse(const std::string& line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, '|');
  EXPECT_EQ(fields.size(), 8u) << line;
  const DeviceMesh mesh = *DeviceMesh::Parse(Text(fields[1]));
  return {*Sharding::Parse(Text(fields[2]), mesh, Text(fields[3])),
          *Sharding::Parse(Text(fields[4]), mesh, Text(fields[5])),
          {.topology = *Topology::Parse(Text(fields[0]))},
          Text(fields[7])};
}

// "all_gather bf16 R,R; slice bf16 S(0),R"
Path ParsePath(const Problem& problem, const std::string& steps) {
  Path path;
  for (const absl::string_view step : absl::StrSplit(steps, "; ", absl::SkipEmpty())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(step, absl::MaxSplits(' ', 2));
    EXPECT_EQ(parts.size(), 3u) << steps;
    TensorType tensor = problem.to().tensor();
    tensor.dtype = *ParseDType(Text(parts[1]));
    const Sharding after = *Sharding::Parse(tensor, problem.mesh(), Text(parts[2]));
    path.moves.push_back({*ParseStepOp(Text(parts[0])), StateOf(problem, after)});
  }
  return path;
}

class EarlierPlansTest : public testing::TestWithParam<int> {};

TEST_P(EarlierPlansTest, AreNotCheaper) {
  std::ifstream file("tests/data/plans_0ed945b.txt");
  ASSERT_TRUE(file.good());
  int number = 0;
  int compared = 0;
  int cheaper_now = 0;
  int dearer = 0;
  for (std::string line; std::getline(file, line); ++number) {
    if (number % kNumShards != GetParam()) continue;
    if (number / kNumShards % testkit::TestFraction() != 0) continue;
    const Earlier earlier = Parse(line);
    // That search knew no owners.
    const Problem problem = *Problem::Create(earlier.from, earlier.to, /*reduce_dtype=*/{},
                                             /*ends_at_crossing=*/false, UnitDims());
    const ReductionChoice choice = *ChooseReductions(problem, earlier.options);
    const CostModel model(problem, earlier.options.topology,
                          CostOptionsOf(earlier.options, choice));
    const Path path = ParsePath(problem, earlier.steps);
    ASSERT_EQ(path.moves.empty() ? problem.source() : path.moves.back().after, problem.target());
    const absl::StatusOr<Plan> plan = MakePlan(earlier.from, earlier.to, earlier.options);
    ASSERT_TRUE(plan.ok()) << line << ": " << plan.status();
    const int64_t earlier_ns = CostOf(problem, model, path).ns;
    // That search permuted single rows, which are owners now and are not permuted. The plan may
    // take one local operation more.
    const bool permuted = earlier.steps.find("permute") != std::string::npos &&
                          Problem::Create(earlier.from, earlier.to)->HasOwners();
    const int64_t copy_ns =
        permuted ? CopyNs(earlier.options.topology, problem.MaxValueBytes()) : 0;
    EXPECT_LE(plan->total().est_ns, earlier_ns + copy_ns) << line;
    dearer += plan->total().est_ns > earlier_ns ? 1 : 0;
    cheaper_now += plan->total().est_ns < earlier_ns ? 1 : 0;
    ++compared;
  }
  EXPECT_EQ(number, kCases);
  EXPECT_GE(compared, kCases / kNumShards / testkit::TestFraction());
  EXPECT_LE(dearer, 1);
  fmt::print("{} plans compared, {} are cheaper now, {} dearer\n", compared, cheaper_now, dearer);
}

INSTANTIATE_TEST_SUITE_P(Shards, EarlierPlansTest, testing::Range(0, kNumShards));

}  // namespace
}  // namespace meshift
