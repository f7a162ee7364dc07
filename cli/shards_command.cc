#include "cli/shards_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "cli/io.h"
#include "cli/problem.h"
#include "cli/render_shards.h"
#include "cli/text.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"
#include "meshift/status.h"

namespace meshift::cli {
namespace {

// A table of this many ranks takes a few seconds.
constexpr int64_t kMaxListedRanks = int64_t{1} << 20;

absl::StatusOr<Sharding> ParseSharding(const ShardsFlags& flags) {
  MESHIFT_ASSIGN_OR_RETURN(const std::string mesh_text, Require(flags.mesh, "--mesh"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string tensor_text, Require(flags.tensor, "--tensor"));
  MESHIFT_ASSIGN_OR_RETURN(const std::string placements, Require(flags.placements, "--placements"));
  const absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(mesh_text);
  if (!mesh.ok()) return Annotate(mesh.status(), "--mesh");
  const absl::StatusOr<TensorType> tensor = TensorType::Parse(tensor_text);
  if (!tensor.ok()) {
    return Annotate(tensor.status(), fmt::format("--tensor '{}'", tensor_text));
  }
  absl::StatusOr<Sharding> sharding = Sharding::Parse(*tensor, *mesh, placements);
  if (!sharding.ok()) return Annotate(sharding.status(), "--placements");
  return sharding;
}

}  // namespace

int ShardsCommand(const ShardsFlags& flags, Io& io) {
  const absl::StatusOr<Sharding> sharding = ParseSharding(flags);
  if (!sharding.ok()) return Fail(io, sharding.status());
  const int64_t ranks = sharding->mesh().NumRanks();
  if (flags.skip >= ranks) {
    return Fail(io, InvalidArgument("--skip: {} leaves none of the {}", flags.skip,
                                    CountText(ranks, "rank")));
  }
  const int64_t count = std::min(flags.count.value_or(ranks), ranks - flags.skip);
  if (count > kMaxListedRanks) {
    return Fail(io, InvalidArgument("cannot list {}; at most {}: choose them by --skip and --count",
                                    CountText(count, "rank"), kMaxListedRanks));
  }
  io.out << RenderShards(*sharding, flags.skip, count);
  return kExitOk;
}

}  // namespace meshift::cli
