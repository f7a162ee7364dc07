// One call that redistributes on meshes of any size, in this process and without a GPU, and
// compares what every rank then holds with the definition of its placements.
//
//   const Sharding from = *Sharding::Parse("bf16[24,16] on ddp=8,fsdp=5,tp=1 as P,P,R");
//   const Sharding to = *from.WithPlacements("R,R,R");
//   const auto result = testkit::RedistributeAndCheck({.from = from, .to = to});
//   ASSERT_TRUE(result.ok()) << result.status();
//   EXPECT_TRUE(result->ok()) << result->ToString();
//   EXPECT_EQ(result->bytes_counted, result->bytes_planned);
//
// What is right comes from testing/definition.h, which shares no code with planner or engine.
// A framework's own layer is tested by testing/layer_check.h.
#ifndef MESHIFT_TESTING_REDISTRIBUTION_CHECK_H_
#define MESHIFT_TESTING_REDISTRIBUTION_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "testing/definition.h"

namespace meshift::testkit {

struct RedistributionResult {
  Plan plan;
  // The first rule of docs/errors.md that the verifier finds broken.
  std::optional<PlanFault> fault;

  // Elements over all ranks and runs whose value is not the definition's.
  int64_t wrong = 0;
  // Elements whose replicas hold different bits, where the engine distorts the sums of each group
  // in a way of its own: equal bits survive where one group computed the value.
  int64_t replicas_differ = 0;
  std::string first_wrong;       // "rank 5 holds 3 (0x4040) at [1,2], not 2 (0x4000)"
  std::string first_difference;  // "ranks 0 and 5 differ at [1,2]: 3 (0x4040) and 2 (0x4000)"

  // Sums over the steps of what the worst rank sends: by the plan, and counted from the calls that
  // were made.
  int64_t bytes_planned = 0;
  int64_t bytes_counted = 0;
  std::string first_bytes_differ;  // "step 0 (all_gather{tp}) sends 70 bytes, planned 64"

  // Whether nothing is wrong. Differing replicas are, unless the plan promises nothing about them.
  bool ok() const;
  // "", or what is wrong, one line each.
  std::string ToString() const;
};

struct RedistributionCheck {
  const Sharding& from;
  const Sharding& to;  // on the same mesh or another
  PlannerOptions planner = {};
  uint64_t seed = 1;  // of the values
};

// Plans, verifies, and runs five times: twice with sums that are exact in any order, compared bit
// for bit, so that a lost contribution cannot hide in rounding; with zeros of both signs,
// infinities and NaN where min and max are asked for; twice with full mantissas, once within a
// sound bound and once under adversarial reduction. An error where there is no plan, or where it
// cannot be run. Takes the memory of all ranks.
absl::StatusOr<RedistributionResult> RedistributeAndCheck(const RedistributionCheck& check);

// The same for a plan that was made elsewhere, also for a wrong one.
absl::StatusOr<RedistributionResult> RunAndCheck(const Plan& plan, uint64_t seed = 1);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_REDISTRIBUTION_CHECK_H_
