#include "planner/plan/workspace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "meshift/device_mesh.h"
#include "meshift/sharding.h"

namespace meshift {
namespace {

Sharding Parse(const std::string& mesh, const std::string& tensor, const std::string& placements) {
  return Sharding::Parse(tensor, DeviceMesh::Parse(mesh).value(), placements).value();
}

TEST(WorkspaceTest, PiecesLieInScratchOneAfterTheOther) {
  EXPECT_EQ(PiecesBytes(30, 50, 0), 32 + 64);
  EXPECT_EQ(PiecesBytes(30, 50, 96), 0);
  EXPECT_EQ(PiecesBytes(30, 50, 80), 64);
  EXPECT_EQ(PiecesBytes(50, 30, 48), 64);
  EXPECT_EQ(PiecesBytes(0, 0, 0), 0);
  EXPECT_EQ(PiecesBytes(INT64_MAX, 16, 16), INT64_MAX);
}

TEST(WorkspaceTest, WhichStepsWorkOnACopy) {
  const Sharding eight = Parse("a=8", "f32[64]", "S(0)");
  const Sharding grid = Parse("b=2,c=4", "f32[64]", "S(0),S(0)");
  EXPECT_TRUE(WorksOnCopy(StepOp::kAllGather, eight, eight));
  EXPECT_FALSE(WorksOnCopy(StepOp::kAllReduce, eight, eight));
  EXPECT_FALSE(WorksOnCopy(StepOp::kRelabel, eight, grid));
  EXPECT_TRUE(WorksOnCopy(StepOp::kRelabel, Parse("a=8", "f32[64]", "R"), grid));
}

}  // namespace
}  // namespace meshift
