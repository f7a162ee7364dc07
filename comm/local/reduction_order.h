// The order in which collectives of the in-process engine combine contributions. Tests set it, to
// reproduce on one machine how a topology changes the bits of a sum. Exact reductions ignore it.
// Internal to comm/local; programs use LocalWorldOptions and LocalWorld::SetReductionOrder.
#ifndef MESHIFT_COMM_LOCAL_REDUCTION_ORDER_H_
#define MESHIFT_COMM_LOCAL_REDUCTION_ORDER_H_

#include <cstdint>

#include "meshift/local_world.h"

namespace meshift {

struct ReductionSettings {
  ReductionOrder order = ReductionOrder::kRanks;
  int64_t domain_size = 8;  // kTopology: ranks r with equal r / domain_size share a domain; > 0
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_REDUCTION_ORDER_H_
