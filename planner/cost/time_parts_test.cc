#include <gtest/gtest.h>

#include <cstdint>

#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/cost.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

TimeParts PartsOfFirst(const Plan& plan, const Topology& topology) {
  return TimePartsOf(plan, 0, topology);
}

// The formulas of docs/cost_model.md, by hand.
TEST(TimePartsTest, AreTheTermsOfTheFormulas) {
  const Topology h100 = *Topology::Parse("h100");
  const DeviceMesh mesh = *DeviceMesh::Parse("a=8,b=5");
  const Sharding from = *Sharding::Parse("bf16[32768,16384]", mesh, "P,P");
  const Plan plan = *MakePlan(from, *from.WithPlacements("R,R"), {.topology = h100});
  ASSERT_EQ(plan.steps()[0].Label(), "all_reduce{a,b}");
  const TimeParts parts = PartsOfFirst(plan, h100);
  EXPECT_EQ(parts.starts_ns, 60'000);  // Simple
  EXPECT_EQ(parts.messages_ns, 0);
  EXPECT_EQ(parts.copies_ns, 0);
  // NVSwitch in 5 domains of 8; between them a tree, twice the 1 GiB over 8 NICs.
  EXPECT_EQ(parts.algorithm, Algorithm::kInSwitch);
  EXPECT_EQ(parts.hops_ns, 5 * (7 * 1'000 + 2 * 3 * 5'000 + 3 * 5'000));
  EXPECT_EQ(parts.links_ns, (int64_t{2} << 30) * 1000 / 384'000 + 1);
  EXPECT_EQ(parts.level, 1);
  EXPECT_EQ(parts.sharing, 8);

  // Groups over a have a single member in some domain.
  const Sharding one = *Sharding::Parse("bf16[32768,16384]", mesh, "P,S(0)");
  const Plan jagged = *MakePlan(one, *one.WithPlacements("R,S(0)"), {.topology = h100});
  const TimeParts slow = PartsOfFirst(jagged, h100);
  EXPECT_EQ(slow.level, 1);
  EXPECT_EQ(slow.sharing, 1);
  EXPECT_EQ(slow.Sum(), jagged.steps()[0].est_ns);
}

// Messages, packing and kept bytes.
TEST(TimePartsTest, OfMessages) {
  const DeviceMesh mesh = *DeviceMesh::Parse("a=4");
  const Sharding from = *Sharding::Parse("f32[64,64]", mesh, "S(0)");
  const Plan plan = *MakePlan(from, *from.WithPlacements("S(1)"), {.max_value = 0});
  ASSERT_EQ(plan.steps()[0].op, StepOp::kAllToAll);
  const TimeParts parts = PartsOfFirst(plan, Topology::Flat());
  EXPECT_EQ(parts.starts_ns, 10'000);
  EXPECT_EQ(parts.hops_ns, 2'000);
  EXPECT_EQ(parts.messages_ns, 1'500);
  EXPECT_GE(parts.copies_ns, 2'000);
  EXPECT_EQ(parts.Sum(), plan.steps()[0].est_ns);
}

// Onto another mesh.
TEST(TimePartsTest, OfACrossing) {
  const Topology h100 = *Topology::Parse("h100");
  const Sharding from = *Sharding::Parse("f32[4096,4096]", *DeviceMesh::Parse("a=8"), "S(0)");
  const Sharding to =
      *Sharding::Parse("f32[4096,4096]", *DeviceMesh::Parse("b=4@8,9,10,11"), "S(0)");
  const Plan plan = *MakePlan(from, to, {.topology = h100});
  const TimeParts parts = PartsOfFirst(plan, h100);
  EXPECT_EQ(parts.Sum(), plan.steps()[0].est_ns);
  EXPECT_EQ(parts.algorithm, Algorithm::kDirect);
  EXPECT_EQ(parts.level, 1);
  EXPECT_GT(parts.links_ns, 0);
}

TEST(TimePartsTest, AddUpToTheStep) {
  const Topology nvlink = *Topology::Parse("nvlink=2");
  int64_t steps = 0;
  testkit::ForEachSmallWorldCase({.fraction = 97}, [&](const Sharding& from, const Sharding& to) {
    for (const Reproducibility promise : {Reproducibility::kReplicas, Reproducibility::kOrdered}) {
      const absl::StatusOr<Plan> plan =
          MakePlan(from, to, {.reproducibility = promise, .topology = nvlink});
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (size_t i = 0; i < plan->steps().size(); ++i) {
        const Step& step = plan->steps()[i];
        const TimeParts parts = TimePartsOf(*plan, static_cast<int>(i), nvlink);
        EXPECT_EQ(parts.Sum(), step.est_ns) << step.ToString();
        for (const int64_t ns :
             {parts.starts_ns, parts.hops_ns, parts.messages_ns, parts.links_ns, parts.copies_ns}) {
          EXPECT_GE(ns, 0) << plan->from().ToString() << " " << step.ToString();
        }
        EXPECT_EQ(parts.starts_ns == 0, !IsCollective(step.op)) << step.ToString();
        ++steps;
      }
    }
  });
  EXPECT_GT(steps, 1000);
}

}  // namespace
}  // namespace meshift
