// How the in-process engine orders the additions of a reduction, so that a test sees on one machine
// what topologies do to bits.
#ifndef MESHIFT_COMM_LOCAL_REDUCTION_ORDER_H_
#define MESHIFT_COMM_LOCAL_REDUCTION_ORDER_H_

#include <cstdint>

namespace meshift {

// In which order a collective combines contributions of order-dependent reductions (sums, averages
// and products of floats).
enum class ReductionOrder : uint8_t {
  kRanks,        // ascending ranks
  kTopology,     // inside each domain of ReductionSettings::domain_size first, each domain's result
                 // rounded to the wire dtype, then across domains
  kAdversarial,  // ascending ranks, then moved by a few units in the last place, a distance of its
                 // own for each group of the partition: only values from one group have equal bits
};

struct ReductionSettings {
  ReductionOrder order = ReductionOrder::kRanks;
  int64_t domain_size = 8;  // kTopology: ranks r with equal r / domain_size share a domain
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_REDUCTION_ORDER_H_
