// Every partial op in f32, bf16 and i32: reduced to R and to S, and kept while other mesh dims
// change.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "fmt/format.h"
#include "meshift/planner.h"
#include "meshift/verifier.h"
#include "tests/plan_runner.h"

namespace meshift {
namespace {

using Kind = std::tuple<std::string, std::string>;  // op, dtype

class PartialKindsTest : public testing::TestWithParam<Kind> {};

TEST_P(PartialKindsTest, AreReducedRight) {
  const auto& [op, dtype] = GetParam();
  const std::string p = "P(" + op + ")";
  for (const std::string mesh_text : {"a=4", "a=7", "a=2,b=3", "a=3,b=2", "a=2,b=2,c=3"}) {
    const DeviceMesh mesh = *DeviceMesh::Parse(mesh_text);
    PlanRunner runner(mesh);
    std::vector<std::pair<std::string, std::string>> pairs;
    if (mesh.NumDims() == 1) {
      pairs = {{p, "R"}, {p, "S(0)"}, {p, "S(1)"}, {p, p}, {"R", p}};
      if (op != "avg") pairs.push_back({"S(0)", p});
    } else if (mesh.NumDims() == 2) {
      pairs = {
          {p + "," + p, "R,R"},    {p + "," + p, "S(0),S(1)"}, {p + "," + p, "S(0)[1],S(0)[0]"},
          {p + "," + p, "R," + p}, {p + "," + p, p + ",S(0)"}, {p + ",R", "R,R"},
          {p + ",S(0)", "R,R"},    {"S(0)," + p, "S(1)," + p}, {"S(0)," + p, "R," + p},
          {"R," + p, "S(0)," + p}, {"R," + p, p + ",R"},       {"R,R", p + "," + p},
          {p + ",S(1)", "S(0),R"}};
      if (op == "avg") {
        pairs.insert(pairs.end(),
                     {{"P," + p, "R,R"}, {p + ",P", "S(0),S(1)"}, {"P," + p, "R," + p}});
      }
    } else {
      pairs = {{p + ",S(0)," + p, "R,R,R"},
               {p + "," + p + ",S(0)", "S(0),S(0),S(0)"},
               {p + ",R," + p, "R,R,R"},
               {p + "," + p + ",R", p + ",R,S(1)"}};
    }
    for (const auto& [from_text, to_text] : pairs) {
      for (const std::string shape : {"[8,6]", "[5,3]", "[1,2]", "[0,3]"}) {
        SCOPED_TRACE(
            fmt::format("{}{} on {}: {} -> {}", dtype, shape, mesh_text, from_text, to_text));
        const Sharding from = *Sharding::Parse(dtype + shape, mesh, from_text);
        const Sharding to = *from.WithPlacements(to_text);
        const absl::StatusOr<Plan> plan = MakePlan(from, to);
        ASSERT_TRUE(plan.ok()) << plan.status();
        const Verdict verdict = Verify(*plan);
        ASSERT_TRUE(verdict.ok()) << verdict.fault->rule << ": " << verdict.fault->message;
        const absl::StatusOr<RunOutcome> outcome = runner.Run(*plan);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        EXPECT_TRUE(outcome->ok()) << outcome->message;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PartialKindsTest,
                         testing::Combine(testing::Values("sum", "avg", "min", "max", "product"),
                                          testing::Values("f32", "bf16", "i32")),
                         [](const testing::TestParamInfo<Kind>& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

TEST(PartialKindsTest, MixturesAndChangesOfTheOpAreRefused) {
  const DeviceMesh mesh = *DeviceMesh::Parse("a=2,b=2");
  for (const std::string text : {"P,P(max)", "P(min),P(max)", "P(avg),P(product)"}) {
    const auto mixed = Sharding::Parse("f32[4]", mesh, text);
    EXPECT_EQ(mixed.status().code(), absl::StatusCode::kInvalidArgument) << mixed.status();
  }
  EXPECT_TRUE(Sharding::Parse("f32[4]", mesh, "P,P(avg)").ok());
  const Sharding from = *Sharding::Parse("f32[4]", mesh, "P,R");
  const auto changed = MakePlan(from, *from.WithPlacements("P(max),R"));
  EXPECT_EQ(changed.status().code(), absl::StatusCode::kInvalidArgument) << changed.status();
}

}  // namespace
}  // namespace meshift
