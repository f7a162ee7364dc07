#include "meshift/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"

namespace meshift {
namespace {

DeviceMesh MeshOf(std::string_view text) { return DeviceMesh::Parse(text).value(); }

Sharding Make(std::string_view tensor, std::string_view mesh, std::string_view placements) {
  return Sharding::Parse(tensor, MeshOf(mesh), placements).value();
}

// The sizes of tensor dim 0 that the ranks hold, in rank order.
std::vector<int64_t> RowsPerRank(const Sharding& sharding) {
  std::vector<int64_t> rows;
  for (const int64_t rank : sharding.mesh().Ranks()) {
    rows.push_back(sharding.LocalBox(rank).size[0]);
  }
  return rows;
}

using Rows = std::vector<int64_t>;

TEST(Sharding, ExampleOfTheHeader) {
  const Sharding s = Make("bf16[10,8]", "dp=2,tp=4", "S(0),S(1)");
  EXPECT_EQ(s.LocalBox(5), (Box{{5, 2}, {5, 2}}));
  EXPECT_EQ(s.CutsOf(0), absl::MakeConstSpan({0}));
  EXPECT_EQ(s.CutsOf(1), absl::MakeConstSpan({1}));
  EXPECT_EQ(s.PlacementsText(), "S(0),S(1)");
  EXPECT_EQ(s.ToString(), "bf16[10,8] on dp=2,tp=4 as S(0),S(1)");
  EXPECT_EQ(s.MaxLocalElements(), 10);
  EXPECT_FALSE(s.HasPartial());
  EXPECT_EQ(Sharding::Parse(s.ToString()).value(), s);
}

// The sizes of torch.chunk.
TEST(Sharding, CutsAreTorchChunks) {
  EXPECT_EQ(RowsPerRank(Make("f32[5]", "a=4", "S(0)")), (Rows{2, 2, 1, 0}));
  EXPECT_EQ(RowsPerRank(Make("f32[2]", "a=4", "S(0)")), (Rows{1, 1, 0, 0}));
  EXPECT_EQ(RowsPerRank(Make("f32[0]", "a=4", "S(0)")), (Rows{0, 0, 0, 0}));
  EXPECT_EQ(RowsPerRank(Make("f32[5]", "a=2,b=2", "S(0),S(0)")), (Rows{2, 1, 1, 1}));
  EXPECT_EQ(RowsPerRank(Make("f32[4]", "a=2,b=3", "S(0),S(0)")), (Rows{1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(RowsPerRank(Make("f32[4]", "a=2,b=3", "S(0)[1],S(0)[0]")), (Rows{1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(RowsPerRank(Make("f32[5]", "a=2,b=3", "S(0)[1],S(0)[0]")), (Rows{1, 1, 1, 1, 1, 0}));

  Rows rows(28, 18);
  rows.insert(rows.end(), {8, 0});
  EXPECT_EQ(RowsPerRank(Make("f32[512]", "a=30", "S(0)")), rows);
}

TEST(Sharding, EmptyPieceLiesAtTheEndOfWhatWasCut) {
  const Sharding flat = Make("f32[5]", "a=4", "S(0)");
  EXPECT_EQ(flat.LocalBox(3), (Box{{5}, {0}}));
  const Sharding nested = Make("f32[4]", "a=2,b=3", "S(0),S(0)");
  EXPECT_EQ(nested.LocalBox(2), (Box{{2}, {0}}));
  EXPECT_EQ(nested.LocalBox(5), (Box{{4}, {0}}));
  EXPECT_EQ(Make("f32[0]", "a=2", "S(0)").LocalBox(1), (Box{{0}, {0}}));
}

TEST(Sharding, ReplicatedAndPartialCoordinatesDoNotMatter) {
  const Sharding s = Make("f32[6,4]", "a=2,b=3,c=2", "P,S(0),R");
  EXPECT_TRUE(s.HasPartial());
  for (int64_t rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(s.LocalBox(rank), (Box{{rank / 2 % 3 * 2, 0}, {2, 4}}));
  }
}

TEST(Sharding, RankZero) {
  const Sharding s = Make("f32[]", "a=2,b=3", "P,R");
  EXPECT_EQ(s.LocalBox(4), Box());
  EXPECT_EQ(s.MaxLocalElements(), 1);
}

TEST(Sharding, RaggedCutIsOutermost) {
  const Sharding s = Make("f32[8,2]", "a=3", "S(0){3,0,5}");
  EXPECT_EQ(s.LocalBox(0), (Box{{0, 0}, {3, 2}}));
  EXPECT_EQ(s.LocalBox(1), (Box{{3, 0}, {0, 2}}));
  EXPECT_EQ(s.LocalBox(2), (Box{{3, 0}, {5, 2}}));
  EXPECT_EQ(s.MaxLocalElements(), 10);

  // By default, too, though its mesh dim comes later. Each of its pieces is cut again.
  const Sharding nested = Make("f32[8]", "a=2,b=3", "S(0),S(0){3,0,5}");
  EXPECT_EQ(nested.CutsOf(0), absl::MakeConstSpan({1, 0}));
  EXPECT_EQ(nested.PlacementsText(), "S(0),S(0){3,0,5}");
  EXPECT_EQ(RowsPerRank(nested), (Rows{2, 0, 3, 1, 0, 2}));
  EXPECT_EQ(nested.LocalBox(4), (Box{{3}, {0}}));
  EXPECT_EQ(nested, Make("f32[8]", "a=2,b=3", "S(0)[1],S(0){3,0,5}[0]"));
}

TEST(Sharding, RaggedCutOfPlainSizesIsPlain) {
  EXPECT_EQ(Make("f32[8]", "a=3", "S(0){3,3,2}"), Make("f32[8]", "a=3", "S(0)"));
  EXPECT_EQ(Make("f32[3]", "a=4", "S(0){1,1,1,0}").PlacementsText(), "S(0)");
  EXPECT_EQ(Make("f32[0]", "a=2", "S(0){0,0}").PlacementsText(), "S(0)");
  EXPECT_EQ(Make("f32[8]", "a=3", "S(0){3,2,3}").PlacementsText(), "S(0){3,2,3}");
  // It keeps its position, which a plain cut must write.
  EXPECT_EQ(Make("f32[8]", "a=2,b=3", "S(0),S(0){3,3,2}").PlacementsText(), "S(0)[1],S(0)[0]");
  EXPECT_EQ(Make("f32[8]", "a=2,b=2,c=1", "S(0)[2],S(0)[1],S(0){8}[0]").PlacementsText(),
            "S(0)[2],S(0)[1],S(0)[0]");
}

TEST(Sharding, AtLeavesOutCoordinates) {
  const DeviceMesh mesh = *DeviceMesh::Parse("a=3,b=2");
  const Sharding sharding = *Sharding::Parse("f32[8,4]", mesh, "At(2,0),S(0)");
  EXPECT_EQ(sharding.PlacementsText(), "At(0,2),S(0)");
  EXPECT_EQ(sharding.LocalBox(0).ToString(), "[0:4, 0:4]");
  EXPECT_EQ(sharding.LocalBox(5).ToString(), "[4:8, 0:4]");
  for (const int64_t rank : {2, 3}) {
    EXPECT_TRUE(sharding.LocalBox(rank).IsEmpty());
    EXPECT_EQ(sharding.LocalBox(rank).size.size(), 2);
    EXPECT_FALSE(sharding.HoldsAt(*mesh.CoordinateOf(rank)));
  }
  EXPECT_EQ(sharding.MaxLocalElements(), 16);
  EXPECT_TRUE(sharding.HasAt());
  // At every coordinate is R.
  EXPECT_EQ(*Sharding::Parse("f32[8,4]", mesh, "At(0,1,2),At(1)"),
            *Sharding::Parse("f32[8,4]", mesh, "R,At(1)"));
  EXPECT_EQ(Sharding::Parse("f32[8]", *DeviceMesh::Parse("a=1"), "At(0)")->PlacementsText(), "R");
  EXPECT_EQ(Sharding::Create(mesh, sharding.tensor(), {Placement::At({}), Placement::Replicate()})
                .status()
                .message(),
            "At() on mesh dim a lists no coordinate");
}

TEST(Sharding, AtOfATensorWithoutDims) {
  const Sharding sharding = *Sharding::Parse("f32[]", *DeviceMesh::Parse("a=2"), "At(1)");
  EXPECT_EQ(sharding.LocalBox(0), (Box{{0}, {0}}));
  EXPECT_EQ(sharding.LocalBox(1), (Box{{}, {}}));
}

TEST(Sharding, RanksInAnotherOrder) {
  const Sharding s = Make("f32[4]", "a=2,b=2@4,5,0-1", "S(0),S(0)");
  EXPECT_EQ(s.LocalBox(4), (Box{{0}, {1}}));
  EXPECT_EQ(s.LocalBox(1), (Box{{3}, {1}}));
  EXPECT_EQ(Sharding::Parse(s.ToString()).value(), s);
}

TEST(Sharding, LargestSizesDoNotOverflow) {
  const Sharding s = Make("u8[9223372036854775807]", "a=2,b=1", "S(0),S(0)");
  EXPECT_EQ(s.LocalBox(0), (Box{{0}, {INT64_C(1) << 62}}));
  EXPECT_EQ(s.LocalBox(1), (Box{{INT64_C(1) << 62}, {(INT64_C(1) << 62) - 1}}));
  const Sharding wide = Make("u8[9223372036854775807]", "a=2147483647", "S(0)");
  EXPECT_EQ(wide.LocalBox(2147483646).offset[0] + wide.LocalBox(2147483646).size[0], INT64_MAX);
}

TEST(Sharding, DefaultOrderMayBeWritten) {
  const Sharding s = Make("f32[8]", "a=2,b=2", "S(0)[0]S(0)[1]");
  EXPECT_EQ(s, Make("f32[8]", "a=2,b=2", "S0S0"));
  EXPECT_EQ(s.PlacementsText(), "S(0),S(0)");
  // The order of mesh dims of size 1 is kept.
  EXPECT_EQ(Make("f32[8]", "a=1,b=1", "S(0)[1],S(0)[0]").PlacementsText(), "S(0)[1],S(0)[0]");
  // Orders of one tensor dim leave another's alone.
  EXPECT_EQ(Make("f32[8,8]", "a=2,b=2,c=2,d=2", "S(0)[1],S(1),S(-2)[0],S(-1)").PlacementsText(),
            "S(0)[1],S(1),S(0)[0],S(1)");
}

// FSDP after tensor parallelism: the later mesh dim cuts first.
TEST(Sharding, StridedShardsAreAnOrder) {
  const auto text = [](const char* mesh, const char* placements) {
    return Make("torch.float32[64,64]", mesh, placements).PlacementsText();
  };
  EXPECT_EQ(text("dp=4,tp=2", "_S(0, 2)S(0)"), "S(0)[1],S(0)[0]");
  EXPECT_EQ(text("4x2", "(_StridedShard(dim=0, sf=2), Shard(dim=0))"), "S(0)[1],S(0)[0]");
  EXPECT_EQ(text("a=2,b=3,c=4", "_S(0,12),S(0),S(0)"), "S(0)[2],S(0)[0],S(0)[1]");
  EXPECT_EQ(text("a=2,b=3,c=4", "_S(0,4),_S(0,4),S(0)"), "S(0)[1],S(0)[2],S(0)[0]");
  EXPECT_EQ(text("a=2,b=3,c=4", "_S(-1,4),S(0),S(1)"), "S(1)[1],S(0),S(1)[0]");
  EXPECT_EQ(text("a=2,b=3", "_S(0,1),S(1)"), "S(0),S(1)");
  const auto message = [](const char* mesh, const char* placements) {
    const auto sharding = Sharding::Parse("f32[64]", DeviceMesh::Parse(mesh).value(), placements);
    return sharding.ok() ? "" : std::string(sharding.status().message());
  };
  EXPECT_EQ(message("a=2,b=4", "_S(0,2),S(0)"),
            "_S(0, 2) on mesh dim a: split factor 2 is not the number of pieces into which later "
            "mesh dims cut tensor dim 0");
  EXPECT_NE(message("a=2,b=4", "_S(0,0),S(0)"), "");
  EXPECT_NE(message("a=2,b=4", "_S(0,-4),S(0)"), "");
  EXPECT_EQ(message("a=2,b=4", "_S(0,4)"),
            "the number of placements is 1; expected 2, one for each dim of mesh a=2,b=4");
  EXPECT_EQ(
      message("a=2,b=4", "_S(0,4),S(0)[0]"),
      "S(0) on mesh dim b: a position in the shard order cannot be combined with strided shards");
  EXPECT_EQ(message("a=2,b=4", "_S(0,4),S(0){16,16,16,16}"),
            "S(0){16,16,16,16} on mesh dim b: a ragged cut cannot be combined with strided shards");
}

TEST(Sharding, WithPlacements) {
  const Sharding s = Make("f32[8]", "a=2,b=2", "P,P");
  EXPECT_EQ(s.WithPlacements("R,S(0)").value(), Make("f32[8]", "a=2,b=2", "R,S(0)"));
  EXPECT_FALSE(s.WithPlacements("R").ok());
}

TEST(Sharding, ComparesAndHashes) {
  const std::vector<Sharding> different = {
      Make("f32[8]", "a=2,b=2", "S(0),S(0)"),   Make("f32[8]", "a=2,b=2", "S(0)[1],S(0)[0]"),
      Make("f32[8]", "a=2,b=2", "S(0),R"),      Make("f32[9]", "a=2,b=2", "S(0),R"),
      Make("f64[8]", "a=2,b=2", "S(0),R"),      Make("f32[8]", "a=2,c=2", "S(0),R"),
      Make("f32[8]", "a=2,b=2", "S(0){3,5},R"), Make("f32[8]", "a=2,b=2", "P,R"),
  };
  for (size_t i = 0; i < different.size(); ++i) {
    for (size_t j = 0; j < different.size(); ++j) {
      EXPECT_EQ(different[i] == different[j], i == j) << i << " " << j;
    }
  }
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(different));
}

TEST(Sharding, Errors) {
  const struct {
    const char* tensor;
    const char* mesh;
    const char* placements;
    const char* message;
  } kCases[] = {
      {"f32[8]", "a=2,b=3", "R",
       "the number of placements is 1; expected 2, one for each dim of mesh a=2,b=3"},
      {"f32[8]", "a=2", "R,R",
       "the number of placements is 2; expected 1, one for each dim of mesh a=2"},
      {"f32[8,8]", "a=2", "S(2)", "Shard(2) is out of range for a rank-2 tensor"},
      {"f32[8,8]", "a=2", "S(-3)", "Shard(-3) is out of range for a rank-2 tensor"},
      {"f32[]", "a=2", "S(0)", "Shard(0) is out of range for a rank-0 tensor"},
      {"f32[8]", "a=2", "S(1)[0]", "Shard(1) is out of range for a rank-1 tensor"},
      {"f32[8", "a=2", "R", "expected \"]\""},
      {"f32[8]", "a=2", "Q",
       "placements \"Q\": expected R, S(dim), P, P(op) or At(coordinates) at \"Q\""},
      // Orders.
      {"f32[8]", "a=2,b=2", "S(0)[1],S(0)",
       "1 of the 2 mesh dims that cut tensor dim 0 have a position in the shard order; all or none "
       "must"},
      {"f32[8]", "a=2,b=1", "S(0)[0],S(0)", "1 of the 2 mesh dims that cut tensor dim 0"},
      {"f32[8]", "a=2,b=2", "S(0)[1],S(0)[1]",
       "S(0)[1]: the positions in the shard order of tensor dim 0 must be 0 to 1, each once"},
      {"f32[8]", "a=2,b=2", "S(0)[0],S(-1)[2]",
       "S(-1)[2]: the positions in the shard order of tensor dim 0 must be 0 to 1, each once"},
      {"f32[8]", "a=2", "S(0)[-1]", "S(0)[-1]: the positions in the shard order"},
      {"f32[8]", "a=2", "S(0)[1]", "must be 0 to 0, each once"},
      // Ragged cuts.
      {"f32[8]", "a=3", "S(0){3,5}", "S(0){3,5} has 2 sizes for the 3 coordinates of mesh dim a"},
      {"f32[8]", "a=3", "S(0){9,-1,0}", "S(0){9,-1,0}: size -1 is negative"},
      {"f32[8]", "a=3", "S(-1){3,0,4}",
       "S(0){3,0,4}: the sizes add up to 7, but tensor dim 0 has size 8"},
      {"f32[8]", "a=2", "S(0){9223372036854775807,9}", "add up to 9223372036854775807"},
      {"f32[8]", "a=2,b=2", "S(0){4,4},S(0){4,4}",
       "tensor dim 0 has two ragged cuts; at most one is allowed"},
      {"f32[100]", "a=2,b=2", "S(0){70,30},S(0){40,30}",
       "tensor dim 0 has two ragged cuts; at most one is allowed"},
      {"f32[8]", "a=2,b=2", "S(0){4,4}[1],S(0)[0]",
       "S(0){4,4} is not the outermost cut of tensor dim 0; a ragged cut must be"},
      // Partials.
      {"f32[8]", "a=2,b=2", "P,P(max)",
       "Partial(sum) and Partial(max) in one tensor: only sum and avg may mix"},
      {"i32[8]", "a=2,b=2", "P(and),P(or)", "Partial(and) and Partial(or) in one tensor"},
      {"bool[8]", "a=2", "P",
       "sum of bool is refused: bool allows only 'and', 'or', 'xor', 'min' and 'max'"},
      {"bool[8]", "a=1", "P(avg)", "avg of bool is refused"},
      // At.
      {"f32[8]", "a=4", "At(4)", "At(4): coordinate 4 is out of range for mesh dim a of size 4"},
      {"f32[8]", "a=4", "At(0,-1)", "At(-1,0): coordinate -1 is out of range"},
      {"f32[8]", "a=4", "At(2,1,2)", "At(1,2,2): coordinate 2 is listed twice"},
      {"f32[8]", "a=4", "At()", "expected an integer at \")\""},
      {"f32[8]", "a=4", "At", "expected \"(\" at the end"},
      {"c64[8]", "a=2", "P(min)", "min of c64 is refused: complex numbers have no order"},
      {"f4e2m1[8]", "a=2", "P", "sum of f4e2m1 is refused"},
      // Cuts inside a byte.
      {"f4e2m1[2,6]", "a=2", "S(1)", "f4e2m1[2,6]: mesh dim a cuts tensor dim 1 inside a byte"},
      {"f4e2m1[8]", "a=2,b=4", "S(0),S(0)",
       "f4e2m1[8]: mesh dim b cuts tensor dim 0 inside a byte"},
      {"f4e2m1[6]", "a=2", "S(0){1,5}", "mesh dim a cuts tensor dim 0 inside a byte"},
      {"f4e2m1[2,5]", "a=2", "S(0)", "tensor dim 1 is not a whole number of bytes"},
      {"f4e2m1[]", "a=2", "R", "f4e2m1[] is not a whole number of bytes"},
  };
  for (const auto& [tensor, mesh, placements, message] : kCases) {
    const absl::Status status = Sharding::Parse(tensor, MeshOf(mesh), placements).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << placements;
    EXPECT_NE(Message(status).find(message), std::string::npos) << placements << ": " << status;
  }
}

TEST(Sharding, ErrorsOfCreate) {
  const DeviceMesh mesh = MeshOf("a=2,b=2");
  const TensorType tensor{DType::kF32, {8, 8}};
  const std::vector<Placement> both = {Placement::Shard(0), Placement::Shard(-2)};
  const auto error = [&](std::vector<Cuts> cuts) {
    return Message(Sharding::Create(mesh, tensor, both, std::move(cuts)).status());
  };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({{1, 0}, {}}), "");
  EXPECT_EQ(error({{1, 0}}),
            "the number of shard orders is 1; expected 2, one for each tensor dim");
  EXPECT_EQ(error({{1}, {0}}), "[1] is not an order of the mesh dims [0,1] that cut tensor dim 0");
  EXPECT_EQ(error({{1, 1}, {}}),
            "[1,1] is not an order of the mesh dims [0,1] that cut tensor dim 0");
  EXPECT_EQ(error({{0, 1}, {7}}), "[7] is not an order of the mesh dims [] that cut tensor dim 1");
  EXPECT_EQ(Message(Sharding::Create(mesh, {DType::kF32, {-1}}, both).status()),
            "f32[-1]: size -1 is negative");
}

TEST(Sharding, ModifiedByWhatIsTyped) {
  const Sharding s = Make("f32[8,6]", "a=2,b=3", "S(0)[1],S(0)[0]");
  EXPECT_EQ(s.WithPlacements({Placement::Replicate(), Placement::Shard(1)})->ToString(),
            "f32[8,6] on a=2,b=3 as R,S(1)");
  EXPECT_EQ(s.WithPlacements({Placement::Shard(0), Placement::Shard(0)}, {{1, 0}, {}})->ToString(),
            s.ToString());
  EXPECT_EQ(Message(s.WithPlacements({Placement::Replicate()}).status()),
            Message(s.WithPlacements("R").status()));
  EXPECT_EQ(s.WithShape({5, 6})->ToString(), "f32[5,6] on a=2,b=3 as S(0)[1],S(0)[0]");
  EXPECT_EQ(s.WithShape({9})->ToString(), "f32[9] on a=2,b=3 as S(0)[1],S(0)[0]");
  EXPECT_FALSE(s.WithShape({}).ok());
  EXPECT_FALSE(s.WithShape({-1, 6}).ok());
  const Sharding ragged = Make("f32[8]", "a=2", "S(0){3,5}");
  EXPECT_TRUE(ragged.WithShape({8, 2}).ok());
  EXPECT_FALSE(ragged.WithShape({9}).ok());
  EXPECT_EQ(s.OnMesh(MeshOf("x=4,y=2"))->ToString(), "f32[8,6] on x=4,y=2 as S(0)[1],S(0)[0]");
  EXPECT_FALSE(s.OnMesh(MeshOf("x=4")).ok());
}

TEST(Sharding, RanksOutsideTheMeshHoldNothing) {
  const Sharding s = Make("f32[8,6]", "a=2@3,5", "S(0)");
  EXPECT_EQ(s.LocalBox(5), (Box{{4, 0}, {4, 6}}));
  for (const int64_t rank : {-1, 0, 4, 6}) {
    EXPECT_EQ(s.LocalBox(rank), (Box{{0}, {0}}));
    EXPECT_TRUE(Make("f32[]", "a=2@3,5", "R").LocalBox(rank).IsEmpty());
  }
}

TEST(Sharding, ErrorsOfTheWholeText) {
  for (const char* text : {"", "f32[8]", "f32[8] on a=2", "f32[8] as R on a=2"}) {
    EXPECT_NE(Message(Sharding::Parse(text).status()).find("\"TENSOR on MESH as PLACEMENTS\""),
              std::string::npos)
        << text;
  }
}

TEST(Sharding, SumAndAvgMix) {
  EXPECT_EQ(Make("f32[8]", "a=2,b=2,c=2", "P,P(avg),P(sum)").PlacementsText(), "P,P(avg),P");
}

}  // namespace
}  // namespace meshift
