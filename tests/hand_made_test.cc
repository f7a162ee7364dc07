// Plans that were put together by hand, for tensors that one rank or a part of the mesh holds: the
// planner's own take at most 1.05 times as long. tests/data/hand_made/ has them as plan files,
// which this test compares with its steps. It writes them to its undeclared outputs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/work_budget.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "meshift/verifier.h"
#include "planner/cost/cost.h"
#include "planner/cost/cross_cost.h"
#include "planner/inter_mesh/cross_mesh.h"
#include "planner/inter_mesh/mesh_pair.h"
#include "planner/intra_mesh/assemble.h"
#include "planner/intra_mesh/reduction_choice.h"
#include "planner/plan/crossing.h"
#include "planner/search/search.h"
#include "tests/plan_runner.h"

namespace meshift {
namespace {

struct HandStep {
  std::string after;
  StepOp op;  // the collective on cuts; of a crossing without use
  bool crosses = false;
};

struct HandMade {
  std::string name;
  DeviceMesh mesh;
  DeviceMesh to_mesh;
  Sharding from;
  Sharding to;
  std::vector<HandStep> steps;
};

HandMade Make(std::string name, const std::string& mesh, const std::string& to_mesh,
              const std::string& tensor, const std::string& from, const std::string& to,
              std::vector<HandStep> steps) {
  const DeviceMesh source = *DeviceMesh::Parse(mesh);
  const DeviceMesh target = *DeviceMesh::Parse(to_mesh);
  return {std::move(name),
          source,
          target,
          *Sharding::Parse(tensor, source, from),
          *Sharding::Parse(tensor, target, to),
          std::move(steps)};
}

// S(dim) with `size` on each of the first `holders` of `ranks` coordinates.
std::string FirstHold(int dim, int holders, int ranks, int64_t size) {
  std::string sizes;
  for (int i = 0; i < ranks; ++i) {
    sizes += fmt::format("{}{}", i == 0 ? "" : ",", i < holders ? size : 0);
  }
  return fmt::format("S({}){{{}}}", dim, sizes);
}

// The plans, for tensors whose dims are divided by `scale`.
std::vector<HandMade> HandMadePlans(int64_t scale) {
  const std::string bf16 = fmt::format("bf16[{0},{0}]", 8192 / scale);
  const std::string f32 = fmt::format("f32[{0},{0}]", 8192 / scale);
  const std::string expert = fmt::format("bf16[{},{}]", 14336 / scale, 4096 / scale);
  return {
      Make("root_to_replicas", "one=1@0", "dp=4,tp=8", bf16, "R", "R,R",
           {{"At(0),At(0)", StepOp::kRelabel, true}, {"R,R", StepOp::kAllGather}}),
      Make("root_to_shards", "one=1@0", "dp=4,tp=8", bf16, "R", "S(0),S(1)",
           {{"At(0),S(0)", StepOp::kExchange, true},
            {"At(0),S(1)", StepOp::kAllToAll},
            {"S(0),S(1)", StepOp::kAllToAll}}),
      Make("sum_to_root", "dp=8", "one=1@0", f32, "P", "R",
           {{"At(0)", StepOp::kReduceScatter}, {"R", StepOp::kRelabel, true}}),
      Make(
          "shards_to_root", "fsdp=32", "one=1@0", bf16, "S(0)", "R",
          {{FirstHold(0, 8, 32, 1024 / scale), StepOp::kAllToAll}, {"R", StepOp::kExchange, true}}),
      Make("expert_by_rows", "ep=8,tp=8", "ep=8,tp=8", expert,
           FirstHold(0, 1, 8, 14336 / scale) + ",S(0)", "R,S(0)", {{"R,S(0)", StepOp::kAllGather}}),
      Make("expert_by_columns", "ep=8,tp=8", "ep=8,tp=8", expert,
           FirstHold(1, 1, 8, 4096 / scale) + ",S(0)", "R,S(0)", {{"R,S(0)", StepOp::kAllGather}}),
  };
}

PlannerOptions OptionsOf(const HandMade& made) {
  PlannerOptions options{.topology = *Topology::Parse("h100")};
  // "Possible" for this one is within 200 MiB.
  if (made.name == "shards_to_root") options.max_memory = int64_t{200} << 20;
  return options;
}

Plan PlanOf(const HandMade& made, const PlannerOptions& options) {
  WorkBudget budget(options.max_work);
  std::vector<DeviceMesh> meshes = {made.mesh};
  if (made.to_mesh != made.mesh) meshes.push_back(made.to_mesh);
  const PlanGroups groups = *GroupsOf(meshes, options, budget);
  PlanAssembly plan(meshes, made.from, made.to, options, groups);
  std::string why;
  Sharding now = made.from;
  int mesh = 0;
  for (size_t i = 0; i < made.steps.size(); ++i) {
    const HandStep& step = made.steps[i];
    if (step.crosses) {
      const Sharding after = *Sharding::Parse(now.tensor(), made.to_mesh, step.after);
      const Crossing crossing = Crossing::Of(now, after, options.topology);
      const Traffic traffic = MeasureCrossing(crossing, now, after, options.topology);
      const MeshPair pair(made.mesh, made.to_mesh, options.topology);
      plan.AddStep(CrossingStep(crossing, traffic, now, after, pair.union_size(), 0),
                   traffic.send_pack_bytes, traffic.receive_pack_bytes);
      now = after;
      mesh = 1;
      continue;
    }
    const Sharding after = *now.WithPlacements(step.after);
    Problem problem = *Problem::Create(now, after, std::nullopt, true);
    problem.SetBudget(&budget);
    const ReductionChoice choice = *ChooseReductions(problem, options);
    CostOptions cost = CostOptionsOf(options, choice);
    cost.from_source = i == 0;
    cost.to_target = i + 1 == made.steps.size();
    const CostModel model(problem, options.topology, cost);
    Path path;
    path.moves = {{step.op, problem.target()}};
    plan.AddPath(problem, model, path, choice, mesh);
    why = choice.why;
    now = after;
  }
  return std::move(plan).Seal(LowerBound(), why);
}

std::string FileText(const std::string& name) {
  std::ifstream file("tests/data/hand_made/" + name + ".plan");
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(HandMadeTest, TheFilesHaveTheseSteps) {
  for (const HandMade& made : HandMadePlans(1)) {
    const std::string text = PlanToText(PlanOf(made, OptionsOf(made)));
    EXPECT_EQ(FileText(made.name), text) << made.name;
    if (const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR")) {
      std::ofstream(fmt::format("{}/{}.plan", outputs, made.name)) << text;
    }
  }
}

TEST(HandMadeTest, OursAreNotSlower) {
  for (const HandMade& made : HandMadePlans(1)) {
    const absl::StatusOr<Plan> by_hand = PlanFromText(FileText(made.name));
    ASSERT_TRUE(by_hand.ok()) << made.name << ": " << by_hand.status();
    const Verdict proof = Verify(*by_hand);
    EXPECT_TRUE(proof.ok()) << made.name << ": " << proof.fault->message;
    const absl::StatusOr<Plan> ours = MakePlan(made.from, made.to, OptionsOf(made));
    ASSERT_TRUE(ours.ok()) << made.name << ": " << ours.status();
    const Verdict verdict = Verify(*ours);
    EXPECT_TRUE(verdict.ok()) << made.name << ": " << verdict.fault->message;
    EXPECT_LE(ours->total().est_ns * 100, by_hand->total().est_ns * 105) << made.name;
    fmt::print("{}: by hand {} ns, ours {} ns\n", made.name, by_hand->total().est_ns,
               ours->total().est_ns);
  }
}

TEST(HandMadeTest, BothRunOnSmallTensors) {
  PlanRunner runner(*DeviceMesh::Parse("all=64"));
  for (const HandMade& made : HandMadePlans(64)) {
    const absl::StatusOr<Plan> ours = MakePlan(made.from, made.to, OptionsOf(made));
    ASSERT_TRUE(ours.ok()) << made.name << ": " << ours.status();
    for (const Plan& plan : {PlanOf(made, OptionsOf(made)), *ours}) {
      const absl::StatusOr<RunOutcome> outcome = runner.Run(plan);
      ASSERT_TRUE(outcome.ok()) << made.name << ": " << outcome.status();
      EXPECT_TRUE(outcome->ok()) << made.name << ": " << outcome->message;
    }
  }
}

}  // namespace
}  // namespace meshift
