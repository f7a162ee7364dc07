// The order of additions in reductions of the in-process engine. Tests use it to reproduce on one
// machine how a topology changes the bits of a sum.
#ifndef MESHIFT_COMM_LOCAL_REDUCTION_ORDER_H_
#define MESHIFT_COMM_LOCAL_REDUCTION_ORDER_H_

#include <cstdint>

#include "meshift/local_world.h"

namespace meshift {

struct ReductionSettings {
  ReductionOrder order = ReductionOrder::kRanks;
  int64_t domain_size = 8;  // kTopology: ranks r with equal r / domain_size share a domain
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_REDUCTION_ORDER_H_
