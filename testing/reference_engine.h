// A slow and simple redistribution that checks the oracle: fetches each element of each target from
// a rank that has it, and reduces in the tensor's dtype (or the reduce dtype) with every step
// rounded, in an order chosen by a seed. Casts search a list of all values for the nearest. It uses
// Sharding::LocalBox, which the oracle does not.
//
//   Buffers out = RunNaively(from, to, in, {.seed = 3});
//   Buffers bad = RunNaively(from, to, in, {.seed = 3, .lost = 1});   // drops contribution 1
#ifndef MESHIFT_TESTING_REFERENCE_ENGINE_H_
#define MESHIFT_TESTING_REFERENCE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift::testkit {

using Buffers = std::vector<std::vector<std::byte>>;  // by position

struct NaiveOptions {
  uint64_t seed = 0;
  // A partial coordinate of the source, flattened, whose contribution is replaced by the identity.
  std::optional<int64_t> lost = std::nullopt;
  std::optional<DType> reduce_dtype = std::nullopt;  // nullopt: DefaultReduceDType
  // A deliberate mistake: values are first cast to this dtype.
  std::optional<DType> detour = std::nullopt;
};

// REQUIRES: as Oracle::Create; the dtype is not f4e2m1.
Buffers RunNaively(const Sharding& from, const Sharding& to, const Buffers& in,
                   const NaiveOptions& options);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_REFERENCE_ENGINE_H_
