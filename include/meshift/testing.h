// The test kit: computes the tensors that every rank must hold after a redistribution, directly
// from the definition of the placements, in one process and without a GPU. This reference uses
// no code of planner and engines, but it does use their shardings and their table of valid ops.
//
//   // Your framework's own code: the gradient sync of a data-parallel layer.
//   const Sharding from = *Sharding::Parse("f32[7,5] on dp=3,tp=2 as P,S(0)");
//   const Sharding to = *from.WithPlacements("R,S(0)");
//   const auto layer = testkit::CheckLayer(
//       {.from = from, .to = to}, [](const testkit::LocalTensors& local) {
//         ... local.source<float>(position) ... local.target<float>(position) ...
//         return absl::OkStatus();
//       });
//   ASSERT_TRUE(layer.ok()) << layer.status();
//   EXPECT_TRUE(layer->ok()) << layer->ToString();
//   // 12 wrong elements: rank 0 holds 1 (0x3f800000) at [3,1], not 0 (0x0)
//
//   // The same with Meshift: planned, proven, run, compared.
//   const auto result = testkit::RedistributeAndCheck({.from = from, .to = to});
//   ASSERT_TRUE(result.ok()) << result.status();
//   EXPECT_TRUE(result->ok()) << result->ToString();
//
//   // GoogleTest's matchers of plans.
//   EXPECT_THAT(MakePlan(from, to), AllOf(testkit::IsProven(), testkit::KeepsReplicasEqual(),
//                                         testkit::Takes({"all_reduce{dp}"})));
//
// docs/testing_your_framework.md has a complete test. For tests only: link //:meshift_testing.
// Needs host memory for the tensors of all ranks. The matchers need GoogleTest. Functions are safe
// for concurrent use.
#ifndef MESHIFT_TESTING_H_
#define MESHIFT_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "meshift/version.h"

namespace testing {
class MatchResultListener;  // GoogleTest's
}  // namespace testing

namespace MESHIFT_API meshift {

// For GoogleTest: prints the shardings, the promise, one line per step and the totals.
void PrintTo(const Plan& plan, std::ostream* os);
void PrintTo(const absl::StatusOr<Plan>& plan, std::ostream* os);

namespace testkit {

// --- The framework's own code ---

struct CheckResult {
  // Elements, over all ranks, whose value differs from the definition. If the target is partial,
  // the op over the first replica of each partial coordinate must give the tensor; an element that
  // fails this counts once.
  int64_t wrong = 0;
  // Pairs (element, partial coordinate of the target) with different bits on two ranks.
  int64_t replicas_differ = 0;
  std::string first_wrong;       // empty: none is wrong
  std::string first_difference;  // "ranks 0 and 5 differ at [1,2]: 3 (0x4040) and 2 (0x4000)"

  bool ok() const { return wrong == 0 && replicas_differ == 0; }
  // Adds the counts of another check; keeps the first error texts.
  void Add(const CheckResult& other);
  // "", or the counts with the first errors.
  std::string ToString() const;
};

// The local tensors of all ranks, by position in the mesh (on a row-major mesh: by rank); each the
// row-major content of the rank's box (Sharding::BoxAt), aligned to 16 bytes.
class LocalTensors {
 public:
  LocalTensors(absl::Span<const absl::Span<const std::byte>> sources,
               absl::Span<const absl::Span<std::byte>> targets)
      : sources_(sources), targets_(targets) {}

  int64_t num_sources() const { return static_cast<int64_t>(sources_.size()); }
  int64_t num_targets() const { return static_cast<int64_t>(targets_.size()); }
  absl::Span<const std::byte> source_bytes(int64_t position) const { return sources_[position]; }
  absl::Span<std::byte> target_bytes(int64_t position) const { return targets_[position]; }
  // As elements of type T, which must have the size of the dtype.
  template <typename T>
  absl::Span<const T> source(int64_t position) const {
    const absl::Span<const std::byte> bytes = sources_[position];
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <typename T>
  absl::Span<T> target(int64_t position) const {
    const absl::Span<std::byte> bytes = targets_[position];
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  absl::Span<const absl::Span<const std::byte>> sources_;
  absl::Span<const absl::Span<std::byte>> targets_;
};

struct LayerCheck {
  const Sharding& from;
  const Sharding& to;  // may be on another mesh
  uint64_t seed = 1;   // of the values
  // Whether min and max are also tested with zeros of both signs, infinities and NaN. Off for a
  // layer that treats these differently from docs/dtypes.md.
  bool special_values = true;
};

// Fills the targets from the sources, for all ranks. It may start threads, and must join them.
using LayerFn = absl::FunctionRef<absl::Status(const LocalTensors& local)>;

// Calls `layer` up to four times: twice with sums that are exact in any order, compared bit for
// bit; once with full mantissas, where values are compared within a proven error bound, and
// replicas bit for bit; once with special values, if check.special_values is set. Counts are sums
// over these. Targets are poisoned before each call. Errors: those of Oracle::Create and of
// `layer`; FAILED_PRECONDITION: it changed a source, or the 64 bytes before or after a tensor.
absl::StatusOr<CheckResult> CheckLayer(const LayerCheck& check, LayerFn layer);

// --- A plan of Meshift ---

struct RedistributionResult {
  Plan plan;
  // The first broken rule (docs/errors.md) that the verifier found.
  std::optional<PlanFault> fault;

  // Elements, over all ranks and all runs but the adversarial one, whose value differs from the
  // definition.
  int64_t wrong = 0;
  // Elements whose replicas hold different bits, over all runs. In the adversarial run the engine
  // distorts the sums of each group differently, so replicas are equal only if one group computed
  // the value.
  int64_t replicas_differ = 0;
  std::string first_wrong;       // "rank 5 holds 3 (0x4040) at [1,2], not 2 (0x4000)"
  std::string first_difference;  // "ranks 0 and 5 differ at [1,2]: 3 (0x4040) and 2 (0x4000)"

  // Bytes sent by the worst rank of each step, summed over the steps: according to the plan, and
  // counted from the calls of the ranks' programs.
  int64_t bytes_planned = 0;
  int64_t bytes_counted = 0;
  std::string first_bytes_differ;  // "step 0 (all_gather{tp}) sends 70 bytes, planned 64"

  // Whether nothing is wrong. Different replicas are wrong unless the plan makes no promise about
  // them.
  bool ok() const;
  // "", or one line per error.
  std::string ToString() const;
};

struct RedistributionCheck {
  const Sharding& from;
  const Sharding& to;  // on the same mesh or another
  PlannerOptions planner = {};
  uint64_t seed = 1;  // of the values
};

// Plans, verifies, and runs five times: twice with sums that are exact in any order, compared bit
// for bit, so that rounding cannot hide a lost contribution; once with zeros of both signs,
// infinities and NaN for min and max; twice with full mantissas, once within a proven error bound
// and once under the adversarial reduction order. Returns an error if planning or running fails; a
// plan that the verifier refuses is a `fault`, and runs too. Uses the memory of all ranks.
// RESOURCE_EXHAUSTED: a rank is 2^20 or above.
absl::StatusOr<RedistributionResult> RedistributeAndCheck(const RedistributionCheck& check);

// The same for a given plan, which may be wrong.
absl::StatusOr<RedistributionResult> RunAndCheck(const Plan& plan, uint64_t seed = 1);

// --- Matchers, on a Plan or on the StatusOr<Plan> that MakePlan returns ---
//
// A plan that does not match is printed with its shardings and steps, an error with its message.
// All except IsProven and KeepsReplicasEqual trust the plan's own statements.

// The result of the functions below.
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
  // An error matches nothing, so Not() of any of these matches it.
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

// The plan promises equal bits of replicas, or more, and the verifier confirms it.
PlanMatcher KeepsReplicasEqual();

// The steps' bytes_sent, each of the rank that sends most, add up to `bytes` or less.
PlanMatcher MovesAtMost(int64_t bytes);

// peak_bytes (source, target and workspace of the worst rank) is less than `bytes`.
PlanMatcher StaysBelow(int64_t bytes);

// The verifier accepts the plan.
PlanMatcher IsProven();

// --- The definition itself ---
//
// It fills buffers rank by rank, also in different processes. Check() needs the targets of all
// ranks in one process.

enum class Values : uint8_t {
  // Every result is exact in any order of evaluation, and is compared bit for bit. Partial sums:
  // small integers (avg: multiples of the divisor) at up to 8 partial coordinates, zero at the
  // others; where these are not exact, x and -x. Products: 1, 2 and -1 (integers 1, 2, 3; complex
  // also i and 1+i) at up to 8. and, or: a few bits at up to 8. min, max, xor: values other than
  // zeros, infinities and NaN of floats. No partial side and one dtype: any bits (bool: 0 and 1).
  kExact,
  // Floats: sums have full mantissas in (-2, 2) everywhere, products a few between 1/2 and 2;
  // compared within a proven error bound. This detects replicas with different bits, but may miss a
  // lost contribution. Integers: full range, with wrap-around, if the result is the same in every
  // order, else as in kExact; compared bit for bit. Other ops as in kExact.
  kRounding,
  // As kExact; min and max of floats over two or more partial coordinates also get zeros of both
  // signs, infinities and NaN.
  kSpecial,
};

struct Fill {
  Values values = Values::kExact;
  uint64_t seed = 0;
};

// The reference: computes the tensor that every rank must hold directly from the placements. A
// partial value is the op over its group.
//
//   MESHIFT_ASSIGN_OR_RETURN(Oracle oracle, Oracle::Create(from, to));
//   const Fill fill{.values = Values::kExact, .seed = 7};
//   oracle.FillSource(fill, position, source);     // for each rank
//   ...                                            // run the code under test
//   MESHIFT_ASSIGN_OR_RETURN(CheckResult result, oracle.Check(fill, targets));
//   // result.ok(), or result.first_wrong: "rank 5 holds 3 (0x4040) at [1,2], not 2 (0x4000)"
//
// Ranks are given by their position in the mesh (DeviceMesh::PositionOf), which is the rank on a
// row-major mesh. A local tensor is the row-major content of the rank's box; buffers need no
// alignment. For f4e2m1, a pair counts as one element.
//
// Values are a function of (seed, element, partial coordinate), so ranks may be filled one by one,
// also in different processes. Filling takes O(1) per element of the rank, checking O(1) per
// element that any rank holds and at most one step per partial coordinate and element of the
// tensor.
//
// An immutable value. Safe for concurrent use.
class Oracle {
 public:
  // Meshes and dtypes of source and target may differ. INVALID_ARGUMENT: the shapes differ, the
  // partial op of a mesh dim changes, S -> P(avg), or a cast or a reduction that does not exist.
  // O(ranks of the target).
  //
  // If there is a reduction, contributions are cast to the reduce dtype and reduced in it, and the
  // result is cast to the target's dtype; otherwise elements are cast directly. `reduce_dtype`
  // nullopt: the default of docs/plan_format.md. Mesh dims that are partial on both sides keep
  // their contributions if all casts are exact; otherwise they are reduced, and contributions are
  // made again.
  static absl::StatusOr<Oracle> Create(const Sharding& source, const Sharding& target,
                                       std::optional<DType> reduce_dtype = std::nullopt);

  // REQUIRES: a position in the mesh of the source, or of the target.
  int64_t SourceBytes(int64_t position) const;
  int64_t TargetBytes(int64_t position) const;

  // Writes the local source tensor of the rank at `position`. INVALID_ARGUMENT: the position does
  // not exist, or the size of `local` is not SourceBytes(position).
  absl::Status FillSource(const Fill& fill, int64_t position, absl::Span<std::byte> local) const;

  // Writes a correct local target tensor. In a new partial mesh dim, coordinate 0 has the value and
  // the others have the op's identity (avg: all have the value). In one that stays partial, each
  // coordinate has the result of its own contributions. INVALID_ARGUMENT: the position does not
  // exist, or the size of `local` is not TargetBytes(position). O(partial coordinates) per element.
  absl::Status MakeTarget(const Fill& fill, int64_t position, absl::Span<std::byte> local) const;

  // Checks the targets of all ranks, by position. INVALID_ARGUMENT: a wrong number or size of
  // buffers.
  absl::StatusOr<CheckResult> Check(const Fill& fill,
                                    absl::Span<const absl::Span<const std::byte>> targets) const;

  const Sharding& source() const;
  const Sharding& target() const;

 private:
  struct Rep;
  explicit Oracle(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<const Rep> rep_;
};

}  // namespace testkit
}  // namespace meshift

#endif  // MESHIFT_TESTING_H_
