#include "planner/together/rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/work_budget.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "planner/together/links.h"
#include "planner/together/plan_loads.h"
#include "testing/random.h"

namespace meshift {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TensorMove Move(const std::string& mesh, const std::string& tensor, const std::string& from,
                const std::string& to, int64_t count) {
  const Sharding source = Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), from).value();
  return {source, source.WithPlacements(to).value(), count};
}

// Plans with these workspaces.
std::vector<Plan> PlansOf(const std::vector<int64_t>& workspaces) {
  const TensorMove move = Move("a=2", "f32[8]", "S(0)", "R", 1);
  const Plan plan = MakePlan(move.from, move.to).value();
  std::vector<Plan> plans;
  for (const int64_t bytes : workspaces) {
    PlanFields fields = plan.fields();
    fields.total.workspace_bytes = bytes;
    plans.push_back(Plan::Seal(std::move(fields)));
  }
  return plans;
}

// "2x(0:3) 1x(0:1 1:4)": rounds by repeat, then the moves and their counts.
std::string Text(const std::vector<Round>& rounds) {
  std::string text;
  for (const Round& round : rounds) {
    text += (text.empty() ? "" : " ") + std::to_string(round.repeat) + "x(";
    for (const Round::Part& part : round.parts) {
      if (text.back() != '(') text += ' ';
      text += std::to_string(part.move) + ":" + std::to_string(part.count);
    }
    text += ")";
  }
  return text;
}

std::string RoundsText(const std::vector<int64_t>& workspaces, const std::vector<int64_t>& counts,
                       int64_t bucket) {
  return Text(CutIntoRounds(PlansOf(workspaces), counts, bucket).value());
}

TEST(Rounds, CloseWhenTheNextTensorWouldExceedTheBucket) {
  EXPECT_EQ(RoundsText({10}, {7}, 30), "2x(0:3) 1x(0:1)");
  EXPECT_EQ(RoundsText({10}, {6}, 30), "2x(0:3)");
  EXPECT_EQ(RoundsText({10, 5}, {7, 5}, 30), "2x(0:3) 1x(0:1 1:4) 1x(1:1)");
  // A full round stays open for what needs no workspace, or fits in.
  EXPECT_EQ(RoundsText({10, 0}, {6, 9}, 30), "1x(0:3) 1x(0:3 1:9)");
  EXPECT_EQ(RoundsText({10, 4}, {6, 2}, 35), "1x(0:3) 1x(0:3 1:1) 1x(1:1)");
  // Not the best fit: tensors stay in order.
  EXPECT_EQ(RoundsText({20, 30, 10}, {1, 1, 1}, 30), "1x(0:1) 1x(1:1) 1x(2:1)");
  EXPECT_EQ(RoundsText({0, 0}, {kMost, kMost}, 1),
            "1x(0:9223372036854775807 1:9223372036854775807)");
  EXPECT_EQ(RoundsText({1, 1}, {kMost, 3}, 2), "4611686018427387903x(0:2) 1x(0:1 1:1) 1x(1:2)");
  EXPECT_EQ(RoundsText({kMost}, {2}, kMost), "2x(0:1)");
}

TEST(Rounds, RefuseABucketThatIsTooSmall) {
  for (const int64_t bucket : {int64_t{0}, int64_t{-1}}) {
    const absl::Status status = CutIntoRounds(PlansOf({0}), {1}, bucket).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "a bucket has " + std::to_string(bucket) + " bytes; it must have 1 or more");
  }
  EXPECT_EQ(CutIntoRounds(PlansOf({3, 8}), {1, 1}, 7).status().message(),
            "plan 1 has a workspace of 8 bytes; a bucket has 7");
}

// The same cut, tensor by tensor.
TEST(Rounds, AreThoseOfOneTensorAfterAnother) {
  testkit::Random random(29);
  for (int i = 0; i < 300; ++i) {
    const int64_t bucket = 1 + random.Below(40);
    std::vector<int64_t> workspaces;
    std::vector<int64_t> counts;
    for (int64_t n = 1 + random.Below(5); n > 0; --n) {
      workspaces.push_back(random.Below(3) == 0 ? 0 : random.Below(bucket + 1));
      counts.push_back(1 + random.Below(30));
    }
    std::vector<std::vector<int64_t>> expected = {{}};  // the moves of each tensor, by round
    int64_t used = 0;
    for (size_t m = 0; m < counts.size(); ++m) {
      for (int64_t c = 0; c < counts[m]; ++c) {
        if (used + workspaces[m] > bucket) {
          expected.emplace_back();
          used = 0;
        }
        used += workspaces[m];
        expected.back().push_back(static_cast<int64_t>(m));
      }
    }
    const std::vector<Plan> plans = PlansOf(workspaces);
    const std::vector<Round> rounds = CutIntoRounds(plans, counts, bucket).value();
    std::vector<std::vector<int64_t>> found;
    for (const Round& round : rounds) {
      EXPECT_EQ(round.workspace_bytes, WorkspaceOf(round, plans));
      EXPECT_LE(round.workspace_bytes, bucket);
      std::vector<int64_t> moves;
      for (const Round::Part& part : round.parts) moves.insert(moves.end(), part.count, part.move);
      found.insert(found.end(), round.repeat, moves);
    }
    EXPECT_EQ(found, expected) << Text(rounds);
    EXPECT_LE(rounds.size(), 2 * counts.size() + 1);
  }
}

// A tensor whose plan alone is too large gets one with less workspace; each round has the time of
// its own busiest link.
TEST(Rounds, OfPlansMadeTogether) {
  const std::vector<TensorMove> moves = {
      Move("a=8,b=2", "f32[64,48,40]", "S(2),S(0)", "R,S(0)", 3),
      Move("a=8,b=2", "f32[64,48]", "S(0),R", "R,R", 40),
  };
  const PlannerOptions options{.topology = Topology::Parse("nvlink=4").value()};
  const PlanSet all = MakePlans(moves, options).value();
  EXPECT_TRUE(all.rounds.empty());
  const int64_t large = all.plans[0].total().workspace_bytes;
  const int64_t small = all.plans[1].total().workspace_bytes;
  ASSERT_GT(large, 4 * small);

  const PlanSet roomy = MakePlans(moves, options, large).value();
  EXPECT_EQ(roomy.plans, all.plans);
  EXPECT_EQ(roomy.busiest_ns, all.busiest_ns);
  const int64_t bucket = large - 1;
  const PlanSet tight = MakePlans(moves, options, bucket).value();
  EXPECT_LE(tight.plans[0].total().workspace_bytes, bucket);
  EXPECT_EQ(tight.plans[1], all.plans[1]);
  for (const PlanSet* set : {&roomy, &tight}) {
    for (const Plan& plan : set->plans) EXPECT_TRUE(Verify(plan).ok());
    std::vector<int64_t> tensors(moves.size(), 0);
    for (const Round& round : set->rounds) {
      EXPECT_LE(round.workspace_bytes, set == &roomy ? large : bucket);
      std::vector<Plan> plans;
      WorkBudget budget(options.max_work);
      const Links links = LinksOf(set->plans, options.topology, budget).value();
      PlanLoads loads(set->plans, links, budget);
      for (const Round::Part& part : round.parts) {
        tensors[part.move] += round.repeat * part.count;
        loads.Add(part.move, part.count);
      }
      EXPECT_EQ(round.busiest_ns, loads.Busiest().ns);
      EXPECT_GT(round.busiest_ns, 0);
    }
    EXPECT_EQ(tensors, (std::vector<int64_t>{3, 40}));
  }

  const absl::Status refused = MakePlans(moves, options, 1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "move 0: the least workspace of a plan has 57600 bytes; a bucket has 1");
  EXPECT_EQ(MakePlans(moves, options, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

// The sums of PlanLoads are those that MakePlans has found, whatever was counted before.
TEST(PlanLoads, FindTheBusiestLinkOfPlansMadeTogether) {
  std::vector<TensorMove> moves;
  const Sharding from =
      Sharding::Parse("bf16[512,512]", DeviceMesh::Parse("dp=4").value(), "R").value();
  const DeviceMesh server = DeviceMesh::Parse("s=32@8-39").value();
  for (int i = 0; i < 32; ++i) {
    const std::string at = "At(" + std::to_string(i) + ")";
    moves.push_back({from, Sharding::Parse("bf16[512,512]", server, at).value(), 1 + i % 3});
  }
  const PlannerOptions options{.topology = Topology::Parse("nvlink=8").value()};
  const PlanSet set = MakePlans(moves, options).value();
  WorkBudget budget(options.max_work);
  const Links links = LinksOf(set.plans, options.topology, budget).value();
  EXPECT_EQ(links.num_ranks(), 36);
  PlanLoads loads(set.plans, links, budget);
  loads.Add(3, 1000);
  EXPECT_GT(loads.BusiestNs(), 0);
  loads.Clear();
  EXPECT_EQ(loads.BusiestNs(), 0);
  for (size_t i = 0; i < moves.size(); ++i) loads.Add(i, moves[i].count);
  EXPECT_EQ(loads.Busiest().ns, set.busiest_ns);
  EXPECT_EQ(loads.Busiest().link, set.busiest);
  EXPECT_EQ(loads.BusiestNs(), set.busiest_ns);
  // The work is limited, and sums saturate.
  WorkBudget little(100);
  EXPECT_EQ(LinksOf(set.plans, options.topology, little).status().code(),
            absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 3; ++i) loads.Add(i, kMost);
  EXPECT_GE(loads.BusiestNs(), kMost / 48);  // of 2^63 - 1 bytes at 48,000 bytes per us
}

}  // namespace
}  // namespace meshift
