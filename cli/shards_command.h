// `meshift shards`: shows the part of a tensor that each rank holds (cli/render_shards.h).
//
//   meshift shards --mesh a=2,b=2 --tensor 'f32[5,4]' --placements 'S(0),S(1)'
//   meshift shards --mesh a=4000,b=8000 ... --skip 8000 --count 8   # the first eight of a=1
//
// It refuses to list more than 2^20 ranks, and a `skip` that leaves none (exit code 2).
#ifndef MESHIFT_CLI_SHARDS_COMMAND_H_
#define MESHIFT_CLI_SHARDS_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "cli/io.h"

namespace meshift::cli {

struct ShardsFlags {
  std::optional<std::string> mesh;
  std::optional<std::string> tensor;
  std::optional<std::string> placements;
  int64_t skip = 0;              // ranks to leave out, in the order of the mesh; at least 0
  std::optional<int64_t> count;  // ranks to list after those, at least 1; none: all remaining
};

// Returns the exit code (cli/io.h).
int ShardsCommand(const ShardsFlags& flags, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_SHARDS_COMMAND_H_
