#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "testing/internal/command.h"

namespace meshift::cli {
namespace {

Outcome Shards(const std::string& mesh, const std::string& tensor, const std::string& placements) {
  return Meshift({"shards", "--mesh", mesh, "--tensor", tensor, "--placements", placements});
}

TEST(Shards, TwoDimsMakeAGrid) {
  EXPECT_EQ(Shards("a=2,b=2", "f32[5,4]", "S(0),S(1)"), (Outcome{0, &R"(
# meshift shards: f32[5,4] on a=2,b=2 (4 ranks) as S(0),S(1)
        [0:2]   [2:4]
      +-------+-------+
[0:3] | 0     | 1     |
      +-------+-------+
[3:5] | 2     | 3     |
      +-------+-------+
# rank  coordinate  box         local shape  bytes
0       a=0,b=0     [0:3, 0:2]  [3,2]           24
1       a=0,b=1     [0:3, 2:4]  [3,2]           24
2       a=1,b=0     [3:5, 0:2]  [2,2]           16
3       a=1,b=1     [3:5, 2:4]  [2,2]           16
)"[1],
                                                                 ""}));
}

TEST(Shards, OneDimWithPartialsAndEmptyShards) {
  EXPECT_EQ(Shards("a=2,b=4", "f32[5]", "P,S(0)").out, &R"(
# meshift shards: f32[5] on a=2,b=4 (8 ranks) as P,S(0)
# partial: sum over a; each rank holds a contribution, not the value
  [0:2]   [2:4]   [4:5]
+-------+-------+-------+
| 0,4   | 1,5   | 2,6   |
+-------+-------+-------+
# hold nothing: ranks 3,7
# rank  coordinate  box    local shape  bytes
0       a=0,b=0     [0:2]  [2]              8
1       a=0,b=1     [2:4]  [2]              8
2       a=0,b=2     [4:5]  [1]              4
3       a=0,b=3     [5:5]  [0]              0
4       a=1,b=0     [0:2]  [2]              8
5       a=1,b=1     [2:4]  [2]              8
6       a=1,b=2     [4:5]  [1]              4
7       a=1,b=3     [5:5]  [0]              0
)"[1]);
}

TEST(Shards, RaggedSizesAndListedRanks) {
  EXPECT_EQ(Shards("a=3@7,5,6", "u8[8,2]", "S(0){3,0,5}").out, &R"(
# meshift shards: u8[8,2] on a=3@7,5-6 (3 ranks) as S(0){3,0,5}
        [0:2]
      +-------+
[0:3] | 7     |
      +-------+
[3:8] | 6     |
      +-------+
# hold nothing: ranks 5
# rank  coordinate  box         local shape  bytes
7       a=0         [0:3, 0:2]  [3,2]            6
5       a=1         [3:3, 0:2]  [0,2]            0
6       a=2         [3:8, 0:2]  [5,2]           10
)"[1]);
}

TEST(Shards, ReorderedCutsOfOneDim) {
  EXPECT_EQ(Shards("a=2,b=2", "i8[8]", "S(0)[1],S(0)[0]").out, &R"(
# meshift shards: i8[8] on a=2,b=2 (4 ranks) as S(0)[1],S(0)[0]
  [0:2]   [2:4]   [4:6]   [6:8]
+-------+-------+-------+-------+
| 0     | 2     | 1     | 3     |
+-------+-------+-------+-------+
# rank  coordinate  box    local shape  bytes
0       a=0,b=0     [0:2]  [2]              2
1       a=0,b=1     [4:6]  [2]              2
2       a=1,b=0     [2:4]  [2]              2
3       a=1,b=1     [6:8]  [2]              2
)"[1]);
}

TEST(Shards, OtherRanksHaveATableOnly) {
  EXPECT_EQ(Shards("a=2", "f32[2,3,4]", "S(2)").out, &R"(
# meshift shards: f32[2,3,4] on a=2 (2 ranks) as S(2)
# rank  coordinate  box              local shape  bytes
0       a=0         [0:2, 0:3, 0:2]  [2,3,2]         48
1       a=1         [0:2, 0:3, 2:4]  [2,3,2]         48
)"[1]);
  EXPECT_EQ(Shards("a=2", "f32[]", "R").out, &R"(
# meshift shards: f32[] on a=2 (2 ranks) as R
# rank  coordinate  box  local shape  bytes
0       a=0         []   []               4
1       a=1         []   []               4
)"[1]);
}

TEST(Shards, ATensorWithoutElementsHasNoGrid) {
  EXPECT_EQ(Shards("a=2", "f32[0]", "S(0)").out, &R"(
# meshift shards: f32[0] on a=2 (2 ranks) as S(0)
# hold nothing: ranks 0-1
# rank  coordinate  box    local shape  bytes
0       a=0         [0:0]  [0]              0
1       a=1         [0:0]  [0]              0
)"[1]);
}

TEST(Shards, ManyRanksOfACellAreCutShort) {
  const std::string out = Shards("a=64,b=2", "f32[4]", "R,S(0)").out;
  EXPECT_NE(out.find("| 0,2,4,6,8,10,12,14,16,18,.. (64 ranks) |"), std::string::npos) << out;
}

TEST(Shards, AGridThatIsTooWideIsLeftOut) {
  const std::string out = Shards("a=64", "f32[64]", "S(0)").out;
  EXPECT_EQ(out.find("+---"), std::string::npos) << out;
}

TEST(Shards, SomeRanksOfManyAreListed) {
  const std::vector<std::string> args = {"shards", "--mesh",       "a=2000000000", "--tensor",
                                         "f32[8]", "--placements", "S(0)"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = args;
    all.insert(all.end(), more.begin(), more.end());
    return Meshift(all);
  };
  EXPECT_EQ(with({"--skip", "6", "--count", "3"}), (Outcome{0, &R"(
# meshift shards: f32[8] on a=2000000000 (2000000000 ranks) as S(0)
# listed: 3 ranks from position 6 on
  [6:7]   [7:8]
+-------+-------+
| 6     | 7     |
+-------+-------+
# hold nothing: ranks 8
# rank  coordinate  box    local shape  bytes
6       a=6         [6:7]  [1]              4
7       a=7         [7:8]  [1]              4
8       a=8         [8:8]  [0]              0
)"[1],
                                                            ""}));
  const auto rows = [](const Outcome& outcome) {
    return std::count(outcome.out.begin(), outcome.out.end(), '\n');
  };
  EXPECT_EQ(rows(with({"--skip", "1999999998"})), 6);                  // two of them
  EXPECT_EQ(rows(with({"--skip", "1999999999", "--count", "7"})), 5);  // there is one more
}

TEST(Shards, MoreRanksThanCanBeListedAreRefused) {
  const auto error = [](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"shards", "--mesh",       "a=100000000", "--tensor",
                                     "f32[8]", "--placements", "S(0)"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = Meshift(args);
    EXPECT_EQ(outcome.code, 2) << outcome;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_EQ(
      error({}),
      "meshift: cannot list 100000000 ranks; at most 1048576: choose them by --skip and --count\n");
  EXPECT_EQ(
      error({"--count", "1048577"}),
      "meshift: cannot list 1048577 ranks; at most 1048576: choose them by --skip and --count\n");
  EXPECT_EQ(error({"--skip", "100000000"}),
            "meshift: --skip: 100000000 leaves none of the 100000000 ranks\n");
  EXPECT_EQ(error({"--skip", "-1"}),
            "meshift: --skip: '-1' is not a number in 0..9223372036854775807; --help lists the "
            "options\n");
  EXPECT_EQ(error({"--count", "0"}),
            "meshift: --count: '0' is not a number in 1..9223372036854775807; --help lists the "
            "options\n");
}

TEST(Shards, FromIsAnotherNameForPlacements) {
  EXPECT_EQ(Meshift({"shards", "--mesh", "a=2", "--tensor", "f32[4]", "--from", "S(0)"}),
            Shards("a=2", "f32[4]", "S(0)"));
}

}  // namespace
}  // namespace meshift::cli
