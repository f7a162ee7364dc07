#include "meshift/union_mesh.h"

#include <gtest/gtest.h>

#include <string>

#include "meshift/device_mesh.h"

namespace meshift {
namespace {

std::string TextOf(const char* a, const char* b) {
  return UnionMesh(*DeviceMesh::Parse(a), *DeviceMesh::Parse(b))->ToString();
}

TEST(UnionMeshTest, HoldsTheRanksOfBoth) {
  EXPECT_EQ(TextOf("a=4", "b=2@3,9"), "ranks=5@0-3,9");
  EXPECT_EQ(TextOf("b=2@9,3", "a=4"), "ranks=5@0-3,9");
  EXPECT_EQ(TextOf("a=2,b=3", "c=6"), "ranks=6");
  EXPECT_EQ(TextOf("a=2", "c=2,d=4"), "ranks=8");
  EXPECT_EQ(TextOf("a=2@1,0", "a=2"), "ranks=2");
  EXPECT_EQ(TextOf("a=2@2-3", "a=2@0-1"), "ranks=4");
  EXPECT_EQ(TextOf("a=2@7,5", "b=2@6,5"), "ranks=3@5-7");
}

TEST(UnionMeshTest, OfEqualMeshesIsThatMesh) {
  EXPECT_EQ(TextOf("a=2,b=2@3,1,0,2", "a=2,b=2@3,1,0,2"), "a=2,b=2@3,1,0,2");
}

// Listing the ranks would take gigabytes.
TEST(UnionMeshTest, OfHugeRowMajorMeshesTakesNoList) {
  EXPECT_EQ(TextOf("a=2147483647", "b=1048576"), "ranks=2147483647");
}

}  // namespace
}  // namespace meshift
