#include "planner/plan/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "meshift/device_mesh.h"

namespace meshift {
namespace {

std::string Key(const std::string& mesh, const std::vector<int>& mesh_dims) {
  return PartitionKey(DeviceMesh::Parse(mesh).value(), mesh_dims);
}

TEST(PartitionKeyTest, RowMajorGroupsAreNestedBlocks) {
  EXPECT_EQ(Key("a=2,b=4", {1}), "8 4:1");
  EXPECT_EQ(Key("a=2,b=4", {0}), "8 2:4");
  EXPECT_EQ(Key("a=2,b=4", {0, 1}), "8 8:1");
  EXPECT_EQ(Key("a=2,b=3,c=2", {0, 2}), "12 2:1,2:6");
}

TEST(PartitionKeyTest, FactoringAndNamesDoNotMatter) {
  EXPECT_EQ(Key("x=2,y=2,z=2", {1, 2}), "8 4:1");
  EXPECT_EQ(Key("x=2,one=1,y=4", {2}), "8 4:1");
  EXPECT_EQ(Key("x=2,one=1,y=4", {0, 1}), "8 2:4");
}

TEST(PartitionKeyTest, ListedRanksThatMakeBlocksAreBlocks) {
  EXPECT_EQ(Key("a=2,b=2@0,2,1,3", {0}), "4 2:1");     // {0,1}, {2,3}
  EXPECT_EQ(Key("a=2,b=2@3,1,2,0", {1}), "4 2:2");     // {1,3}, {0,2}
  EXPECT_EQ(Key("a=2,b=4@4-7,0-3", {0, 1}), "8 8:1");  // all ranks
}

TEST(PartitionKeyTest, PartsOfTheRanksAreOtherPartitions) {
  EXPECT_EQ(Key("a=2,b=2@4-5,0-1", {1}), "4@0-1,4-5 2:1");
  EXPECT_EQ(Key("a=4@7,5,4,6", {0}), "4@4-7 4:1");
  EXPECT_EQ(Key("a=2,b=2@4-7", {1}), "4@4-7 2:1");
  EXPECT_NE(Key("a=4", {0}), Key("a=2,b=4", {1}));  // {0,1,2,3}; the other also has {4,5,6,7}
  std::string odd;
  for (int rank = 3; rank < 64; rank += 2) odd += "," + std::to_string(rank);
  EXPECT_EQ(Key("a=32@1" + odd, {0}), Key("x=2,y=16@1" + odd, {0, 1}));
  EXPECT_NE(Key("a=32@1" + odd, {0}), Key("a=32@0" + odd, {0}));
}

TEST(PartitionKeyTest, OtherGroupsHaveKeysOfTheirOwn) {
  const std::string one = Key("a=3,b=2@0,1,2,4,3,5", {1});    // {0,1}, {2,4}, {3,5}
  const std::string two = Key("a=3,b=2@2,4,3,5,1,0", {1});    // the same
  const std::string three = Key("a=3,b=2@0,1,2,5,3,4", {1});  // {0,1}, {2,5}, {3,4}
  EXPECT_EQ(one, two);
  EXPECT_NE(one, three);
  EXPECT_NE(one, Key("a=3,b=2", {1}));
}

// All orders of 6 ranks, and of 4 of the 6: keys are equal if and only if the sets of groups are.
TEST(PartitionKeyTest, EqualKeysMeanEqualGroups) {
  std::map<std::string, std::vector<std::vector<int64_t>>> groups_of;
  std::map<std::vector<std::vector<int64_t>>, std::string> key_of;
  std::vector<int64_t> ranks = {0, 1, 2, 3, 4, 5};
  do {
    const DeviceMesh all = DeviceMesh::Create({{"a", 3}, {"b", 2}}, ranks).value();
    const DeviceMesh part =
        DeviceMesh::Create({{"a", 2}, {"b", 2}}, {ranks.begin(), ranks.begin() + 4}).value();
    for (const auto& [mesh, d] : {std::pair(all, 0), std::pair(all, 1), std::pair(part, 0)}) {
      std::vector<std::vector<int64_t>> groups = mesh.Groups({d});
      for (auto& group : groups) std::sort(group.begin(), group.end());
      std::sort(groups.begin(), groups.end());
      const std::string key = PartitionKey(mesh, {d});
      EXPECT_EQ(groups_of.try_emplace(key, groups).first->second, groups) << key;
      EXPECT_EQ(key_of.try_emplace(groups, key).first->second, key) << mesh.ToString();
    }
  } while (std::next_permutation(ranks.begin(), ranks.end()));
  // 6 ranks in pairs: 15 ways; in two triples: 10; 4 of 6 ranks in two pairs: 15 * 3.
  EXPECT_EQ(groups_of.size(), 15 + 10 + 15 * 3);
}

}  // namespace
}  // namespace meshift
