#include "comm/local_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/local_world.h"
#include "meshift/placement.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "testing/internal/plan_cases.h"
#include "testing/internal/valid_plans.h"

namespace meshift {
namespace {

// The element at a global index has the value index + 1; a partial sum's (average's) contribution
// at coordinate c of a mesh dim is 1 + c times that.
float ValueOf(const Sharding& sharding, const Coordinate& at, int64_t index) {
  auto value = static_cast<float>(index + 1);
  for (size_t d = 0; d < at.size(); ++d) {
    if (sharding.placement(static_cast<int>(d)).IsPartial()) value *= static_cast<float>(1 + at[d]);
  }
  return value;
}

// The whole tensor, by the same rule.
float WholeValue(const Sharding& from, int64_t index) {
  auto value = static_cast<float>(index + 1);
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (!from.placement(d).IsPartial()) continue;
    const auto n = static_cast<float>(from.mesh().dim(d).size);
    value *= from.placement(d).op() == ReduceOp::kAvg ? (n + 1) / 2 : n * (n + 1) / 2;
  }
  return value;
}

std::vector<int64_t> GlobalIndices(const Sharding& sharding, const Coordinate& at) {
  const Box box = sharding.BoxAt(at);
  std::vector<int64_t> indices = {0};
  for (size_t t = 0; t < box.size.size(); ++t) {
    std::vector<int64_t> next;
    for (const int64_t index : indices) {
      for (int64_t i = 0; i < box.size[t]; ++i) {
        next.push_back(index * sharding.shape()[t] + box.offset[t] + i);
      }
    }
    indices = next;
  }
  return indices;
}

// Runs the plan twice on a new world. Returns "" or the first error.
std::string RunCase(const Case& c) {
  if (std::string verdict = Judge(c); !verdict.empty()) return verdict;
  const Plan plan = Plan::Seal(MakeFields(c));
  const DeviceMesh& mesh = plan.from().mesh();
  const int64_t n = mesh.NumRanks();
  const std::vector<int64_t> ranks = mesh.Ranks();
  const auto world =
      LocalWorld::Create(
          {.num_ranks = *std::max_element(ranks.begin(), ranks.end()) + 1, .num_workers = 0})
          .value();
  const auto runner = LocalRunner::Create(world.get(), mesh).value();
  std::vector<std::vector<float>> in(n);
  std::vector<std::vector<float>> out(n);
  std::vector<void*> sources(n);
  std::vector<void*> targets(n);
  for (int64_t p = 0; p < n; ++p) {
    const Coordinate at = mesh.CoordinateAt(p);
    for (const int64_t index : GlobalIndices(plan.from(), at)) {
      in[p].push_back(ValueOf(plan.from(), at, index));
    }
    out[p].assign(GlobalIndices(plan.to(), at).size(), -1);
    sources[p] = in[p].data();
    targets[p] = out[p].data();
  }
  const std::vector<std::vector<float>> before = in;
  absl::StatusOr<LocalRun> run = runner->Run(plan, sources, targets);
  if (run.ok()) run = runner->Run(plan, sources, targets);
  if (!run.ok()) return run.status().ToString();
  if (in != before) return "the source has changed";
  for (size_t i = 0; i < plan.steps().size(); ++i) {
    if (run->steps[i].bytes_sent == plan.steps()[i].bytes_sent) continue;
    return "step " + std::to_string(i) + " sent " + std::to_string(run->steps[i].bytes_sent);
  }
  // Partial targets are reduced, then every replica is compared.
  std::map<std::pair<Coordinate, int64_t>, std::pair<float, float>> sums;  // with the divisor
  for (int64_t p = 0; p < n; ++p) {
    Coordinate at = mesh.CoordinateAt(p);
    const std::vector<int64_t> indices = GlobalIndices(plan.to(), at);
    float divisor = 1;
    for (int d = 0; d < mesh.NumDims(); ++d) {
      if (!plan.to().placement(d).IsPartial()) continue;
      if (plan.to().placement(d).op() == ReduceOp::kAvg) {
        divisor *= static_cast<float>(mesh.dim(d).size);
      }
      at[d] = 0;
    }
    for (size_t i = 0; i < indices.size(); ++i) {
      auto& sum = sums[{at, indices[i]}];
      sum.first += out[p][i];
      sum.second = divisor;
    }
  }
  for (const auto& [where, sum] : sums) {
    const float wanted = WholeValue(plan.from(), where.second);
    if (sum.first / sum.second == wanted) continue;
    return "element " + std::to_string(where.second) + " is " +
           std::to_string(sum.first / sum.second) + ", not " + std::to_string(wanted);
  }
  return "";
}

TEST(LocalRunTest, PlansByHandAreRight) {
  for (const Case& c : ValidPlans()) {
    if (c.tensor.rfind("f32", 0) != 0 || c.to.find("max") != std::string::npos) continue;
    EXPECT_EQ(RunCase(c), "") << c.tensor << " on " << c.mesh << ": " << c.from << " -> " << c.to;
  }
}

TEST(LocalRunTest, CountsAndTimesPerStep) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2,b=2").value();
  const auto world = LocalWorld::Create({.num_ranks = 4}).value();
  const auto runner =
      LocalRunner::Create(world.get(), mesh, {.expert = {.time_steps = true}}).value();
  const Case c = {
      "a=2,b=2",
      "f32[3]",
      "S(0),P",
      "R,R",
      {{kAllReduce, "b", "S(0),R", 8, 8, 8}, {kAllGather, "a", "R,R", 8, 12, 8, kPadded}},
      48};
  ASSERT_EQ(Judge(c), "");
  const Plan plan = Plan::Seal(MakeFields(c));
  // Rows 0-1 on a=0, row 2 on a=1.
  std::vector<std::vector<float>> in = {{1, 2}, {3, 4}, {5}, {6}};
  std::vector<std::vector<float>> out(4, std::vector<float>(3));
  std::vector<void*> sources;
  std::vector<void*> targets;
  for (int p = 0; p < 4; ++p) {
    sources.push_back(in[p].data());
    targets.push_back(out[p].data());
  }
  const LocalRun run = runner->Run(plan, sources, targets).value();
  for (const auto& target : out) EXPECT_EQ(target, (std::vector<float>{4, 6, 11}));
  ASSERT_EQ(run.steps.size(), 2);
  EXPECT_EQ(run.steps[0].bytes_sent, 8);
  EXPECT_EQ(run.steps[0].bytes_total, 2 * 8 + 2 * 4);
  EXPECT_EQ(run.steps[0].rank_bytes_sent, (std::vector<int64_t>{8, 8, 4, 4}));
  EXPECT_EQ(run.steps[0].calls, 1);
  EXPECT_EQ(run.steps[1].bytes_sent, 8);
  EXPECT_GE(run.steps[1].ns, 0);
  EXPECT_EQ(runner->at(2).stats().groups.created, 2);
  // The runner makes the plan.
  for (auto& target : out) target.assign(3, -1);
  ASSERT_TRUE(runner->Run(plan.from(), plan.to(), sources, targets).ok());
  for (const auto& target : out) EXPECT_EQ(target, (std::vector<float>{4, 6, 11}));
}

TEST(LocalRunTest, Refusals) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const auto world = LocalWorld::Create({.num_ranks = 2}).value();
  EXPECT_EQ(
      LocalRunner::Create(world.get(), DeviceMesh::Parse("a=2@5,0").value()).status().ToString(),
      "INVALID_ARGUMENT: rank 5 of mesh a=2@5,0 is not in a world of 2 ranks");
  const auto runner = LocalRunner::Create(world.get(), mesh).value();
  const Sharding whole = Sharding::Parse("f32[2]", mesh, "R").value();
  const Sharding cut = Sharding::Parse("f32[2]", mesh, "S(0)").value();
  std::vector<float> data(8);
  EXPECT_EQ(runner->Run(whole, cut, {data.data()}, {}).status().ToString(),
            "INVALID_ARGUMENT: the number of sources is 1; expected 2, one for each rank");
  EXPECT_EQ(runner->Run(whole, cut, {data.data(), data.data()}, {}).status().ToString(),
            "INVALID_ARGUMENT: the number of targets is 0; expected 2, one for each rank");
  const Sharding other = Sharding::Parse("f32[2] on b=2@1-2 as R").value();
  EXPECT_EQ(runner->Run(cut, other, {data.data(), data.data()}, {data.data(), data.data()})
                .status()
                .ToString(),
            "INVALID_ARGUMENT: rank 2 of f32[2] on b=2@1-2 as R is not in mesh a=2");
  // A refusal of the first rank changes nothing.
  EXPECT_EQ(runner->Run(cut, whole, {nullptr, data.data()}, {data.data() + 1, data.data() + 4})
                .status()
                .ToString(),
            "INVALID_ARGUMENT: the source f32[1] is null");
  EXPECT_TRUE(
      runner->Run(cut, whole, {data.data(), data.data()}, {data.data() + 1, data.data() + 4}).ok());
  // Rank 1 cannot run, so rank 0 is not left waiting.
  const absl::StatusOr<LocalRun> run =
      runner->Run(cut, whole, {data.data(), nullptr}, {data.data() + 1, data.data() + 4});
  EXPECT_EQ(run.status().ToString(), "INVALID_ARGUMENT: the source f32[1] is null");
  EXPECT_EQ(runner->Run(cut, whole, {data.data(), data.data()}, {data.data() + 1, data.data() + 4})
                .status()
                .code(),
            absl::StatusCode::kAborted);
}

// The runner's one thread would wait for posts that it has to make itself.
TEST(LocalRunTest, RanksThatAwaitEachOtherNeedThreads) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=2").value();
  const auto peers = Bootstrap::InProcess(2).value();
  const auto world =
      LocalWorld::Create({.num_ranks = 2, .control = {peers[0]->control(), peers[1]->control()}})
          .value();
  EXPECT_EQ(
      LocalRunner::Create(world.get(), mesh).status().ToString(),
      "FAILED_PRECONDITION: rank 0 has a control channel, so calls would wait for their peers, "
      "but one thread makes all ranks' calls; the option agreement must be kOff");
  const auto runner =
      LocalRunner::Create(world.get(), mesh, {.agreement = Agreement::kOff}).value();
  const Sharding whole = Sharding::Parse("f32[2]", mesh, "R").value();
  const Sharding cut = Sharding::Parse("f32[2]", mesh, "S(0)").value();
  std::vector<float> in = {3, 4};
  std::vector<float> out(4);
  ASSERT_TRUE(
      runner->Run(cut, whole, {in.data(), in.data() + 1}, {out.data(), out.data() + 2}).ok());
  EXPECT_EQ(out, (std::vector<float>{3, 4, 3, 4}));
}

}  // namespace
}  // namespace meshift
