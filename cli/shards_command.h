// `meshift shards`: who holds what of a tensor.
//
//   meshift shards --mesh a=2,b=2 --tensor 'f32[5,4]' --placements 'S(0),S(1)'
#ifndef MESHIFT_CLI_SHARDS_COMMAND_H_
#define MESHIFT_CLI_SHARDS_COMMAND_H_

#include <optional>
#include <string>

#include "cli/io.h"

namespace meshift::cli {

struct ShardsFlags {
  std::optional<std::string> mesh;
  std::optional<std::string> tensor;
  std::optional<std::string> placements;
};

int ShardsCommand(const ShardsFlags& flags, Io& io);

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_SHARDS_COMMAND_H_
