#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"

namespace meshift::testkit {
namespace {

using ::testing::AllOf;
using ::testing::DescribeMatcher;
using ::testing::ExplainMatchResult;
using ::testing::Not;
using ::testing::PrintToString;
using ::testing::StringMatchResultListener;

Plan Planned(const std::string& from_text, const std::string& to_text,
             const PlannerOptions& options = {}) {
  const Sharding from = *Sharding::Parse(from_text);
  return *MakePlan(from, *from.WithPlacements(to_text), options);
}

// The explanation of a failure after the printed plan; "matches" if it does not fail.
std::string Why(const PlanMatcher& matcher, const Plan& plan) {
  StringMatchResultListener listener;
  const bool matches = ExplainMatchResult(matcher, plan, &listener);
  return (matches ? "matches, " : "") + listener.str();
}

// Plans with one step, two, and none.
class MatchersTest : public ::testing::Test {
 protected:
  const Plan one_ = Planned("bf16[16,8] on ddp=8,fsdp=5,tp=1 as P,P,R", "R,R,R");
  const Plan two_ = Planned("f32[6,4] on a=2,b=3 as P,S(1)", "R,R",
                            {.reproducibility = Reproducibility::kBatchInvariant});
  const Plan none_ = Planned("f32[6,4] on a=2,b=3 as P,S(1)", "P,S(1)");
  const Plan per_dim_ =
      Planned("f32[6] on a=2,b=3 as P,P", "R,R", {.planner = PlannerKind::kPerDim});
};

TEST_F(MatchersTest, WorkOnPlansAndOnWhatMakePlanReturns) {
  const Sharding from = *Sharding::Parse("bf16[16,8] on ddp=8,fsdp=5,tp=1 as P,P,R");
  const Sharding to = *from.WithPlacements("R,R,R");
  EXPECT_THAT(MakePlan(from, to),
              AllOf(IsProven(), KeepsReplicasEqual(), Takes({"all_reduce{ddp,fsdp}"}),
                    MovesAtMost(500), StaysBelow(1024)));
  EXPECT_THAT(one_, AllOf(IsProven(), KeepsReplicasEqual(), Takes({"all_reduce{ddp,fsdp}"}),
                          MovesAtMost(500), StaysBelow(1024)));
}

TEST_F(MatchersTest, TakesIsTheExactList) {
  EXPECT_THAT(one_, Takes({"all_reduce{ddp,fsdp}"}));
  EXPECT_THAT(two_, Takes({"all_reduce{a}", "all_gather{b}"}));
  EXPECT_THAT(none_, Takes({}));
  EXPECT_THAT(one_, Not(Takes({})));
  EXPECT_EQ(Why(Takes({"all_reduce{fsdp}"}), one_),
            "whose step 0 is all_reduce{ddp,fsdp}, not all_reduce{fsdp}");
  EXPECT_EQ(Why(Takes({"all_reduce{a}", "all_to_all{b}"}), two_),
            "whose step 1 is all_gather{b}, not all_to_all{b}");
  EXPECT_EQ(Why(Takes({"all_gather{b}", "all_reduce{a}"}), two_),
            "whose step 0 is all_reduce{a}, not all_gather{b}");
  EXPECT_EQ(Why(Takes({"all_reduce{a}"}), two_),
            "which continues after 1 steps with all_gather{b}");
  EXPECT_EQ(Why(Takes({}), two_), "which continues after 0 steps with all_reduce{a}");
  EXPECT_EQ(Why(Takes({"all_reduce{a}", "all_gather{b}", "slice{a}"}), two_),
            "which ends after 2 steps: slice{a} is missing");
  EXPECT_EQ(DescribeMatcher<Plan>(Takes({"all_reduce{a}", "all_gather{b}"})),
            "the plan takes the steps all_reduce{a}, all_gather{b}");
  EXPECT_EQ(DescribeMatcher<Plan>(Not(Takes({}))), "the plan does not take exactly no steps");
}

TEST_F(MatchersTest, KeepsReplicasEqualWantsThePromiseAndItsProof) {
  EXPECT_THAT(one_, KeepsReplicasEqual());
  EXPECT_THAT(none_, KeepsReplicasEqual());
  EXPECT_THAT(per_dim_, Not(KeepsReplicasEqual()));
  EXPECT_EQ(Why(KeepsReplicasEqual(), per_dim_), "which promises nothing: " + per_dim_.why());
  EXPECT_NE(per_dim_.why(), "");

  PlanFields fields = per_dim_.fields();
  fields.kept = Reproducibility::kReplicas;
  EXPECT_EQ(
      Why(KeepsReplicasEqual(), Plan::Seal(std::move(fields))),
      "which promises replicas, but the verifier says: step 1: promise: mesh dim a is replicated: "
      "2 groups form each sum, and their bits may differ");
}

TEST_F(MatchersTest, MovesAtMostAddsTheSteps) {
  const int64_t sent = two_.steps()[0].bytes_sent + two_.steps()[1].bytes_sent;
  EXPECT_EQ(sent, 24 + 120);
  EXPECT_THAT(two_, MovesAtMost(sent));
  EXPECT_THAT(two_, Not(MovesAtMost(sent - 1)));
  EXPECT_THAT(none_, MovesAtMost(0));
  EXPECT_EQ(Why(MovesAtMost(100), two_),
            "whose worst rank sends 144: 48 by all_reduce{a}, 96 by all_gather{b}");
  EXPECT_EQ(DescribeMatcher<Plan>(MovesAtMost(100)), "the plan moves at most 100 bytes");
  EXPECT_EQ(DescribeMatcher<Plan>(Not(MovesAtMost(100))), "the plan moves more than 100 bytes");
}

TEST_F(MatchersTest, StaysBelowIsStrict) {
  const int64_t peak = two_.total().peak_bytes;
  EXPECT_THAT(two_, StaysBelow(peak + 1));
  EXPECT_THAT(two_, Not(StaysBelow(peak)));
  EXPECT_EQ(Why(StaysBelow(0), none_), "whose worst rank needs 96, 0 of it workspace");
  EXPECT_EQ(DescribeMatcher<Plan>(StaysBelow(7)), "the plan stays below 7 bytes of memory");
  EXPECT_EQ(DescribeMatcher<Plan>(Not(StaysBelow(7))), "the plan needs 7 bytes of memory or more");
}

TEST_F(MatchersTest, IsProvenNamesTheRule) {
  EXPECT_THAT(per_dim_, IsProven());
  PlanFields fields = two_.fields();
  fields.steps.pop_back();
  const Plan cut = Plan::Seal(fields);
  EXPECT_THAT(cut, Not(IsProven()));
  EXPECT_EQ(Why(IsProven(), cut),
            "whose first broken rule is target: the last step leaves R,S(1); the target is R,R");
  fields = two_.fields();
  fields.steps[1].bytes_sent += 1;
  EXPECT_EQ(Why(IsProven(), Plan::Seal(fields)),
            "whose first broken rule is step 1: bytes: bytes_sent is 97; it should be 96");
}

TEST_F(MatchersTest, AnErrorMatchesNothingAndIsShown) {
  const absl::StatusOr<Plan> error = absl::UnimplementedError("not in this version");
  EXPECT_THAT(error, Not(Takes({})));
  EXPECT_THAT(error, Not(KeepsReplicasEqual()));
  EXPECT_THAT(error, Not(MovesAtMost(1000)));
  EXPECT_THAT(error, Not(StaysBelow(1000)));
  EXPECT_THAT(error, Not(IsProven()));
  EXPECT_EQ(PrintToString(error), "UNIMPLEMENTED: not in this version");
  static const absl::StatusOr<Plan>* const static_error =
      new absl::StatusOr<Plan>(absl::UnimplementedError("not in this version"));
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(*static_error, IsProven()),
                          "Expected: the plan is accepted by the verifier\n"
                          "  Actual: UNIMPLEMENTED: not in this version, which is not a plan");
}

TEST_F(MatchersTest, AFailureShowsThePlan) {
  EXPECT_EQ(PrintToString(two_),
            "f32[6,4] on a=2,b=3 as P,S(1) -> R,R, keeps batch-invariant\n"
            "    all_reduce{a} -> R,S(1), sends 48 bytes\n"
            "    all_gather{b} -> R,R, sends 96 bytes\n"
            "    in all 144 bytes sent, 384 at the peak");
  EXPECT_EQ(PrintToString(none_),
            "f32[6,4] on a=2,b=3 as P,S(1) -> P,S(1), keeps replicas\n"
            "    no steps\n"
            "    in all 0 bytes sent, 96 at the peak");
  EXPECT_EQ(PrintToString(absl::StatusOr<Plan>(none_)), PrintToString(none_));
  static const Plan* const static_plan = new Plan(two_);
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(*static_plan, Takes({"all_reduce{a}", "all_to_all{b}"})),
                          "whose step 1 is all_gather{b}, not all_to_all{b}");
}

}  // namespace
}  // namespace meshift::testkit
