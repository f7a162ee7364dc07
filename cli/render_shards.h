// Renders the part of a tensor that each rank holds: a grid for one and two dims if it is at most
// 160 characters wide, and a table.
//
//   io.out << RenderShards(sharding, /*first=*/0, sharding.mesh().NumRanks());
//
//   # meshift shards: f32[5,4] on a=2,b=2 (4 ranks) as S(0),S(1)
//           [0:2]   [2:4]
//         +-------+-------+
//   [0:3] | 0     | 1     |
//   ...
//
// Prints nothing and cannot fail. The table has a line per rank, so the caller bounds `count`.
#ifndef MESHIFT_CLI_RENDER_SHARDS_H_
#define MESHIFT_CLI_RENDER_SHARDS_H_

#include <cstdint>
#include <string>

#include "meshift/sharding.h"

namespace meshift::cli {

// Preamble, grid (if there is one) and table for the ranks at `count` positions of the mesh from
// `first` on. REQUIRES: 0 <= first, 1 <= count, first + count <= number of ranks.
std::string RenderShards(const Sharding& sharding, int64_t first, int64_t count);

// Only the grid, and a line with the ranks whose boxes are empty, if there are any. Rows and
// columns are the intervals of the tensor dims that listed ranks hold; a cell lists the ranks that
// hold it, of those at `count` positions from `first` on. A long list is cut short. If all these
// boxes are empty, there is only the line. Empty for tensors of more than two dims or none, and if
// the grid would be wider than `max_width` characters. REQUIRES as above.
std::string RenderGrid(const Sharding& sharding, int64_t first, int64_t count, int max_width);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_RENDER_SHARDS_H_
