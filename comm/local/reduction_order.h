// How the in-process engine orders the additions of a reduction, so that a test sees on one machine
// what topologies do to bits.
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
