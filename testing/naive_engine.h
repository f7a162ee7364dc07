// A redistribution the slow and plain way: every element of every target is fetched from a rank
// that has it and reduced in the tensor's own dtype (or the reduce dtype), each step rounded, in an
// order that a seed chooses. Casts look for the nearest value in a list of all. What the oracle's
// tests hold against the oracle; it places boxes with Sharding::LocalBox, which the oracle does not
// use.
//
//   Buffers out = RunNaively(from, to, in, {.seed = 3});
//   Buffers bad = RunNaively(from, to, in, {.seed = 3, .lost = 1});   // of coordinate 1
#ifndef MESHIFT_TESTING_NAIVE_ENGINE_H_
#define MESHIFT_TESTING_NAIVE_ENGINE_H_

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
  std::optional<int64_t> lost =
      std::nullopt;  // a partial coordinate of the source, flattened: taken as identity
  std::optional<DType> reduce_dtype = std::nullopt;  // nullopt: DefaultReduceDType
  // A mistake to make: what was reduced, or is only moved, is first cast to this dtype.
  std::optional<DType> detour = std::nullopt;
};

// REQUIRES: what Oracle::Create requires, a dtype other than f4e2m1.
Buffers RunNaively(const Sharding& from, const Sharding& to, const Buffers& in,
                   const NaiveOptions& options);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_NAIVE_ENGINE_H_
