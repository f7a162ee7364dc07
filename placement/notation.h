// Reads placement notation, ours and DTensor's.
//
//   ParsePlacements("S(0)[1],S(0)[0],P(max)");
//   ParsePlacements("(Shard(dim=0), Replicate(), Partial(max))");
//   ParsePlacements("S0R");
//   ParsePlacements("(_StridedShard(dim=0, sf=2), Shard(dim=0))");
//
//   list  = items | "(" items [","] ")" | "[" items [","] "]"
//   items = item { [","] item }
//   item  = ("R" | "Replicate") ["()"]
//         | ("P" | "Partial") ["(" [op] ")"]
//         | ("S" | "Shard") (int | "(" ["dim="] int ")") ["{" int {"," int} "}"] ["[" place "]"]
//         | ("_S" | "_StridedShard") "(" ["dim="] int "," ["sf=" | "split_factor="] int ")"
//
// An op may have DTensor's name: "band" is "and".
//
// Knows neither mesh nor tensor: whether the dims exist is for Sharding to say.
#ifndef MESHIFT_PLACEMENT_NOTATION_H_
#define MESHIFT_PLACEMENT_NOTATION_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/placement.h"

namespace meshift {

struct PlacementTerm {
  Placement placement;
  // The place in the cut order, 0 = outermost, where one is written.
  std::optional<int64_t> place;
  // DTensor's strided shard: into how many pieces later mesh dims have cut the tensor dim before.
  std::optional<int64_t> split_factor = std::nullopt;
};

// INVALID_ARGUMENT quotes the text and where it goes wrong.
absl::StatusOr<std::vector<PlacementTerm>> ParsePlacements(std::string_view text);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_NOTATION_H_
