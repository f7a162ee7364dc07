// The redistributions that an engine of n ranks has to get right: a fixed sample, the same for
// every engine.
//
//   for (const ConformanceCase& c : ConformanceCases(8, 2000)) { ... c.from, c.to ... }
//   for (const ConformanceCase& c : CrossConformanceCases(12, 2000)) { ... }
#ifndef MESHIFT_TESTING_CONFORMANCE_CASES_H_
#define MESHIFT_TESTING_CONFORMANCE_CASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift::testkit {

struct ConformanceCase {
  Sharding from;
  Sharding to;
  std::optional<DType> reduce_dtype;
  std::string ToString() const;
};

// `count` cases that depend on the arguments only: two in eight from the small world in all dtypes
// (testing/small_world.h), one in eight from its casts, both on meshes of at most `num_ranks`
// ranks, fewer where it has not as many; the others on random meshes, three in five of all ranks,
// half in any order of ranks. Random meshes have up to 4 dims, some of size 1; their tensors take
// every dtype and op in turn. None for num_ranks = 1. REQUIRES: num_ranks >= 1.
std::vector<ConformanceCase> ConformanceCases(int64_t num_ranks, int64_t count);

// Likewise from one mesh to another: the first `count` cases of a fixed sample
// (ForEachCrossSample of testing/cross_world.h) that have no rank above `num_ranks`. With 12 ranks
// or more that is the sample of `count`.
std::vector<ConformanceCase> CrossConformanceCases(int64_t num_ranks, int64_t count);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_CONFORMANCE_CASES_H_
