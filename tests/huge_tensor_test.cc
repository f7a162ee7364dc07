// Tensors of nearly 2^63 bytes: nothing overflows, so a tensor of twice the size takes twice the
// time. Slow links: times that do not fit stop at 2^63 - 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "testing/random.h"
#include "testing/shardings.h"

namespace meshift {
namespace {

// A multiple of the product of all mesh sizes in this test.
constexpr int64_t kAlike = int64_t{1} << 30;

struct Case {
  DeviceMesh mesh;
  TensorType large;  // of nearly the largest size
  TensorType small;  // about half of it, with equally even or uneven cuts
};

Case MakeCase(testkit::Random& random) {
  std::vector<DeviceMesh::Dim> dims = {{"a", 2 << random.Below(2)}, {"b", 2 << random.Below(3)}};
  if (random.OneIn(3)) dims.push_back({"c", random.OneIn(2) ? 2 : 1024});
  Case c{DeviceMesh::Create(dims).value(), {}, {}};
  const std::vector<DType> dtypes = {DType::kU8, DType::kBF16, DType::kF32};
  c.large.dtype = dtypes[random.Below(3)];
  int64_t most = INT64_MAX / Bytes(c.large.dtype, 1);
  if (random.OneIn(2)) {
    const int64_t other = 1 + random.Below(40);
    most /= other;
    c.large.shape = {other};
  }
  const int64_t full = most - random.Below(12);
  int64_t half = full / 2;
  half -= ((half - full) % kAlike + kAlike) % kAlike;
  c.small = c.large;
  const bool first = random.OneIn(2);
  c.large.shape.insert(first ? c.large.shape.begin() : c.large.shape.end(), full);
  c.small.shape.insert(first ? c.small.shape.begin() : c.small.shape.end(), half);
  return c;
}

void ExpectProven(const absl::StatusOr<Plan>& plan) {
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Verdict verdict = Verify(*plan);
  EXPECT_TRUE(verdict.ok()) << verdict.fault->message;
  EXPECT_LE(plan->lower_bound().est_ns, plan->total().est_ns);
  for (const Step& step : plan->steps()) EXPECT_GE(plan->total().est_ns, step.est_ns);
}

TEST(HugeTensorTest, TwiceTheSizeTakesTwiceTheTime) {
  testkit::Random random(1);
  int64_t compared = 0;
  for (int i = 0; i < 1500 && !HasFailure(); ++i) {
    const Case c = MakeCase(random);
    const std::vector<bool> any(c.mesh.NumDims(), true);
    const std::vector<bool> none(c.mesh.NumDims(), false);
    const Sharding from = testkit::RandomSharding(c.mesh, c.large, any, ReduceOp::kSum, random);
    const Sharding to = testkit::RandomSharding(c.mesh, c.large, none, ReduceOp::kSum, random);
    const char* const topologies[] = {"flat", "h100", "nvlink=2,rail=8"};
    PlannerOptions options;
    options.topology = Topology::Parse(topologies[random.Below(3)]).value();
    SCOPED_TRACE(from.ToString() + " -> " + to.ToString() + " on " + options.topology.ToString());
    const absl::StatusOr<Plan> large = MakePlan(from, to, options);
    ExpectProven(large);
    const absl::StatusOr<Plan> small =
        MakePlan(Sharding::Parse(c.small, c.mesh, from.PlacementsText()).value(),
                 Sharding::Parse(c.small, c.mesh, to.PlacementsText()).value(), options);
    ExpectProven(small);
    if (HasFailure()) return;
    // Values that do not fit are equal to the largest value.
    if (std::max(large->total().peak_bytes, large->total().bytes_sent) == INT64_MAX) continue;
    const double twice = 2 * static_cast<double>(small->total().est_ns);
    constexpr double kStarts = 1e6;  // ns
    EXPECT_NEAR(static_cast<double>(large->total().est_ns), twice, kStarts + 1e-6 * twice);
    EXPECT_NEAR(static_cast<double>(large->lower_bound().est_ns),
                2 * static_cast<double>(small->lower_bound().est_ns), kStarts + 1e-3 * twice);
    ++compared;
  }
  EXPECT_GT(compared, 400);
}

TEST(HugeTensorTest, TimesThatDoNotFitStopAtTheLargest) {
  const Topology slow =
      Topology::Create({{"flat", 0, 1000, 1'000'000'000}},
                       {1'000'000'000, 1'000'000'000, 1'000'000'000, 1000, 1'000'000'000'000})
          .value();
  const DeviceMesh other = DeviceMesh::Parse("x=4@3,9,5,2").value();
  testkit::Random random(2);
  int64_t largest = 0;
  for (int i = 0; i < 500 && !HasFailure(); ++i) {
    const Case c = MakeCase(random);
    const bool crosses = random.OneIn(3);
    const DeviceMesh& to_mesh = crosses ? other : c.mesh;
    const std::vector<bool> any(c.mesh.NumDims(), true);
    const Sharding from = testkit::RandomSharding(c.mesh, c.large, any, ReduceOp::kSum, random);
    const Sharding to = testkit::RandomSharding(
        to_mesh, c.large, std::vector<bool>(to_mesh.NumDims(), true), ReduceOp::kSum, random);
    SCOPED_TRACE(from.ToString() + " -> " + to.ToString());
    PlannerOptions options{.topology = slow};
    if (random.OneIn(4)) options.reproducibility = Reproducibility::kOrdered;
    const absl::StatusOr<Plan> plan = MakePlan(from, to, options);
    ExpectProven(plan);
    largest += plan.ok() && plan->total().est_ns == INT64_MAX ? 1 : 0;
  }
  EXPECT_GT(largest, 0);
}

// A path is found even if its known cost is the largest representable time.
TEST(HugeTensorTest, TheLongestTimeIsATime) {
  const Topology slow =
      Topology::Create({{"flat", 0, 1000, 1'000'000'000}},
                       {1'000'000'000, 1'000'000'000, 1'000'000'000, 1000, 100'000'000})
          .value();
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=4,c=1024").value();
  const Sharding from = Sharding::Parse("f32[2305843009213693942]", mesh, "S(0),P,P").value();
  const absl::StatusOr<Plan> plan =
      MakePlan(from, from.WithPlacements("S(0),R,S(0)").value(), {.topology = slow});
  ExpectProven(plan);
  EXPECT_EQ(plan->total().est_ns, INT64_MAX);
}

}  // namespace
}  // namespace meshift
