#include "planner/cost/cross_cost.h"

#include "base/checked_math.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "planner/cost/group_shape.h"
#include "planner/plan/workspace.h"

namespace meshift {
namespace {

// Hops of one message to every rank along a tree, over the levels that messages cross.
int64_t LatencyNs(const Crossing& crossing, const Topology& topology) {
  int levels = 1;
  while (levels < topology.NumLevels() && crossing.MostAcross(levels) > 0) ++levels;
  return TreeNs(topology, crossing.ranks(), levels);
}

}  // namespace

Traffic MeasureCrossing(const Crossing& crossing, const Sharding& before, const Sharding& after,
                        const Topology& topology) {
  Traffic traffic;
  const auto bytes = [&](int64_t elements) { return SaturatingBytes(before.dtype(), elements); };
  if (crossing.messages().empty()) {
    traffic.TakeCopy(CopyNs(topology, bytes(after.MaxLocalElements())));
    return traffic;
  }
  traffic.sizes = StepSizes::kExact;
  traffic.bytes_sent = bytes(crossing.most_sent());
  traffic.bytes_received = bytes(crossing.most_received());
  traffic.bytes_kept = bytes(crossing.most_kept());
  traffic.messages = crossing.most_messages();
  traffic.send_packs = crossing.send_packs();
  traffic.receive_packs = crossing.receive_packs();
  BytesByLevel across;
  int64_t entry_ns = 0;
  for (int level = 0; level < topology.NumLevels(); ++level) {
    across.push_back(bytes(crossing.MostAcross(level)));
    if (level == 0 || across.back() > 0) entry_ns += topology.level(level).entry_ns;
  }
  const int64_t latency_ns = SaturatingAdd(entry_ns, LatencyNs(crossing, topology));
  traffic.Take(MessageTimes(topology, latency_ns).Of(across));
  traffic.TakeMessages(topology.constants().message_latency_ns * traffic.messages);
  traffic.TakePacks(topology);
  if (crossing.contributions() > 1) {
    // All contributions are kept in one piece of the workspace, which begins at a multiple of 16
    // bytes.
    const int64_t all = SaturatingMul(crossing.contributions(), bytes(after.MaxLocalElements()));
    traffic.TakeCopy(CopyNs(topology, all));
    traffic.receive_pack_bytes = SaturatingAdd(traffic.receive_pack_bytes, AlignedPiece(all));
  }
  return traffic;
}

}  // namespace meshift
