#include "planner/together/collective_starts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

Plan PlanOf(const char* from, const char* to) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  return MakePlan(Sharding::Parse("f32[8,8]", mesh, from).value(),
                  Sharding::Parse("f32[8,8]", mesh, to).value(),
                  {.topology = testkit::RoundLinks()})
      .value();
}

TEST(CollectiveKindsTest, NumbersGroupsAndOps) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  CollectiveKinds kinds;
  const auto expect = [&](const DeviceMesh& of, const DimSet& dims, StepOp op, int kind,
                          int group) {
    const CollectiveStart start = kinds.Of(of, dims, op);
    EXPECT_EQ(start.kind, kind);
    EXPECT_EQ(start.group, group);
  };
  expect(mesh, {0}, StepOp::kAllGather, 0, 0);
  expect(mesh, {0}, StepOp::kAllReduce, 1, 0);
  expect(mesh, {1}, StepOp::kAllGather, 2, 1);
  expect(DeviceMesh::Parse("a=2,b=2@4-7").value(), {0}, StepOp::kAllGather, 3, 2);
  expect(mesh, {0}, StepOp::kAllReduce, 1, 0);
}

TEST(StartsOfTest, CollectivesOnly) {
  CollectiveKinds kinds;
  EXPECT_TRUE(StartsOf(PlanOf("R,R", "S(0),S(1)"), testkit::RoundLinks(), &kinds).empty());
  const PlanStarts starts = StartsOf(PlanOf("S(0),R", "R,S(0)"), testkit::RoundLinks(), &kinds);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].ns, 1000);  // RoundLinks()
}

TEST(StartSumsTest, AKindStartsOnceAndTheKindsOfAGroupOneAfterTheOther) {
  StartSums sums;
  EXPECT_EQ(sums.Most(), 0);
  sums.Add({{.kind = 0, .group = 0, .ns = 10}, {.kind = 1, .group = 0, .ns = 5}});
  EXPECT_EQ(sums.Most(), 15);
  const PlanStarts longer = {{.kind = 0, .group = 0, .ns = 12}};
  EXPECT_EQ(sums.MostWith(longer), 17);
  EXPECT_EQ(sums.Most(), 15);
  sums.Add({{.kind = 2, .group = 1, .ns = 16}});
  EXPECT_EQ(sums.Most(), 16);
  sums.Add(longer);
  EXPECT_EQ(sums.Most(), 17);
  sums.Remove(longer);
  EXPECT_EQ(sums.Most(), 16);
}

// In any order of calls, the sum of those that are there counts.
TEST(StartSumsTest, EqualSumsFromScratch) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  const auto most_of = [](const std::vector<PlanStarts>& plans) {
    std::map<int32_t, CollectiveStart> longest;  // by kind
    for (const PlanStarts& plan : plans) {
      for (const CollectiveStart& start : plan) {
        CollectiveStart& known = longest.try_emplace(start.kind, start).first->second;
        known.ns = std::max(known.ns, start.ns);
      }
    }
    std::map<int32_t, int64_t> groups;
    int64_t most = 0;
    for (const auto& [kind, start] : longest) {
      most = std::max(most, groups[start.group] += start.ns);
    }
    return most;
  };
  StartSums sums;
  std::vector<PlanStarts> plans;
  for (int change = 0; change < 5000; ++change) {
    if (plans.empty() || below(8) < (plans.size() < 20 ? 5 : 3)) {
      PlanStarts plan;
      for (int i = below(4); i > 0; --i) {
        const int kind = below(9);
        plan.push_back({.kind = kind, .group = kind / 3, .ns = below(6)});
      }
      std::vector<PlanStarts> with = plans;
      with.push_back(plan);
      ASSERT_EQ(sums.MostWith(plan), most_of(with)) << change;
      sums.Add(plan);
      plans = std::move(with);
    } else {
      const auto at = plans.begin() + below(static_cast<int>(plans.size()));
      sums.Remove(*at);
      plans.erase(at);
    }
    ASSERT_EQ(sums.Most(), most_of(plans)) << change;
  }
}

}  // namespace
}  // namespace meshift
