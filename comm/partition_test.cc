#include "comm/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mesh/device_mesh.h"

namespace meshift {
namespace {

std::string Key(const std::string& mesh, const std::vector<int>& mesh_dims) {
  return PartitionKey(DeviceMesh::Parse(mesh).value(), mesh_dims);
}

TEST(PartitionKeyTest, RowMajorGroupsAreNestedBlocks) {
  EXPECT_EQ(Key("a=2,b=4", {1}), "4:1");
  EXPECT_EQ(Key("a=2,b=4", {0}), "2:4");
  EXPECT_EQ(Key("a=2,b=4", {0, 1}), "8:1");
  EXPECT_EQ(Key("a=2,b=3,c=2", {0, 2}), "2:1,2:6");
}

TEST(PartitionKeyTest, FactoringAndNamesDoNotMatter) {
  EXPECT_EQ(Key("x=2,y=2,z=2", {1, 2}), "4:1");
  EXPECT_EQ(Key("x=2,one=1,y=4", {2}), "4:1");
  EXPECT_EQ(Key("x=2,one=1,y=4", {0, 1}), "2:4");
}

TEST(PartitionKeyTest, ListedRanksThatMakeBlocksAreBlocks) {
  EXPECT_EQ(Key("a=2,b=2@0,2,1,3", {0}), "2:1");     // {0,1}, {2,3}
  EXPECT_EQ(Key("a=2,b=2@3,1,2,0", {1}), "2:2");     // {1,3}, {0,2}
  EXPECT_EQ(Key("a=2,b=2@4-5,0-1", {1}), "2:1");     // of other ranks
  EXPECT_EQ(Key("a=2,b=4@4-7,0-3", {0, 1}), "8:1");  // the whole
}

TEST(PartitionKeyTest, OtherGroupsHaveKeysOfTheirOwn) {
  const std::string one = Key("a=3,b=2@0,1,2,4,3,5", {1});    // {0,1}, {2,4}, {3,5}
  const std::string two = Key("a=3,b=2@2,4,3,5,1,0", {1});    // the same
  const std::string three = Key("a=3,b=2@0,1,2,5,3,4", {1});  // {0,1}, {2,5}, {3,4}
  EXPECT_EQ(one, two);
  EXPECT_NE(one, three);
  EXPECT_NE(one, Key("a=3,b=2", {1}));
}

// All orders of 6 ranks: keys are equal exactly where the sets of groups are.
TEST(PartitionKeyTest, EqualKeysMeanEqualGroups) {
  std::map<std::string, std::vector<std::vector<int64_t>>> groups_of;
  std::map<std::vector<std::vector<int64_t>>, std::string> key_of;
  std::vector<int64_t> ranks = {0, 1, 2, 3, 4, 5};
  do {
    const DeviceMesh mesh = DeviceMesh::Create({{"a", 3}, {"b", 2}}, ranks).value();
    for (const int d : {0, 1}) {
      std::vector<std::vector<int64_t>> groups = mesh.Groups({d});
      for (auto& group : groups) std::sort(group.begin(), group.end());
      std::sort(groups.begin(), groups.end());
      const std::string key = PartitionKey(mesh, {d});
      EXPECT_EQ(groups_of.try_emplace(key, groups).first->second, groups) << key;
      EXPECT_EQ(key_of.try_emplace(groups, key).first->second, key) << mesh.ToString();
    }
  } while (std::next_permutation(ranks.begin(), ranks.end()));
  EXPECT_EQ(groups_of.size(), 15 + 10);  // ways to pair six ranks, and to make two triples
}

}  // namespace
}  // namespace meshift
