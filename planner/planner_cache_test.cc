#include "meshift/planner_cache.h"

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/lru_cache.h"
#include "gtest/gtest.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr uint64_t kCases = 300;

Sharding Parse(const std::string& mesh, const std::string& placements) {
  return Sharding::Parse("f32[24,36]", DeviceMesh::Parse(mesh).value(), placements).value();
}

// The sharding on a mesh with other names of dims and one more dim of size 1 in front, which is
// placed as `extra`.
Sharding Renamed(const Sharding& sharding, const Placement& extra) {
  std::vector<DeviceMesh::Dim> dims = {{"one", 1}};
  std::vector<Placement> placements = {extra};
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    dims.push_back({"other" + std::to_string(d), sharding.mesh().dim(d).size});
    placements.push_back(sharding.placement(d));
  }
  std::vector<Cuts> cuts;
  for (size_t k = 0; k < sharding.shape().size(); ++k) {
    cuts.emplace_back();
    for (const int d : sharding.CutsOf(static_cast<int>(k))) cuts.back().push_back(d + 1);
  }
  std::vector<int64_t> ranks = sharding.mesh().Ranks();
  return Sharding::Create(DeviceMesh::Create(std::move(dims), std::move(ranks)).value(),
                          sharding.tensor(), std::move(placements), std::move(cuts))
      .value();
}

TEST(PlannerCacheTest, GivesWhatMakePlanGivesAndRemembersIt) {
  const PlannerOptions options{.topology = Topology::Parse("nvlink=4").value()};
  PlannerCache cache(options);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const testkit::RandomPair pair = testkit::RandomCase(seed);
      const absl::StatusOr<Plan> plan = cache.Find(pair.from, pair.to);
      const absl::StatusOr<Plan> made = MakePlan(pair.from, pair.to, options);
      ASSERT_EQ(plan.status(), made.status());
      if (plan.ok()) {
        EXPECT_EQ(*plan, *made);
      }
    }
  }
  const PlannerCacheStats stats = cache.stats();
  EXPECT_GE(stats.hits, static_cast<int64_t>(kCases));
  EXPECT_EQ(stats.hits + stats.shared_paths + stats.searches, static_cast<int64_t>(2 * kCases));
  EXPECT_EQ(stats.evicted, 0);
  EXPECT_GT(stats.bytes, 0);
}

TEST(PlannerCacheTest, MeshesThatDifferInNamesShareWhatTheSearchFinds) {
  PlannerCache cache;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    if (!cache.Find(pair.from, pair.to).ok()) continue;
    const PlannerCacheStats before = cache.stats();
    const Sharding from = Renamed(pair.from, Placement::Replicate());
    const Sharding to = Renamed(pair.to, Placement::Replicate());
    const absl::StatusOr<Plan> plan = cache.Find(from, to);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(*plan, MakePlan(from, to).value());
    EXPECT_EQ(cache.stats().searches, before.searches) << from.ToString();
    // A few cases occur twice.
    EXPECT_EQ(cache.stats().hits + cache.stats().shared_paths,
              before.hits + before.shared_paths + 1);
  }
  EXPECT_GT(cache.stats().shared_paths, static_cast<int64_t>(kCases) / 2);
}

TEST(PlannerCacheTest, UnequalProblemsShareNothing) {
  PlannerCache cache;
  const std::pair<const char*, const char*> kMeshes[] = {{"a=2,b=4", "row-major"},
                                                         {"a=4,b=2", "other sizes"},
                                                         {"a=2,b=4@8-15", "other ranks"},
                                                         {"a=2,b=4@1,0,2-7", "another order"}};
  int64_t searches = 0;
  for (const auto& [mesh, what] : kMeshes) {
    for (const char* to : {"R,R", "R,S(0)", "S(1),S(0)"}) {
      ASSERT_TRUE(cache.Find(Parse(mesh, "S(0),S(1)"), Parse(mesh, to)).ok());
      EXPECT_EQ(cache.stats().searches, ++searches) << what << " to " << to;
    }
  }
  // The reduce dtype is part of the problem.
  const Sharding from = Parse("a=2,b=4", "P,P");
  const Sharding to = Parse("a=2,b=4", "R,R");
  ASSERT_TRUE(cache.Find(from, to).ok());
  const Plan wide = cache.Find(from, to, DType::kF64).value();
  EXPECT_EQ(wide.steps().front().op, StepOp::kCast);
  EXPECT_EQ(cache.stats().searches, searches + 2);
  EXPECT_EQ(cache.stats().shared_paths, 0);
}

// With any history, and any reduce dtype.
TEST(PlannerCacheTest, NothingDependsOnHistory) {
  const std::optional<DType> kReduceDTypes[] = {std::nullopt, DType::kF32, DType::kF64};
  PlannerCache cache;
  const auto check = [&](const Sharding& from, const Sharding& to) {
    for (const std::optional<DType> reduce_dtype : kReduceDTypes) {
      const absl::StatusOr<Plan> plan = cache.Find(from, to, reduce_dtype);
      const absl::StatusOr<Plan> made = MakePlan(from, to, {.reduce_dtype = reduce_dtype});
      ASSERT_EQ(plan.status(), made.status());
      if (plan.ok()) {
        EXPECT_EQ(*plan, *made) << from.ToString() << " to " << to.ToString();
      }
    }
  };
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    check(pair.from, pair.to);
  }
  // A problem without reductions: a plan may add identities, but only in the tensor's dtype.
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=4").value();
  const Sharding from = Sharding::Parse("bf16[2,8]", mesh, "S(1),S(1)").value();
  check(from, from.WithPlacements("P,R").value());
}

TEST(PlannerCacheTest, RefusalsAreNotRemembered) {
  PlannerCache cache;
  const Sharding from = Parse("a=2,b=4", "S(0),R");
  const Sharding to = Parse("a=2,b=4", "P(avg),R");
  for (int i = 1; i <= 2; ++i) {
    EXPECT_EQ(cache.Find(from, to).status(), MakePlan(from, to).status());
    EXPECT_EQ(cache.stats().searches, i);
    EXPECT_EQ(cache.stats().plans, 0);
  }
}

TEST(PlannerCacheTest, KeepsToItsBytes) {
  constexpr int64_t kMaxBytes = 1 << 18;
  PlannerCache cache({}, {.max_bytes = kMaxBytes});
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    (void)cache.Find(pair.from, pair.to);
    // Plans and paths each have the limit.
    EXPECT_LE(cache.stats().bytes, 2 * kMaxBytes);
  }
  EXPECT_GT(cache.stats().evicted, 0);
  EXPECT_GT(cache.stats().plans, 0);
}

// Listed ranks and ragged sizes take memory too.
TEST(PlannerCacheTest, ListsCount) {
  PlannerCache cache;
  constexpr int64_t kRanks = 10000;
  std::vector<int64_t> ranks(kRanks);
  for (int64_t i = 0; i < kRanks; ++i) ranks[i] = i * 7919 % kRanks;
  const DeviceMesh mesh = DeviceMesh::Create({{"a", kRanks}}, ranks).value();
  const Sharding whole =
      Sharding::Create(mesh, TensorType::Parse("f32[10000]").value(), {Placement::Replicate()})
          .value();
  ASSERT_TRUE(cache.Find(whole.WithPlacements("S(0)").value(), whole).ok());
  const int64_t listed = cache.stats().bytes;
  EXPECT_GT(listed, kRanks * 2 * static_cast<int64_t>(sizeof(int64_t)));
  Placement::Sizes sizes(kRanks, 1);  // 2 and 0 first, so that the cut is not a ceil cut
  sizes[0] = 2;
  sizes[1] = 0;
  const Sharding ragged = Sharding::Create(DeviceMesh::Create({{"a", kRanks}}).value(),
                                           whole.tensor(), {Placement::RaggedShard(0, sizes)})
                              .value();
  ASSERT_TRUE(cache.Find(ragged, ragged.WithPlacements("R").value()).ok());
  EXPECT_GT(cache.stats().bytes - listed, kRanks * static_cast<int64_t>(sizeof(int64_t)));
}

TEST(PlannerCacheTest, ThreadsFindTheSamePlans) {
  PlannerCache cache({}, {.max_bytes = 1 << 19});  // small, so that entries are evicted
  std::vector<testkit::RandomPair> pairs;
  std::vector<Plan> plans;
  for (uint64_t seed = 0; pairs.size() < 60; ++seed) {
    testkit::RandomPair pair = testkit::RandomCase(seed);
    absl::StatusOr<Plan> plan = MakePlan(pair.from, pair.to);
    if (!plan.ok()) continue;
    pairs.push_back(std::move(pair));
    plans.push_back(*std::move(plan));
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 5 * pairs.size(); ++i) {
        const size_t at = (i * (2 * t + 1) + t) % pairs.size();
        const absl::StatusOr<Plan> plan = cache.Find(pairs[at].from, pairs[at].to);
        wrong[t] += plan.ok() && *plan == plans[at] ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(wrong.size(), 0));
  const PlannerCacheStats stats = cache.stats();
  EXPECT_EQ(stats.hits + stats.shared_paths + stats.searches,
            static_cast<int64_t>(wrong.size() * 5 * pairs.size()));
}

// A copied map would hold iterators into the original's list.
static_assert(std::is_move_constructible_v<LruCache<int, int>>);
static_assert(!std::is_copy_constructible_v<LruCache<int, int>>);

TEST(LruCacheTest, ForgetsWhatWasNotUsedForTheLongestTime) {
  LruCache<int, std::string> lru(10);
  lru.Insert(1, "one", 4);
  lru.Insert(2, "two", 4);
  ASSERT_NE(lru.Find(1), nullptr);
  lru.Insert(3, "three", 4);  // evicts 2
  EXPECT_EQ(lru.Find(2), nullptr);
  ASSERT_NE(lru.Find(1), nullptr);
  EXPECT_EQ(*lru.Find(3), "three");
  EXPECT_EQ(lru.weight(), 8);
  EXPECT_EQ(lru.evicted(), 1);
  EXPECT_EQ(lru.Insert(4, "four", 11), nullptr);  // too heavy
  EXPECT_EQ(lru.size(), 2u);
  lru.Insert(5, "five", 10);
  EXPECT_EQ(lru.size(), 1u);
  EXPECT_EQ(lru.weight(), 10);
  EXPECT_EQ(*lru.Insert(5, "cinq", 10), "five");  // keeps the entry that exists
}

}  // namespace
}  // namespace meshift
