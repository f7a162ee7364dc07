// What NCCL computes, by the rules of its documentation and sources as nccl.h's types state them:
// sums in the tensor's own type at each hop (fp8 through half, saturated), in the order of a ring
// that starts at another rank for each part of an all-reduce and for each destination of a
// reduce-scatter; all ranks get the same bits. Or an all-reduce by trees, each for a part of the
// elements and with an order of its own, so that one tree alone treats all elements alike.
//
//   std::vector<Payload> results = RunCollective(description, inputs, ring);
#ifndef MESHIFT_TESTING_FAKE_GPU_REDUCTION_H_
#define MESHIFT_TESTING_FAKE_GPU_REDUCTION_H_

#include <cstdint>
#include <vector>

#include "testing/fake_gpu/message.h"

namespace meshift::fake {

// Bytes of an element; 0: no such type.
uint64_t ElementBytes(int32_t dtype);

// What each rank gives and gets, in bytes: 0 where it is nobody's or not the root's.
uint64_t InputBytes(const OpDescription& op, int ranks, int rank);
uint64_t OutputBytes(const OpDescription& op, int ranks, int rank);

// The results by rank; null where a rank gets none. `ring[i]` is the rank at place i of the ring.
// `trees`: so many do an all-reduce; 0: a ring does.
std::vector<Payload> RunCollective(const OpDescription& op, const std::vector<Payload>& inputs,
                                   const std::vector<int>& ring, int trees = 0);

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_REDUCTION_H_
