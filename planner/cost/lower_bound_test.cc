#include "planner/cost/lower_bound.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "mesh/device_mesh.h"
#include "mesh/topology.h"
#include "placement/sharding.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/planner.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

Problem ProblemOf(const std::string& mesh, const std::string& tensor, const std::string& from,
                  const std::string& to) {
  const Sharding source = Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), from).value();
  return Problem::Create(source, source.WithPlacements(to).value()).value();
}

int64_t Moved(const std::string& mesh, const std::string& from, const std::string& to) {
  return LeastBytesMoved(ProblemOf(mesh, "u8[24,24]", from, to));
}

int64_t Ns(const std::string& mesh, const std::string& tensor, const std::string& from,
           const std::string& to) {
  const Problem problem = ProblemOf(mesh, tensor, from, to);
  const CostModel model(problem, Topology::Flat());
  return LeastCost(problem, model).est_ns;
}

constexpr int64_t kBytes = 24 * 24;

TEST(LowerBoundTest, MovesWhatRanksLack) {
  EXPECT_EQ(Moved("a=4", "S(0)", "R"), kBytes * 3);
  EXPECT_EQ(Moved("a=4", "R", "S(0)"), 0);
  EXPECT_EQ(Moved("a=4", "S(0)", "S(1)"), kBytes * 3 / 4);
  EXPECT_EQ(Moved("a=4", "S(0)", "S(0)"), 0);
  // Two ranks of four have the quarters that they want.
  EXPECT_EQ(Moved("a=2,b=2", "S(0),S(0)", "S(0)[1],S(0)[0]"), kBytes / 2);
  // Two of four want the half that they have.
  EXPECT_EQ(Moved("a=2,b=2", "S(0),R", "R,S(0)"), kBytes);
  // A mesh dim that cuts one tensor dim before and another after.
  EXPECT_EQ(Moved("a=2,b=3", "S(0),S(1)", "S(1),S(0)"), kBytes - 2 * 8 * 8 - 2 * 4 * 4);
}

TEST(LowerBoundTest, MovesContributions) {
  // Of four contributions, three come to each owner; and four ranks want the sum.
  EXPECT_EQ(Moved("a=4", "P", "S(0)"), kBytes * 3);
  EXPECT_EQ(Moved("a=4", "P", "R"), kBytes * 6);
  // A rank in the other half of the mesh may want a half of the sum: then it has no contribution
  // to it, and one message more brings it there.
  EXPECT_EQ(Moved("a=2,b=2", "P,S(0)", "S(0),S(0)"), kBytes + kBytes / 2);
  EXPECT_EQ(Moved("a=2,b=2", "P,S(0)", "S(0)[1],S(0)[0]"), kBytes);
  // What stays partial is a problem of its own for each of its coordinates.
  EXPECT_EQ(Moved("a=2,b=2", "P,S(0)", "P,R"), 2 * kBytes);
}

TEST(LowerBoundTest, AMillionRanks) {
  const int64_t ranks = 1 << 20;
  EXPECT_EQ(LeastBytesMoved(ProblemOf("a=1024,b=1024", "u8[1048576]", "S(0),S(0)", "R,S(0)")),
            1024 * ranks - ranks);
  EXPECT_EQ(LeastBytesMoved(ProblemOf("a=1024,b=1024", "u8[1024,1024]", "S(0),S(1)", "S(1),S(0)")),
            0);  // all that is known: ranks may have what they want
}

TEST(LowerBoundTest, TimeOfOneCollective) {
  // 10 us to start, 1 us a hop; 16 MiB over 360 GB/s.
  EXPECT_EQ(Ns("a=4", "u8[8,8]", "S(0)", "R"), 12000 + 1);
  EXPECT_EQ(Ns("a=4", "u8[4096,8192]", "S(0)", "R"), 12000 + 69906);
  // What is local takes one copy.
  EXPECT_EQ(Ns("a=4", "u8[8,8]", "R", "S(0)"), 2000 + 1);
  EXPECT_EQ(Ns("a=4", "u8[8,8]", "S(0)", "S(0)"), 0);
  // A gather of 3/4 of the tensor, whose rows are joined, and a slice; for a large tensor three
  // messages, and copies of what stays and of what comes.
  EXPECT_EQ(Ns("a=4", "u8[64,64]", "S(1)", "S(0)"), 12000 + 9 + 2 * 2000);
  EXPECT_EQ(Ns("a=4", "u8[4096,4096]", "S(1)", "S(0)"),
            12000 + 3 * 500 + 8739 + 2 * 2000 + 2 * 1399);
}

TEST(LowerBoundTest, LargeTensorsAreCopiedOnce) {
  // Rows of half the length: all that ranks hold in the end is copied, half of it at both ends.
  const int64_t half = int64_t{16384} * 8192;  // of a rank's share
  const int64_t ns = Ns("a=2", "bf16[16384,16384]", "S(0)", "S(1)");
  const int64_t moved = half * 1000 / 360000;
  const int64_t copied = 2 * half * 1000 / 1500000;
  EXPECT_GE(ns, 11000 + moved + copied);
  EXPECT_LE(ns, 18000 + moved + copied);
}

// Random meshes and shapes: uneven cuts, empty pieces, ranks in any order, any promise.
TEST(LowerBoundTest, NoPlanIsBelow) {
  int64_t equal = 0;
  int64_t cases = 0;
  const Topology domains = Topology::Parse("nvlink=4").value();
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const testkit::RandomPair pair = testkit::RandomCase(seed);
    for (const PlannerOptions& options :
         {PlannerOptions{}, PlannerOptions{.reproducibility = Reproducibility::kNone},
          PlannerOptions{.reproducibility = Reproducibility::kOrdered},
          PlannerOptions{.topology = domains}}) {
      const absl::StatusOr<Plan> plan = MakePlan(pair.from, pair.to, options);
      if (!plan.ok()) continue;
      const LowerBound& bound = plan->lower_bound();
      ASSERT_LE(bound.est_ns, plan->total().est_ns)
          << pair.from.ToString() << " -> " << pair.to.PlacementsText();
      ASSERT_LE(bound.bytes_sent, plan->total().bytes_sent)
          << pair.from.ToString() << " -> " << pair.to.PlacementsText();
      ++cases;
      equal += bound.est_ns == plan->total().est_ns ? 1 : 0;
    }
  }
  // The bound is met, too.
  EXPECT_GT(equal, cases / 4);
}

}  // namespace
}  // namespace meshift
