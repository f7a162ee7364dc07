// The redistributions that every engine must get right: a fixed sample, the same for every engine.
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

// `count` cases that depend only on the arguments. Two in eight are from the small world in all
// dtypes (testing/small_world.h) and one in eight from its casts, both on meshes of at most
// `num_ranks` ranks; fewer if the small world has not enough. The others are on random meshes:
// three in five have all ranks, half have the ranks in random order. Random meshes have up to 4
// dims, some of size 1, and their tensors use every dtype and op in turn. Empty for num_ranks = 1.
// REQUIRES: num_ranks >= 1.
std::vector<ConformanceCase> ConformanceCases(int64_t num_ranks, int64_t count);

// The same for pairs of meshes: the first `count` cases of a fixed sample (ForEachCrossSample of
// testing/cross_world.h) whose ranks are all below `num_ranks`. With 12 ranks or more these are the
// sample of `count`.
std::vector<ConformanceCase> CrossConformanceCases(int64_t num_ranks, int64_t count);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_CONFORMANCE_CASES_H_
