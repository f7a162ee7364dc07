// The kinds of calls of a Communicator (meshift/communicator.h), for engines that queue them.
//
//   Name(CollectiveKind::kReduceScatter);   // "reduce_scatter"; "?" for an unknown kind
//
// AllGatherV, ReduceScatterV and calls on symmetric memory are kAllGather and kReduceScatter.
#ifndef MESHIFT_COMM_ENGINE_COLLECTIVE_KIND_H_
#define MESHIFT_COMM_ENGINE_COLLECTIVE_KIND_H_

#include <cstdint>
#include <string_view>

namespace meshift {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kSendRecv,
  kBroadcast,
  kBarrier,
};

constexpr std::string_view Name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kSendRecv:
      return "send_recv";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

}  // namespace meshift

#endif  // MESHIFT_COMM_ENGINE_COLLECTIVE_KIND_H_
