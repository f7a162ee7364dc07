// ParsePlacements: reads a list of placements as text, in Meshift's notation or DTensor's.
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
//         | ("S" | "Shard") (dim | "(" dim ")") ["{" int {"," int} "}"] ["[" int "]"]
//         | "At" "(" int {"," int} ")"
//         | ("_S" | "_StridedShard") "(" dim "," ["sf=" | "split_factor="] int ")"
//   dim   = ["dim="] int
//
// An op may have DTensor's name: "band", "bor" and "bxor" are "and", "or" and "xor". Spaces are
// allowed between tokens. The list has one item or more. Mesh and tensor are unknown here: Sharding
// checks dims, sizes, positions and split factors. Internal to Meshift. A pure function; safe for
// concurrent use.
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
  // The position in the shard order, 0 = outermost, if written.
  std::optional<int64_t> place;
  // DTensor's strided shard: the number of pieces into which later mesh dims cut the tensor dim
  // before this one.
  std::optional<int64_t> split_factor = std::nullopt;
};

// INVALID_ARGUMENT quotes the text and the wrong part.
absl::StatusOr<std::vector<PlacementTerm>> ParsePlacements(std::string_view text);

}  // namespace meshift

#endif  // MESHIFT_PLACEMENT_NOTATION_H_
