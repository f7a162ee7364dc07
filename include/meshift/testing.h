// The test kit: what every rank must hold after a redistribution, by the definition of its
// placements alone, in one process and without a GPU. It shares no code with planner and engines.
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
//   // What Meshift does in its place: planned, proven, run, compared.
//   const auto result = testkit::RedistributeAndCheck({.from = from, .to = to});
//   ASSERT_TRUE(result.ok()) << result.status();
//   EXPECT_TRUE(result->ok()) << result->ToString();
//
//   // GoogleTest's matchers of plans.
//   EXPECT_THAT(MakePlan(from, to), AllOf(testkit::IsProven(), testkit::KeepsReplicasEqual(),
//                                         testkit::Takes({"all_reduce{dp}"})));
//
// docs/testing_your_framework.md has a whole test. Link //:meshift_testing.
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

// How GoogleTest prints them: shardings, promise and one line per step.
void PrintTo(const Plan& plan, std::ostream* os);
void PrintTo(const absl::StatusOr<Plan>& plan, std::ostream* os);

namespace testkit {

// --- The framework's own code ---

struct CheckResult {
  // Elements, over all ranks, whose value is not the definition's. Where the target is partial, the
  // op over the first replica of each partial coordinate must give the tensor; an element for which
  // it does not counts once.
  int64_t wrong = 0;
  // Pairs (element, partial coordinate of the target) for which two ranks hold different bits.
  int64_t replicas_differ = 0;
  std::string first_wrong;       // empty: none
  std::string first_difference;  // "ranks 0 and 5 differ at [1,2]: 3 (0x4040) and 2 (0x4000)"

  bool ok() const { return wrong == 0 && replicas_differ == 0; }
  // Adds the counts of another check; what was wrong first stays.
  void Add(const CheckResult& other);
  // "", or the counts with what is wrong first.
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
  // As elements of a type that has the size of the dtype.
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
  // Let min and max also meet zeros of both signs, infinities and NaN. For a layer that does not
  // keep to docs/dtypes.md there: off.
  bool special_values = true;
};

// Fills the targets from the sources, for all ranks; may start threads, and waits for them.
using LayerFn = absl::FunctionRef<absl::Status(const LocalTensors& local)>;

// Calls `layer` four times: twice with sums that are exact in any order, compared bit for bit; with
// special values; with full mantissas, compared within a sound bound and, replica with replica, bit
// for bit. Counts are sums over these. Targets are poisoned before each call.
// Errors: those of Oracle::Create; of `layer`; FAILED_PRECONDITION where it wrote to a source or
// next to a target.
absl::StatusOr<CheckResult> CheckLayer(const LayerCheck& check, LayerFn layer);

// --- A plan of Meshift ---

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

// --- Matchers, on a Plan or on the StatusOr<Plan> that MakePlan returns ---
//
// A plan that fails one is printed with its shardings and steps, an error with its message. All but
// IsProven and KeepsReplicasEqual go by what the plan states of itself.

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

// --- The definition itself, to fill and judge buffers rank by rank, also in different processes
// ---

enum class Values : uint8_t {
  // Every result is exact in any order of evaluation, and compared bit for bit. Partial sums: small
  // integers (avg: multiples of the divisor) at up to 8 partial coordinates, zero at the others;
  // products: 1, 2 and -1 (integers 1, 2, 3); min, max, and, or, xor: any values of the type, but
  // of floats neither zeros, infinities nor NaN. What is not partial: any bits.
  kExact,
  // Floats: sums have full mantissas in (-2, 2) everywhere, products a few between 1/2 and 2;
  // compared within a sound bound. This shows replicas whose bits differ; a lost contribution it
  // may hide. Integers: full range, which wraps; compared bit for bit. Other ops as in kExact.
  kRounding,
  // As kExact; min and max of floats also meet zeros of both signs, infinities and NaN.
  kSpecial,
};

struct Fill {
  Values values = Values::kExact;
  uint64_t seed = 0;
};

// What every rank must hold, straight from the placements: a partial value is the op over its
// group.
//
//   MESHIFT_ASSIGN_OR_RETURN(Oracle oracle, Oracle::Create(from, to));
//   const Fill fill{.values = Values::kExact, .seed = 7};
//   oracle.FillSource(fill, position, source);     // for each rank
//   ...                                            // run what is to be tested
//   MESHIFT_ASSIGN_OR_RETURN(CheckResult result, oracle.Check(fill, targets));
//   // result.ok(), or result.first_wrong: "rank 5 holds 3 (0x4040) at [1,2], not 2 (0x4000)"
//
// Ranks are named by their position in the mesh (DeviceMesh::PositionOf); on a row-major mesh that
// is the rank. A local tensor is the row-major content of the rank's box; buffers need no
// alignment. Of f4e2m1, pairs are moved, and counted, as one.
//
// Values are a function of (seed, element, partial coordinate), so ranks may be filled one by one,
// also in different processes. Filling takes O(1) per element of the rank, checking O(1) per
// element that any rank holds and up to 8 steps (kRounding: one per partial coordinate) per element
// of the tensor.
//
// An immutable value. Safe for concurrent use.
class Oracle {
 public:
  // The meshes may be two, and the target's dtype another. INVALID_ARGUMENT: another shape, a mesh
  // dim whose partial op changes, S -> P(avg), a cast or a reduction that there is not. O(ranks of
  // the target).
  //
  // Where a reduction takes place, contributions are cast to the reduce dtype, reduced in it, and
  // the result is cast to the target's; else elements are cast at once. `reduce_dtype` nullopt: the
  // default of docs/plan_format.md. Mesh dims that are partial on both sides keep their
  // contributions where all casts are exact, and are reduced and made anew where not.
  static absl::StatusOr<Oracle> Create(const Sharding& source, const Sharding& target,
                                       std::optional<DType> reduce_dtype = std::nullopt);

  // REQUIRES: a position of the source's mesh, of the target's.
  int64_t SourceBytes(int64_t position) const;
  int64_t TargetBytes(int64_t position) const;

  // Writes the local source tensor of the rank at `position`. INVALID_ARGUMENT: no such position,
  // or `local` has not SourceBytes(position).
  absl::Status FillSource(const Fill& fill, int64_t position, absl::Span<std::byte> local) const;

  // Writes a right local target tensor: of a new partial mesh dim coordinate 0 has the value and
  // the others the op's identity (avg: all have the value); of one that stays partial each
  // coordinate has what its own contributions give. O(partial coordinates) per element.
  absl::Status MakeTarget(const Fill& fill, int64_t position, absl::Span<std::byte> local) const;

  // Judges all ranks' targets, by position. INVALID_ARGUMENT: a wrong number or size of buffers.
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
