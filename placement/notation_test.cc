#include "placement/notation.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"

namespace meshift {
namespace {

// `text` in our notation, with all written positions.
std::string Canonical(std::string_view text) {
  const auto terms = ParsePlacements(text);
  if (!terms.ok()) return terms.status().ToString();
  std::string canonical;
  for (const PlacementTerm& term : *terms) {
    if (!canonical.empty()) canonical += ",";
    canonical += term.placement.ToString();
    if (term.place) canonical += "[" + std::to_string(*term.place) + "]";
    if (term.split_factor) canonical += "/" + std::to_string(*term.split_factor);
  }
  return canonical;
}

TEST(Notation, Spellings) {
  const struct {
    const char* text;
    const char* canonical;
  } kCases[] = {
      {"R", "R"},
      {"P,S(0)[1],R", "P,S(0)[1],R"},
      {" P , S ( 0 ) [ 1 ] ,\tR ", "P,S(0)[1],R"},
      {"S(0){3,0,5}", "S(0){3,0,5}"},
      {"S(0){ 3, 0, 5 }[0],S(0)[1]", "S(0){3,0,5}[0],S(0)[1]"},
      {"P(max)", "P(max)"},
      {"P(sum),P()", "P,P"},
      // DTensor: as printed, as written in Python, as shortened in its debug output.
      {"(Partial, Shard(0), Replicate)", "P,S(0),R"},
      {"(Replicate(), Shard(dim=1), Partial(avg))", "R,S(1),P(avg)"},
      {"[Shard(dim = -1), Partial(sum)]", "S(-1),P"},
      {"(Shard(0),)", "S(0)"},
      {"Partial()", "P"},
      {"S(0)[0]S(0)[1]R", "S(0)[0],S(0)[1],R"},
      {"S(1)[1]S(1)[0]R", "S(1)[1],S(1)[0],R"},
      {"S(0)R", "S(0),R"},
      {"S0", "S(0)"},
      {"S0,S12,S-1", "S(0),S(12),S(-1)"},
      {"RRPS0S1[0]", "R,R,P,S(0),S(1)[0]"},
      {"PP(min)R", "P,P(min),R"},
      {"ReplicatePartialShard(2)", "R,P,S(2)"},
  };
  for (const auto& [text, canonical] : kCases) {
    EXPECT_EQ(Canonical(text), canonical) << text;
    EXPECT_EQ(Canonical(canonical), canonical);
  }
}

TEST(Notation, StridedShards) {
  EXPECT_EQ(Canonical("_S(0, 2)S(0)"), "S(0)/2,S(0)");
  EXPECT_EQ(Canonical("_S(-1,2),R"), "S(-1)/2,R");
  EXPECT_EQ(Canonical("(_StridedShard(dim=0, sf=2), Shard(dim=0))"), "S(0)/2,S(0)");
  EXPECT_EQ(Canonical("[_StridedShard(dim=1, split_factor=4), Replicate()]"), "S(1)/4,R");
  EXPECT_EQ(Canonical("Partial(band),P(bor),P(bxor)"), "P(and),P(or),P(xor)");
  for (const char* text : {"_S", "_S(0)", "_S(0,)", "_S(0, 2", "_S0", "_S(0, 2)[1]"}) {
    EXPECT_FALSE(ParsePlacements(text).ok()) << text;
  }
}

TEST(Notation, At) {
  EXPECT_EQ(Canonical("At(3)"), "At(3)");
  EXPECT_EQ(Canonical("At( 3 , 7 ),R"), "At(3,7),R");
  EXPECT_EQ(Canonical("(At(0), S(1),)"), "At(0),S(1)");
}

TEST(Notation, Errors) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"", "placements \"\": expected R, S(dim), P, P(op) or At(coordinates) at the end"},
      {"()", "expected R, S(dim), P, P(op) or At(coordinates) at \")\""},
      {"R,", "expected R, S(dim), P, P(op) or At(coordinates) at the end"},
      {",R", "expected R, S(dim), P, P(op) or At(coordinates) at \",R\""},
      {"R,,R", "expected R, S(dim), P, P(op) or At(coordinates) at \",R\""},
      {"(R", "expected R, S(dim), P, P(op) or At(coordinates) at the end"},
      {"(R]", "expected R, S(dim), P, P(op) or At(coordinates) at \"]\""},
      {"R)", "expected R, S(dim), P, P(op) or At(coordinates) at \")\""},
      {"(R)R", "expected the end at \"R\""},
      {"r", "expected R, S(dim), P, P(op) or At(coordinates) at \"r\""},
      {"Repl", "expected R, S(dim), P, P(op) or At(coordinates) at \"epl\""},
      {"_S(0)", "expected \",\" at \")\""},
      {"_S(0, x)", "expected an integer at \"x)\""},
      {"R(0)", "expected \")\" at \"0)\""},
      {"S", "expected an integer at the end"},
      {"S()", "expected an integer at \")\""},
      {"S(dim 0)", "expected \"=\" at \"0)\""},
      {"S(0", "expected \")\" at the end"},
      {"S(0, 2)", "expected \")\" at \", 2)\""},
      {"S(3000000000)", "Shard(3000000000) is out of range for any tensor"},
      {"S(99999999999999999999)", "99999999999999999999 does not fit 64 bits"},
      {"S(0){}", "expected an integer at \"}\""},
      {"S(0){1,2", "expected \"}\" at the end"},
      {"S(0)[]", "expected an integer at \"]\""},
      {"S(0)[1}", "expected \"]\" at \"}\""},
      {"S(0)[1]{2}", "expected R, S(dim), P, P(op) or At(coordinates) at \"{2}\""},
      {"P(mean)", "unknown reduce op 'mean'"},
      {"P(max", "expected \")\" at the end"},
      {"P[0]", "expected R, S(dim), P, P(op) or At(coordinates) at \"[0]\""},
  };
  for (const auto& [text, message] : kCases) {
    const absl::Status status = ParsePlacements(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(Message(status).find(message), std::string::npos) << text << ": " << status;
  }
}

}  // namespace
}  // namespace meshift
