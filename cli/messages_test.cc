#include "cli/messages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"

namespace meshift::cli {
namespace {

// A plan whose only step is `op` over `mesh_dims`.
Plan OneStep(StepOp op, const std::string& mesh_text, const std::string& tensor,
             const std::string& from_text, const std::string& to_text, DimSet mesh_dims) {
  const DeviceMesh mesh = DeviceMesh::Parse(mesh_text).value();
  const Sharding from = Sharding::Parse(tensor, mesh, from_text).value();
  const Sharding to = from.WithPlacements(to_text).value();
  const Step step{.op = op, .mesh_dims = std::move(mesh_dims), .after = to};
  return Plan::Seal({.meshes = {mesh}, .from = from, .to = to, .steps = {step}});
}

// One line per message: "source->target box contribution".
std::string Lines(const Plan& plan) {
  std::string text;
  for (const RankMessage& m : MessagesOf(plan, 0)) {
    text +=
        fmt::format("{}->{} {} {}\n", m.source, m.target, m.box.ToString(), m.ContributionText());
  }
  return text;
}

TEST(Messages, AllGatherTakesEachShardFromItsHolder) {
  EXPECT_EQ(Lines(OneStep(StepOp::kAllGather, "a=3", "f32[4]", "S(0)", "R", {0})),
            "1->0 [2:4] -\n"
            "0->1 [0:2] -\n"
            "0->2 [0:2] -\n"
            "1->2 [2:4] -\n");
}

TEST(Messages, TooManyToLookThroughAreRefused) {
  EXPECT_TRUE(
      CheckMessages(OneStep(StepOp::kAllGather, "a=1024", "f32[4]", "S(0)", "R", {0})).ok());
  EXPECT_EQ(Message(CheckMessages(
                OneStep(StepOp::kAllGather, "a=100000000", "f32[4]", "S(0)", "R", {0}))),
            "the plan has 10000000000000000 pairs of a sender and a receiver; at most 1048576 can "
            "be listed");
  const absl::StatusOr<Plan> crossing =
      MakePlan(Sharding::Parse("f32[2048,2048] on a=2048 as S(0)").value(),
               Sharding::Parse("f32[2048,2048] on b=2048@2048-4095 as S(1)").value(), {});
  ASSERT_TRUE(crossing.ok()) << crossing.status();
  EXPECT_THAT(Message(CheckMessages(*crossing)),
              testing::StartsWith("the plan has 4194304 pairs of a sender and a receiver"));
  EXPECT_TRUE(
      CheckMessages(OneStep(StepOp::kSlice, "a=100000000", "f32[4]", "R", "S(0)", {0})).ok());
}

TEST(Messages, AllToAllSendsIntersections) {
  EXPECT_EQ(Lines(OneStep(StepOp::kAllToAll, "a=2", "f32[3,4]", "S(0)", "S(1)", {0})),
            "1->0 [2:3, 0:2] -\n"
            "0->1 [0:2, 2:4] -\n");
}

TEST(Messages, PermuteFollowsThePairedCuts) {
  EXPECT_EQ(
      Lines(OneStep(StepOp::kPermute, "a=2,b=2", "f32[8]", "S(0),S(0)", "S(0)[1],S(0)[0]", {0, 1})),
      "2->1 [4:6] -\n"
      "1->2 [2:4] -\n");
  // From a cut by a to a cut by b: the rank at (a, b) takes the box from (b, a).
  EXPECT_EQ(Lines(OneStep(StepOp::kPermute, "a=2,b=2", "f32[8]", "S(0),R", "R,S(0)", {0, 1})),
            "2->1 [4:8] -\n"
            "1->2 [0:4] -\n");
}

TEST(Messages, ExchangeTakesFromTheReplicaWithTheReceiversCoordinates) {
  EXPECT_EQ(Lines(OneStep(StepOp::kExchange, "a=2,b=2", "f32[4]", "S(0),R", "R,R", {0})),
            "2->0 [2:4] -\n"
            "3->1 [2:4] -\n"
            "0->2 [0:2] -\n"
            "1->3 [0:2] -\n");
}

TEST(Messages, PartialDimsStayAndNameTheContribution) {
  EXPECT_EQ(Lines(OneStep(StepOp::kAllGather, "dp=2,one=1,tp=2@3,2,1,0", "f32[2]", "P,P,S(0)",
                          "P,P,R", {2})),
            "2->3 [1:2] dp=0\n"
            "3->2 [0:1] dp=0\n"
            "0->1 [1:2] dp=1\n"
            "1->0 [0:1] dp=1\n");
}

// In a crossing, each receiver gets all contributions to its part.
TEST(Messages, CrossingsNameTheContribution) {
  const Sharding from = Sharding::Parse("f32[4] on a=2,b=2 as P,P").value();
  const Sharding to = Sharding::Parse("f32[4] on c=2@0,5 as S(0)").value();
  const Step step{.op = StepOp::kExchange,
                  .mesh = 1,
                  .reduce_op = ReduceOp::kSum,
                  .reduce_order = ReduceOrder::kAscending,
                  .after = to};
  EXPECT_EQ(Lines(Plan::Seal({.meshes = {from.mesh(), to.mesh()},
                              .to_mesh = 1,
                              .from = from,
                              .to = to,
                              .steps = {step}})),
            "1->0 [0:2] a=0,b=1\n2->0 [0:2] a=1,b=0\n3->0 [0:2] a=1,b=1\n"
            "0->5 [2:4] a=0,b=0\n1->5 [2:4] a=0,b=1\n2->5 [2:4] a=1,b=0\n3->5 [2:4] a=1,b=1\n");
}

TEST(Messages, LocalStepsAndReductionsHaveNone) {
  EXPECT_EQ(Lines(OneStep(StepOp::kSlice, "a=2", "f32[4]", "R", "S(0)", {0})), "");
  EXPECT_EQ(Lines(OneStep(StepOp::kAllReduce, "a=2", "f32[4]", "P", "R", {0})), "");
}

// For every exchange of a small world, the box that a rank keeps and those that it receives make
// its new box, each element once.
TEST(Messages, ExchangesCoverEveryBoxOnce) {
  const std::vector<std::string> lists = {
      "R,R",       "S(0),R",    "R,S(0)",          "S(1),R",    "R,S(1)",         "S(0),S(1)",
      "S(1),S(0)", "S(0),S(0)", "S(0)[1],S(0)[0]", "S(1),S(1)", "S(1)[1],S(1)[0]"};
  for (const char* mesh : {"a=2,b=2", "a=2,b=3", "a=3,b=2@5,4,3,2,1,0"}) {
    for (const char* tensor : {"f32[5,3]", "f32[4,4]", "f32[1,8]", "f32[0,3]"}) {
      for (const std::string& from : lists) {
        for (const std::string& to : lists) {
          const Plan plan = OneStep(StepOp::kExchange, mesh, tensor, from, to, {0, 1});
          for (int64_t position = 0; position < plan.from().mesh().NumRanks(); ++position) {
            const int64_t rank = plan.from().mesh().RankAt(position);
            const Box after = plan.to().LocalBox(rank);
            std::vector<Box> parts = {Intersect(after, plan.from().LocalBox(rank))};
            for (const RankMessage& message : MessagesOf(plan, 0)) {
              EXPECT_TRUE(Contains(plan.from().LocalBox(message.source), message.box));
              if (message.target == rank) parts.push_back(message.box);
            }
            int64_t elements = 0;
            for (size_t i = 0; i < parts.size(); ++i) {
              EXPECT_TRUE(Contains(after, parts[i]));
              elements += parts[i].NumElements();
              for (size_t j = 0; j < i; ++j) EXPECT_TRUE(Intersect(parts[i], parts[j]).IsEmpty());
            }
            EXPECT_EQ(elements, after.NumElements())
                << mesh << " " << tensor << " " << from << " -> " << to << " rank " << rank;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace meshift::cli
