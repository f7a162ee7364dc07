// Memory limits hold: seeded cases with a limit between the least memory and twice that, planned,
// proven, and run with all memory from the engine, which counts it; with separate buffers, with the
// source consumed, and in one buffer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/local_run.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/planner.h"
#include "meshift/status.h"
#include "meshift/testing.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "meshift/verifier.h"
#include "testing/conformance_cases.h"
#include "testing/owner_world.h"
#include "testing/ragged_cases.h"
#include "testing/random.h"

namespace meshift {
namespace {

using testkit::ConformanceCase;

// Each buffer mode has this many test cases, which share all cases.
constexpr int kNumShards = 4;
constexpr int kNumBuffers = 3;  // kNumBuffers * kNumShards: as shard_count in BUILD

// 1,200 cases: on one mesh, in all dtypes and with casts; with ragged shards; to other meshes; from
// and to one coordinate, or several. Plans for several coordinates are made in one way, which a
// limit may refuse.
std::vector<ConformanceCase> Cases() {
  std::vector<ConformanceCase> cases = testkit::ConformanceCases(8, 600);
  for (const ConformanceCase& c : testkit::RaggedCases(8, 200)) cases.push_back(c);
  for (const ConformanceCase& c : testkit::CrossConformanceCases(12, 200)) cases.push_back(c);
  for (const ConformanceCase& c : testkit::OwnerCases(8, 200)) cases.push_back(c);
  return cases;
}

// The options of case `number`.
PlannerOptions OptionsOf(const ConformanceCase& c, int64_t number) {
  PlannerOptions options{.reduce_dtype = c.reduce_dtype};
  if (number % 3 == 1) options.topology = Topology::Parse("nvlink=4").value();
  if (number % 5 == 2) {
    options.reproducibility = Reproducibility::kOrdered;
    if (number % 2 == 0) options.reduce_block = 2;
  }
  return options;
}

struct Counted {
  int64_t peak_bytes = 0;  // of the worst rank, as the engine counts
  std::string wrong;       // describes a wrong target; empty: none
};

// Runs the plan once. The engine provides all memory: sources, targets, and the run's own.
absl::StatusOr<Counted> RunCounted(const Plan& plan, const PlannerOptions& options, uint64_t seed) {
  const Sharding& from = plan.from();
  const Sharding& to = plan.to();
  DeviceMesh mesh = from.mesh();
  if (!(from.mesh() == to.mesh())) {
    MESHIFT_ASSIGN_OR_RETURN(mesh, UnionMesh(from.mesh(), to.mesh()));
  }
  const std::vector<int64_t> ranks = mesh.Ranks();
  MESHIFT_ASSIGN_OR_RETURN(
      const std::unique_ptr<LocalWorld> world,
      LocalWorld::Create(
          {.num_ranks = *std::max_element(ranks.begin(), ranks.end()) + 1, .num_workers = 0}));
  MESHIFT_ASSIGN_OR_RETURN(const testkit::Oracle oracle,
                           testkit::Oracle::Create(from, to, options.reduce_dtype));
  const testkit::Fill fill{.values = testkit::Values::kExact, .seed = seed};
  std::vector<std::unique_ptr<Buffer>> buffers;
  const auto allocate = [&](const DeviceMesh& on, int64_t position,
                            int64_t bytes) -> absl::StatusOr<void*> {
    Engine* engine = world->engine(on.RankAt(position));
    MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, engine->Allocate(bytes));
    buffers.push_back(std::move(buffer));
    return buffers.back()->data();
  };
  std::vector<void*> sources;
  for (int64_t p = 0; p < from.mesh().NumRanks(); ++p) {
    const int64_t bytes = oracle.SourceBytes(p);
    const std::optional<int64_t> shared = options.buffers == Buffers::kOne
                                              ? to.mesh().PositionOf(from.mesh().RankAt(p))
                                              : std::nullopt;
    const int64_t more = shared ? oracle.TargetBytes(*shared) : 0;
    MESHIFT_ASSIGN_OR_RETURN(void* const data, allocate(from.mesh(), p, std::max(bytes, more)));
    MESHIFT_RETURN_IF_ERROR(oracle.FillSource(
        fill, p, absl::MakeSpan(static_cast<std::byte*>(data), static_cast<size_t>(bytes))));
    sources.push_back(data);
  }
  std::vector<void*> targets;
  std::vector<absl::Span<const std::byte>> views;
  for (int64_t p = 0; p < to.mesh().NumRanks(); ++p) {
    const int64_t bytes = oracle.TargetBytes(p);
    const std::optional<int64_t> shared = options.buffers == Buffers::kOne
                                              ? from.mesh().PositionOf(to.mesh().RankAt(p))
                                              : std::nullopt;
    void* data = nullptr;
    if (shared) {
      data = sources[*shared];
    } else {
      MESHIFT_ASSIGN_OR_RETURN(data, allocate(to.mesh(), p, bytes));
    }
    targets.push_back(data);
    views.emplace_back(static_cast<const std::byte*>(data), static_cast<size_t>(bytes));
  }
  MESHIFT_ASSIGN_OR_RETURN(
      const std::unique_ptr<LocalRunner> runner,
      LocalRunner::Create(world.get(), mesh, {.expert = {.verify_plans = false}}));
  const bool consumes = options.buffers == Buffers::kConsumed;
  MESHIFT_RETURN_IF_ERROR(runner->Run(plan, sources, targets, consumes).status());
  MESHIFT_ASSIGN_OR_RETURN(const testkit::CheckResult result, oracle.Check(fill, views));
  Counted counted{0, result.ToString()};
  for (const int64_t rank : ranks) {
    counted.peak_bytes = std::max(counted.peak_bytes, world->memory(rank).peak_bytes);
  }
  return counted;
}

class MemoryLimitTest : public testing::TestWithParam<int> {};

TEST_P(MemoryLimitTest, IsKeptByTheAllocationsOfARun) {
  const std::vector<ConformanceCase> cases = Cases();
  ASSERT_EQ(cases.size(), 1200);
  int64_t run = 0;
  int64_t bound = 0;  // cases whose cheapest plan takes more than the limit
  int64_t exact = 0;  // cases whose run took exactly the planned memory
  int64_t over = 0;
  const auto buffers = static_cast<Buffers>(GetParam() / kNumShards);
  for (int64_t i = GetParam() % kNumShards; i < std::ssize(cases); i += kNumShards) {
    const ConformanceCase& c = cases[i];
    SCOPED_TRACE(fmt::format("case {}: {}", i, c.ToString()));
    PlannerOptions options = OptionsOf(c, i);
    options.buffers = buffers;
    const absl::StatusOr<int64_t> least = LeastMemory(c.from, c.to, options);
    ASSERT_TRUE(least.ok()) << least.status();
    const absl::StatusOr<Plan> free = MakePlan(c.from, c.to, options);
    ASSERT_TRUE(free.ok()) << free.status();

    options.max_memory = *least;
    const absl::StatusOr<Plan> leanest = MakePlan(c.from, c.to, options);
    ASSERT_TRUE(leanest.ok()) << leanest.status();
    EXPECT_EQ(leanest->total().peak_bytes, *least);
    if (*least > 0) {
      options.max_memory = *least - 1;
      const absl::Status refusal = MakePlan(c.from, c.to, options).status();
      EXPECT_TRUE(absl::IsResourceExhausted(refusal)) << refusal;
      EXPECT_EQ(
          Message(refusal).find(fmt::format(
              "max_memory is {} bytes per rank; the smallest sufficient value is {}: {}source ",
              *least - 1, *least, buffers == Buffers::kConsumed ? "consumed " : "")),
          0)
          << refusal;
    }

    testkit::Random random(i);
    options.max_memory = *least + random.Below(*least + 1);
    const absl::StatusOr<Plan> plan = MakePlan(c.from, c.to, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_GE(plan->total().est_ns, free->total().est_ns);
    EXPECT_LE(plan->total().est_ns, leanest->total().est_ns);
    bound += free->total().peak_bytes > *options.max_memory ? 1 : 0;
    for (const bool lean : {false, true}) {
      const Plan& one = lean ? *leanest : *plan;
      const Verdict verdict = Verify(one);
      ASSERT_TRUE(verdict.ok()) << verdict.fault->message;
      const absl::StatusOr<Counted> counted = RunCounted(one, options, i);
      ASSERT_TRUE(counted.ok()) << counted.status();
      EXPECT_EQ(counted->wrong, "");
      EXPECT_LE(counted->peak_bytes, one.total().peak_bytes);
      over += counted->peak_bytes > (lean ? *least : *options.max_memory) ? 1 : 0;
      exact += counted->peak_bytes == one.total().peak_bytes ? 1 : 0;
    }
    ++run;
  }
  EXPECT_EQ(over, 0);
  fmt::print(
      "memory limit, buffers {}, shard {} of {}: {} cases within a limit of least to twice that, "
      "and within "
      "the least: in {} the cheapest plan takes more than the limit; of {} runs {} took more than "
      "the limit, {} exactly what the plan says\n",
      Name(buffers), GetParam() % kNumShards, kNumShards, run, bound, 2 * run, over, exact);
}

INSTANTIATE_TEST_SUITE_P(Shards, MemoryLimitTest, testing::Range(0, kNumBuffers* kNumShards));

}  // namespace
}  // namespace meshift
