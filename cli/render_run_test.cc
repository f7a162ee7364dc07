#include "cli/render_run.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/execute.h"
#include "cli/model_plan.h"
#include "cli/problem.h"
#include "meshift/device_mesh.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

absl::StatusOr<Plan> MakeGather(const std::string& tensor) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse("a=4"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse(tensor, mesh, "S(0)"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  return MakePlan(from, to, {});
}

// The report of a run as planned, except for `excess` bytes of memory.
RunReport ReportOf(const Plan& plan, int64_t excess) {
  RunReport report;
  for (const Step& step : plan.steps()) report.steps.push_back({step.bytes_sent, /*time_ns=*/1000});
  report.peak_bytes = plan.total().peak_bytes + excess;
  return report;
}

bool Says(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(RenderRun, MemoryBeyondThePlansIsWrongAndSaidToBe) {
  const Plan plan = MakeGather("f32[8]").value();
  const RunReport right = ReportOf(plan, 0);
  EXPECT_TRUE(IsRight(plan, right));
  EXPECT_EQ(RenderRun(plan, right, {}).find("exceeds the plan"), std::string::npos);
  const RunReport wrong = ReportOf(plan, 3);
  EXPECT_FALSE(IsRight(plan, wrong));
  const std::string text = RenderRun(plan, wrong, {});
  EXPECT_TRUE(Says(text, "peak: planned 40 bytes, counted 43 bytes")) << text;
  EXPECT_TRUE(Says(text, "peak exceeds the plan by 3 bytes")) << text;
}

TEST(RenderRun, BytesOtherThanPlannedAreWrongAndSaidToBe) {
  const Plan plan = MakeGather("f32[8]").value();
  RunReport report = ReportOf(plan, 0);
  report.miscounted = 2;
  EXPECT_FALSE(IsRight(plan, report));
  const std::string text = RenderRun(plan, report, {});
  EXPECT_TRUE(Says(text, "bytes not as planned 2")) << text;
}

// The excess is found even if another plan of the model has a larger peak.
TEST(RenderRun, AModelsExcessIsThatOfOnePlan) {
  const Plan small = MakeGather("f32[8]").value();
  const Plan large = MakeGather("f32[800]").value();
  ModelPlan model;
  model.name = "m";
  model.rows = {{.count = 3, .first = "small", .plan = small, .from = "S(0)", .to = "R"},
                {.count = 1, .first = "large", .plan = large, .from = "S(0)", .to = "R"}};
  ProblemFlags flags;
  flags.from = "S(0)";
  flags.to = "R";
  const auto text = [&](int64_t excess) {
    return RenderModelRun(model, {ReportOf(small, excess), ReportOf(large, 0)}, flags, {});
  };
  EXPECT_EQ(text(0).find("exceeds the plan"), std::string::npos) << text(0);
  EXPECT_TRUE(Says(text(1), "peak exceeds the plan by 1 byte")) << text(1);
  // Three times 24 bytes and once 2400, in 4 us.
  EXPECT_TRUE(Says(text(0),
                   "total: 4 parameters, 2 distinct plans, planned 2472 bytes, counted "
                   "2472 bytes, time 4.0 us"))
      << text(0);
}

}  // namespace
}  // namespace meshift::cli
