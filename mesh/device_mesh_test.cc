#include "meshift/device_mesh.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"

namespace meshift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ranks = std::vector<int64_t>;

DeviceMesh Mesh(const std::string& text) {
  absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(text);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *std::move(mesh);
}

// The error message of `mesh`.
std::string Refusal(const absl::StatusOr<DeviceMesh>& mesh) {
  if (mesh.ok()) return "accepted: " + mesh->ToString();
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
  return Message(mesh.status());
}

std::string Text(const absl::StatusOr<DeviceMesh>& mesh) {
  return mesh.ok() ? mesh->ToString() : mesh.status().ToString();
}

TEST(DeviceMeshTest, RowMajor) {
  const absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Create({{"ddp", 8}, {"fsdp", 5}});
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ(mesh->NumDims(), 2);
  EXPECT_EQ(mesh->dim(1), (DeviceMesh::Dim{"fsdp", 5}));
  EXPECT_EQ(mesh->NumRanks(), 40);
  EXPECT_EQ(mesh->MaxRank(), 39);
  EXPECT_TRUE(mesh->IsRowMajor());
  EXPECT_EQ(mesh->FindDim("fsdp"), std::optional<int>(1));
  EXPECT_EQ(mesh->FindDim("tp"), std::nullopt);
  EXPECT_EQ(mesh->CoordinateOf(7), (Coordinate{1, 2}));
  EXPECT_EQ(mesh->CoordinateOf(40), std::nullopt);
  EXPECT_EQ(mesh->PositionOf(-1), std::nullopt);
  EXPECT_EQ(mesh->RankAt(Coordinate{1, 2}), 7);
  EXPECT_THAT(mesh->GroupOf({0}, 7), ElementsAre(2, 7, 12, 17, 22, 27, 32, 37));
  EXPECT_EQ(mesh->ToString(), "ddp=8,fsdp=5");
}

TEST(DeviceMeshTest, ListedRanks) {
  const DeviceMesh mesh = Mesh("a=2,b=2@4,5,0-1");
  EXPECT_FALSE(mesh.IsRowMajor());
  EXPECT_EQ(mesh.Ranks(), (Ranks{4, 5, 0, 1}));
  EXPECT_EQ(mesh.MaxRank(), 5);
  EXPECT_EQ(mesh.PositionOf(0), std::optional<int64_t>(2));
  EXPECT_EQ(mesh.PositionOf(2), std::nullopt);
  EXPECT_EQ(mesh.PositionOf(6), std::nullopt);
  EXPECT_EQ(mesh.CoordinateOf(5), (Coordinate{0, 1}));
  EXPECT_THAT(mesh.GroupOf({0}, 1), ElementsAre(5, 1));
  EXPECT_EQ(mesh.ToString(), "a=2,b=2@4-5,0-1");
}

TEST(DeviceMeshTest, EqualHoweverWritten) {
  const DeviceMesh listed = Mesh("a=2,b=2@0,1-2,3");
  EXPECT_TRUE(listed.IsRowMajor());
  EXPECT_EQ(listed, Mesh("a=2,b=2"));
  EXPECT_EQ(Mesh(" a = 2 , b=2 @ 7, 4 - 6 "),
            *DeviceMesh::Create({{"a", 2}, {"b", 2}}, {7, 4, 5, 6}));
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {Mesh("a=4"), Mesh("a=4@0-3"), Mesh("a=4@1-4"), Mesh("a=4@1,0,2,3"), Mesh("b=4"),
       Mesh("a=2,b=2"), Mesh("b=2,a=2"), Mesh("a=4,b=1"), Mesh("a=2,b=2@2-3,0-1")}));
}

TEST(DeviceMeshTest, Groups) {
  const DeviceMesh mesh = Mesh("a=2,b=3,c=2");
  EXPECT_THAT(mesh.GroupOf({2}, 9), ElementsAre(8, 9));
  EXPECT_THAT(mesh.GroupOf({1, 2}, 9), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(mesh.GroupOf({0, 2}, 9), ElementsAre(2, 3, 8, 9));
  EXPECT_THAT(mesh.GroupOf({}, 9), ElementsAre(9));
  EXPECT_THAT(mesh.Groups({0, 2}),
              ElementsAre(Ranks{0, 1, 6, 7}, Ranks{2, 3, 8, 9}, Ranks{4, 5, 10, 11}));
  EXPECT_THAT(mesh.Groups({0, 1, 2}), ElementsAre(mesh.Ranks()));
  EXPECT_EQ(mesh.Groups({}).size(), 12);
}

TEST(DeviceMeshTest, Slice) {
  const DeviceMesh mesh = Mesh("a=2,b=3,c=2");
  EXPECT_EQ(Text(mesh.Slice({"b", "c"}, 9)), "b=3,c=2@6-11");
  EXPECT_EQ(Text(mesh.Slice({"b", "c"}, 0)), "b=3,c=2");
  EXPECT_EQ(Text(mesh.Slice({"a", "c"}, 9)), "a=2,c=2@2-3,8-9");
  EXPECT_EQ(Text(mesh.Slice({"a"}, 9)), "a=2@3,9");
  EXPECT_EQ(Text(Mesh("a=2,b=2@4,5,0-1").Slice({"a"}, 1)), "a=2@5,1");
  EXPECT_EQ(Refusal(mesh.Slice({}, 0)), "no mesh dim is given; at least one is needed");
  EXPECT_EQ(Refusal(mesh.Slice({"d"}, 0)), "the mesh has no dim 'd'");
  EXPECT_EQ(Refusal(mesh.Slice({"c", "a"}, 0)),
            "dim 'a' is given after dim 'c'; dims must be in mesh order, each once");
  EXPECT_EQ(Refusal(mesh.Slice({"a", "a"}, 0)),
            "dim 'a' is given after dim 'a'; dims must be in mesh order, each once");
  EXPECT_EQ(Refusal(mesh.Slice({"a"}, 12)), "rank 12 is not in the mesh");
}

TEST(DeviceMeshTest, Flatten) {
  const DeviceMesh mesh = Mesh("a=2,b=3,c=2");
  EXPECT_EQ(Text(mesh.Flatten({"a", "b"})), "a_b=6,c=2");
  EXPECT_EQ(Text(mesh.Flatten({"b", "c"}, "inner")), "a=2,inner=6");
  EXPECT_EQ(Text(mesh.Flatten({"a", "c"})), "a_c=4,b=3@0,2,4,1,3,5-6,8,10,7,9,11");
  EXPECT_EQ(Text(mesh.Flatten({"b"}, "x")), "a=2,x=3,c=2");
  // Dims of size 1 in between make no difference.
  EXPECT_EQ(Text(Mesh("a=2,b=1,c=2").Flatten({"a", "c"})), "a_c=4,b=1");
  EXPECT_EQ(Refusal(mesh.Flatten({"a", "b"}, "c")), "mesh dim 'c' is named twice");
  EXPECT_EQ(Refusal(mesh.Flatten({"a", "b"}, "1")),
            "mesh dim name '1' is not of the form [A-Za-z_][A-Za-z0-9_]*");
  EXPECT_EQ(Refusal(mesh.Flatten({"b", "a"})),
            "dim 'a' is given after dim 'b'; dims must be in mesh order, each once");
}

TEST(DeviceMeshTest, Unflatten) {
  const DeviceMesh mesh = Mesh("a=2,b=6@4-15");
  EXPECT_EQ(Text(mesh.Unflatten("b", {{"x", 2}, {"y", 3}})), "a=2,x=2,y=3@4-15");
  EXPECT_EQ(Text(mesh.Unflatten("b", {{"b", 6}, {"c", 1}})), "a=2,b=6,c=1@4-15");
  EXPECT_EQ(Refusal(mesh.Unflatten("c", {{"x", 2}})), "the mesh has no dim 'c'");
  EXPECT_EQ(Refusal(mesh.Unflatten("b", {})), "a mesh needs at least one dim");
  EXPECT_EQ(Refusal(mesh.Unflatten("b", {{"x", 4}})),
            "sizes that multiply to 4 cannot replace mesh dim 'b' of size 6");
  EXPECT_EQ(Refusal(mesh.Unflatten("b", {{"a", 6}})), "mesh dim 'a' is named twice");
}

TEST(DeviceMeshTest, Concatenate) {
  const std::vector<DeviceMesh> meshes = {Mesh("a=2,b=2"), Mesh("a=2,b=2@4-7"),
                                          Mesh("a=2,b=2@9,8,11,10")};
  EXPECT_EQ(Text(DeviceMesh::Concatenate("x", meshes)), "x=3,a=2,b=2@0-7,9,8,11,10");
  EXPECT_EQ(Text(DeviceMesh::Concatenate("x", {meshes[0], meshes[1]})), "x=2,a=2,b=2");
  EXPECT_EQ(Refusal(DeviceMesh::Concatenate("x", {})), "no meshes to concatenate along 'x'");
  EXPECT_EQ(Refusal(DeviceMesh::Concatenate("a", meshes)), "mesh dim 'a' is named twice");
  EXPECT_EQ(Refusal(DeviceMesh::Concatenate("x", {Mesh("a=2"), Mesh("a=2@1-2")})),
            "rank 1 appears twice in the mesh");
  EXPECT_EQ(Refusal(DeviceMesh::Concatenate("x", {Mesh("a=2"), Mesh("b=2@2-3")})),
            "meshes 'a=2' and 'b=2@2-3' differ in their dims");
}

TEST(DeviceMeshTest, CreateRefuses) {
  const auto refusal = [](std::vector<DeviceMesh::Dim> dims, Ranks ranks = {}) {
    return Refusal(DeviceMesh::Create(std::move(dims), std::move(ranks)));
  };
  EXPECT_EQ(refusal({}), "a mesh needs at least one dim");
  EXPECT_EQ(refusal({{"a", 0}}), "mesh dim 'a' has size 0; sizes are 1 or more");
  EXPECT_EQ(refusal({{"a", -3}}), "mesh dim 'a' has size -3; sizes are 1 or more");
  EXPECT_EQ(refusal({{"a", 2}, {"a", 2}}), "mesh dim 'a' is named twice");
  EXPECT_EQ(refusal({{"", 2}}), "mesh dim name '' is not of the form [A-Za-z_][A-Za-z0-9_]*");
  EXPECT_EQ(refusal({{"8x", 2}}), "mesh dim name '8x' is not of the form [A-Za-z_][A-Za-z0-9_]*");
  EXPECT_EQ(refusal({{"a", 65536}, {"b", 32768}}),
            "mesh dim 'b' of size 32768 makes the mesh larger than 2147483647 ranks");
  EXPECT_EQ(refusal({{"a", 2}, {"b", INT64_MAX}}),
            "mesh dim 'b' of size 9223372036854775807 makes the mesh larger than 2147483647 ranks");
  EXPECT_EQ(refusal({{"a", 3}}, {0, 1}), "a mesh of 3 positions lists 2 ranks");
  EXPECT_EQ(refusal({{"a", 3}}, {0, 2, 0}), "rank 0 appears twice in the mesh");
  EXPECT_EQ(refusal({{"a", 2}}, {0, -1}), "rank -1 is not in 0..2147483647");
  EXPECT_EQ(refusal({{"a", 2}}, {0, 2147483648}), "rank 2147483648 is not in 0..2147483647");
}

TEST(DeviceMeshTest, SizesAlone) {
  EXPECT_EQ(Text(DeviceMesh::Parse("4x2")), "d0=4,d1=2");
  EXPECT_EQ(Text(DeviceMesh::Parse(" 2 x 3 x 4 @ 8-31 ")), "d0=2,d1=3,d2=4@8-31");
  EXPECT_EQ(Text(DeviceMesh::Parse("8")), "d0=8");
  EXPECT_EQ(Refusal(DeviceMesh::Parse("4x")), "mesh '4x': mesh dim '4x' is not name=size");
  EXPECT_EQ(Refusal(DeviceMesh::Parse("4x0")),
            "mesh '4x0': mesh dim 'd1' has size 0; sizes are 1 or more");
  EXPECT_EQ(Refusal(DeviceMesh::Parse("4x-2")), "mesh '4x-2': mesh dim '4x-2' is not name=size");
}

TEST(DeviceMeshTest, ParseRefuses) {
  const auto refusal = [](const std::string& text) {
    const std::string message = Refusal(DeviceMesh::Parse(text));
    const std::string prefix = "mesh '" + text + "': ";
    EXPECT_THAT(message, HasSubstr(prefix));
    return message.substr(prefix.size());
  };
  EXPECT_EQ(refusal(""), "mesh dim '' is not name=size");
  EXPECT_EQ(refusal("a=2,"), "mesh dim '' is not name=size");
  EXPECT_EQ(refusal("a"), "mesh dim 'a' is not name=size");
  EXPECT_EQ(refusal("a=2 b=3"), "size '2 b=3' of mesh dim 'a' is not a number in 1..2147483647");
  EXPECT_EQ(refusal("a="), "size '' of mesh dim 'a' is not a number in 1..2147483647");
  EXPECT_EQ(refusal("a=-2"), "size '-2' of mesh dim 'a' is not a number in 1..2147483647");
  EXPECT_EQ(refusal("a=99999999999999999999"),
            "size '99999999999999999999' of mesh dim 'a' is not a number in 1..2147483647");
  EXPECT_EQ(refusal("=2"), "mesh dim name '' is not of the form [A-Za-z_][A-Za-z0-9_]*");
  const std::string not_ranks = " is not a rank or a range of ranks such as 4-7";
  EXPECT_EQ(refusal("a=2@"), "''" + not_ranks);
  EXPECT_EQ(refusal("a=2@4-"), "'4-'" + not_ranks);
  EXPECT_EQ(refusal("a=2@-4"), "'-4'" + not_ranks);
  EXPECT_EQ(refusal("a=2@4--5"), "'4--5'" + not_ranks);
  EXPECT_EQ(refusal("a=2@4,,5"), "''" + not_ranks);
  EXPECT_EQ(refusal("a=2@4 5"), "'4 5'" + not_ranks);
  EXPECT_EQ(refusal("a=2@0@1"), "'0@1'" + not_ranks);
  EXPECT_EQ(refusal("a=2@5-3"), "rank range '5-3' is descending");
  EXPECT_EQ(refusal("a=2@5-6,6"), "a mesh of 2 positions lists 3 ranks");
  EXPECT_EQ(refusal("a=3@5-6,6"), "rank 6 appears twice in the mesh");
  EXPECT_EQ(refusal("a=3@5-9,6"), "a mesh of 3 positions lists 6 ranks");
  EXPECT_EQ(refusal("a=2@0,2147483648"), "rank 2147483648 is not in 0..2147483647");
}

// Would not end, or not fit into memory, if the ranks were listed.
TEST(DeviceMeshTest, TwoBillionRanks) {
  const DeviceMesh mesh = Mesh("a=32767,b=32768,c=2");
  EXPECT_EQ(mesh.NumRanks(), 2147418112);
  EXPECT_EQ(mesh.CoordinateOf(2147418111), (Coordinate{32766, 32767, 1}));
  EXPECT_THAT(mesh.GroupOf({2}, 2147418111), ElementsAre(2147418110, 2147418111));
  EXPECT_EQ(Text(mesh.Flatten({"a", "b"})), "a_b=1073709056,c=2");
  EXPECT_EQ(Text(mesh.Slice({"b", "c"}, 65536)), "b=32768,c=2@65536-131071");
  EXPECT_EQ(Mesh("a=2147483646@1-2147483646").PositionOf(2147483646),
            std::optional<int64_t>(2147483645));
  EXPECT_EQ(Mesh("a=2147483646@1-2147483646").MaxRank(), 2147483646);
  EXPECT_EQ(Mesh("a=2147483647@0-2147483646"), Mesh("a=2147483647"));
}

// A mesh of up to 3 dims on some of the ranks 0..40, in any order.
rc::Gen<DeviceMesh> AnyMesh() {
  return rc::gen::exec([] {
    std::vector<DeviceMesh::Dim> dims;
    int64_t product = 1;
    for (int d = *rc::gen::inRange(1, 4); d > 0; --d) {
      dims.push_back(
          {std::string(1, static_cast<char>('a' + d)), *rc::gen::inRange<int64_t>(1, 4)});
      product *= dims.back().size;
    }
    auto ranks = *rc::gen::unique<Ranks>(product, rc::gen::inRange<int64_t>(0, 41));
    if (*rc::gen::arbitrary<bool>()) ranks.clear();
    return *DeviceMesh::Create(dims, ranks);
  });
}

// A set of dims of `mesh`, ascending.
std::vector<int> AnyDims(const DeviceMesh& mesh) {
  std::vector<int> dims;
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (*rc::gen::arbitrary<bool>()) dims.push_back(d);
  }
  return dims;
}

std::vector<std::string> Names(const DeviceMesh& mesh, const std::vector<int>& dims) {
  std::vector<std::string> names;
  for (int d : dims) names.push_back(mesh.dim(d).name);
  return names;
}

RC_GTEST_PROP(DeviceMeshProperty, PrintsWhatParses, ()) {
  const DeviceMesh mesh = *AnyMesh();
  RC_ASSERT(Mesh(mesh.ToString()) == mesh);
  RC_ASSERT(*DeviceMesh::Create({mesh.dims().begin(), mesh.dims().end()}, mesh.Ranks()) == mesh);
}

RC_GTEST_PROP(DeviceMeshProperty, RanksPositionsAndCoordinatesAgree, ()) {
  const DeviceMesh mesh = *AnyMesh();
  const Ranks ranks = mesh.Ranks();
  RC_ASSERT(static_cast<int64_t>(ranks.size()) == mesh.NumRanks());
  RC_ASSERT(*std::max_element(ranks.begin(), ranks.end()) == mesh.MaxRank());
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    RC_ASSERT(mesh.RankAt(position) == ranks[position]);
    RC_ASSERT(mesh.PositionOf(ranks[position]) == position);
    RC_ASSERT(mesh.PositionAt(mesh.CoordinateAt(position)) == position);
    RC_ASSERT(*mesh.CoordinateOf(ranks[position]) == mesh.CoordinateAt(position));
  }
}

// All members of a large group get the same list, also through copies of the mesh; lists of small
// groups are equal.
TEST(DeviceMeshTest, MembersShareTheListOfTheirGroup) {
  const DeviceMesh mesh = Mesh("a=50,b=40");
  const DeviceMesh copy = mesh;
  for (const std::vector<int>& dims : std::vector<std::vector<int>>{{0}, {1}, {0, 1}}) {
    const RankList list = mesh.GroupListOf(dims, 41);
    EXPECT_EQ(std::vector<int64_t>(list.begin(), list.end()), mesh.GroupOf(dims, 41));
    for (const int64_t member : list) {
      EXPECT_TRUE(copy.GroupListOf(dims, member).IsSameAs(list)) << member;
    }
  }
  EXPECT_FALSE(mesh.GroupListOf({0}, 0).IsSameAs(mesh.GroupListOf({0}, 1)));
  EXPECT_EQ(Mesh("a=2,b=2").GroupListOf({0}, 1), RankList({1, 3}));
  EXPECT_EQ(Mesh("a=3@5,1,7").GroupListOf({0}, 7), RankList({1, 5, 7}));
}

// The definition: the ranks that differ only in the dims, in coordinate order; groups partition the
// mesh.
RC_GTEST_PROP(DeviceMeshProperty, GroupsAreThoseThatDifferOnlyInTheDims, ()) {
  const DeviceMesh mesh = *AnyMesh();
  const std::vector<int> dims = AnyDims(mesh);
  Ranks seen;
  for (const Ranks& group : mesh.Groups(dims)) {
    for (int64_t member : group) {
      RC_ASSERT(mesh.GroupOf(dims, member) == group);
      Ranks expected;
      for (int64_t rank : mesh.Ranks()) {
        bool in_group = true;
        for (int d = 0; d < mesh.NumDims(); ++d) {
          const bool free = std::find(dims.begin(), dims.end(), d) != dims.end();
          in_group &= free || (*mesh.CoordinateOf(rank))[d] == (*mesh.CoordinateOf(member))[d];
        }
        if (in_group) expected.push_back(rank);
      }
      RC_ASSERT(group == expected);
      seen.push_back(member);
    }
  }
  Ranks all = mesh.Ranks();
  std::sort(all.begin(), all.end());
  std::sort(seen.begin(), seen.end());
  RC_ASSERT(seen == all);
}

RC_GTEST_PROP(DeviceMeshProperty, SliceAndFlattenHoldTheGroup, ()) {
  const DeviceMesh mesh = *AnyMesh();
  const std::vector<int> dims = AnyDims(mesh);
  RC_PRE(!dims.empty());
  const int64_t rank = *rc::gen::elementOf(mesh.Ranks());
  RC_ASSERT(mesh.Slice(Names(mesh, dims), rank)->Ranks() == mesh.GroupOf(dims, rank));
  const DeviceMesh flat = *mesh.Flatten(Names(mesh, dims), "flat");
  RC_ASSERT(flat.GroupOf({*flat.FindDim("flat")}, rank) == mesh.GroupOf(dims, rank));
}

}  // namespace
}  // namespace meshift
