#include "testing/synthetic_mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "meshift/device_mesh.h"

namespace meshift::testkit {
namespace {

TEST(SyntheticMeshTest, NamesItsDims) {
  EXPECT_EQ(SyntheticMesh({8, 5, 1})->ToString(), "d0=8,d1=5,d2=1");
  EXPECT_EQ(SyntheticMesh({1024, 1024})->NumRanks(), 1 << 20);
}

TEST(SyntheticMeshTest, RefusesWhatAMeshRefuses) {
  EXPECT_FALSE(SyntheticMesh({}).ok());
  EXPECT_FALSE(SyntheticMesh({2, 0}).ok());
  EXPECT_FALSE(ShuffledMesh({2, 0}, 1).ok());
}

TEST(ShuffledMeshTest, HasTheRanksInAnotherOrder) {
  const DeviceMesh mesh = ShuffledMesh({4, 6}, 1).value();
  std::vector<int64_t> ranks = mesh.Ranks();
  EXPECT_FALSE(mesh.IsRowMajor());
  EXPECT_EQ(mesh, ShuffledMesh({4, 6}, 1).value());
  EXPECT_FALSE(mesh == ShuffledMesh({4, 6}, 2).value());
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, SyntheticMesh({4, 6})->Ranks());
}

}  // namespace
}  // namespace meshift::testkit
