// Computes NCCL's results by the rules of its documentation and sources: sums in the tensor's own
// type at each hop (fp8 through half, saturated), in the order of a ring that starts at another
// rank for each part of an all-reduce and for each destination of a reduce-scatter; all ranks get
// the same bits. Or an all-reduce by trees: each tree adds a part of the elements in its own order,
// so only a single tree adds all elements in the same order.
//
//   std::vector<Payload> results = RunCollective(description, inputs, ring);
#ifndef MESHIFT_TESTING_FAKE_GPU_REDUCTION_H_
#define MESHIFT_TESTING_FAKE_GPU_REDUCTION_H_

#include <cstdint>
#include <vector>

#include "testing/fake_gpu/message.h"

namespace meshift::fake {

// Bytes of an element; 0: unknown type.
uint64_t ElementBytes(int32_t dtype);

// The bytes that each rank sends and receives; 0 if it has no buffer in this role.
uint64_t InputBytes(const OpDescription& op, int ranks, int rank);
uint64_t OutputBytes(const OpDescription& op, int ranks, int rank);

// The results by rank; null for ranks without a result. `ring[i]` is the rank at place i of the
// ring. `trees`: the number of trees of an all-reduce; 0: a ring.
std::vector<Payload> RunCollective(const OpDescription& op, const std::vector<Payload>& inputs,
                                   const std::vector<int>& ring, int trees = 0);

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_REDUCTION_H_
