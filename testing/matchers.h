// GoogleTest matchers for plans, on a Plan or on the StatusOr<Plan> that MakePlan returns.
//
//   EXPECT_THAT(MakePlan(from, to), AllOf(IsProven(), KeepsReplicasEqual(),
//                                         Takes({"all_reduce{ddp,fsdp}"}), MovesAtMost(1 << 20),
//                                         StaysBelow(int64_t{80} << 30)));
//
// A plan that fails one is printed with its shardings and steps, an error with its message. All but
// IsProven and KeepsReplicasEqual go by what the plan states of itself.
#ifndef MESHIFT_TESTING_MATCHERS_H_
#define MESHIFT_TESTING_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/plan.h"

namespace meshift {

// How GoogleTest prints them: shardings, promise and one line per step.
void PrintTo(const Plan& plan, std::ostream* os);
void PrintTo(const absl::StatusOr<Plan>& plan, std::ostream* os);

namespace testkit {

// What the functions below return.
class PlanMatcher {
 public:
  using is_gtest_matcher = void;

  struct Answer {
    bool matches = false;
    std::string why;  // follows "Actual: ..., "; empty: nothing to add
  };
  // `text` and `negation` complete the sentence "Expected: the plan ...".
  PlanMatcher(std::string text, std::string negation, std::function<Answer(const Plan&)> judge);

  bool MatchAndExplain(const Plan& plan, ::testing::MatchResultListener* listener) const;
  // An error matches nothing, so that Not() of any of these holds for it.
  bool MatchAndExplain(const absl::StatusOr<Plan>& plan,
                       ::testing::MatchResultListener* listener) const;
  void DescribeTo(std::ostream* os) const;
  void DescribeNegationTo(std::ostream* os) const;

 private:
  struct Rep {
    std::string text;
    std::string negation;
    std::function<Answer(const Plan&)> judge;
  };
  std::shared_ptr<const Rep> rep_;
};

// The plan has exactly these steps, in this order, each written op{mesh dims}: "all_reduce{a,b}".
PlanMatcher Takes(std::vector<std::string> steps);

// The plan promises that replicas hold equal bits (or more than that), and the verifier agrees.
PlanMatcher KeepsReplicasEqual();

// The steps' bytes_sent, each of the rank that sends most, add up to `bytes` or less.
PlanMatcher MovesAtMost(int64_t bytes);

// peak_bytes (source, target and workspace of the worst rank) is less than `bytes`.
PlanMatcher StaysBelow(int64_t bytes);

// The verifier accepts the plan.
PlanMatcher IsProven();

}  // namespace testkit
}  // namespace meshift

#endif  // MESHIFT_TESTING_MATCHERS_H_
