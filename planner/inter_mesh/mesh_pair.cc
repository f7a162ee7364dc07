#include "planner/inter_mesh/mesh_pair.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/checked_math.h"
#include "meshift/dtype.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/cost.h"
#include "planner/plan/workspace.h"

namespace meshift {
namespace {

constexpr int64_t kMaxReceivers = 16;  // whose messages a lower bound counts

// Whether two ranks, one of each mesh, are in one domain of `level`.
bool SharesDomain(const DeviceMesh& from, const DeviceMesh& to, const Topology& topology,
                  int level) {
  absl::flat_hash_set<int64_t> domains;
  for (const int64_t rank : from.Ranks()) domains.insert(topology.DomainOf(level, rank));
  const std::vector<int64_t> ranks = to.Ranks();
  return std::any_of(ranks.begin(), ranks.end(), [&](int64_t rank) {
    return domains.contains(topology.DomainOf(level, rank));
  });
}

}  // namespace

MeshPair::MeshPair(const DeviceMesh& from, const DeviceMesh& to, const Topology& topology)
    : topology_(topology), from_size_(from.NumRanks()), to_size_(to.NumRanks()) {
  for (int64_t position = 0; position < to_size_; ++position) {
    const std::optional<Coordinate> coordinate = from.CoordinateOf(to.RankAt(position));
    if (coordinate) shared_.push_back({*coordinate, to.CoordinateAt(position)});
  }
  union_size_ = from_size_ + to_size_ - static_cast<int64_t>(shared_.size());
  while (level_ + 1 < topology.NumLevels() && !SharesDomain(from, to, topology, level_)) ++level_;
}

MeshPair::MissingElements MeshPair::CountMissing(const Sharding& before,
                                                 const Sharding& after) const {
  // Every element of the target is on one rank for each replica.
  MissingElements missing;
  const int64_t contributions = ContributionsOf(before);
  missing.total = static_cast<__int128>(NumElements(after.shape())) * contributions;
  for (int d = 0; d < after.mesh().NumDims(); ++d) {
    const Placement& p = after.placement(d);
    if (!p.IsShard()) missing.total *= p.IsAt() ? p.coordinates().size() : after.mesh().dim(d).size;
  }
  for (const Shared& rank : shared_) {
    const Box box = after.BoxAt(rank.to);
    const int64_t wanted = SaturatingMul(contributions, box.NumElements());
    const Box own = before.BoxAt(rank.from);
    const int64_t held = own.IsEmpty() || box.IsEmpty() ? 0 : CommonElements(own, box);
    missing.total -= held;
    missing.worst = std::max(missing.worst, wanted - held);
  }
  if (disjoint()) missing.worst = SaturatingMul(contributions, after.MaxLocalElements());
  return missing;
}

int64_t MeshPair::LeastNs(const Sharding& before, const DistinctBoxes& boxes,
                          const Sharding& after) const {
  const MissingElements missing = CountMissing(before, after);
  if (missing.total == 0) {
    return CopyNs(topology_, SaturatingBytes(before.dtype(), after.MaxLocalElements()));
  }
  // Some rank sends at least the average, and some rank receives at least the average.
  const __int128 average = missing.total / std::min(from_size_, to_size_);
  const __int128 most = std::max(average, static_cast<__int128>(missing.worst));
  const int64_t elements = most > INT64_MAX ? INT64_MAX : static_cast<int64_t>(most);
  // Messages of the first receivers: with ceil chunks the first boxes are the largest.
  const int64_t contributions = ContributionsOf(before);
  int64_t messages = 1;
  for (int64_t position = 0; position < std::min(to_size_, kMaxReceivers); ++position) {
    const Box box = after.BoxAt(after.mesh().CoordinateAt(position));
    messages = std::max(messages, SaturatingMul(contributions, boxes.CountIn(box)) - 1);
  }
  BytesByLevel across(level_ + 1, 0);
  across[level_] = SaturatingBytes(before.dtype(), elements);
  const int64_t latency_ns = topology_.level(level_).entry_ns + LeastHopNs(topology_, 0);
  int64_t ns = SaturatingAdd(MessageTimes(topology_, latency_ns).Of(across).Ns(),
                             SaturatingMul(topology_.constants().message_latency_ns, messages));
  if (contributions > 1) {
    const int64_t all = SaturatingMul(contributions, after.MaxLocalElements());
    ns = SaturatingAdd(ns, CopyNs(topology_, SaturatingBytes(before.dtype(), all)));
  }
  return ns;
}

}  // namespace meshift
