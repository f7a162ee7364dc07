// Redistributions with ragged shards: a fixed sample, the same for every engine.
//
//   for (const ConformanceCase& c : RaggedCases(8, 1000)) { ... c.from, c.to ... }
#ifndef MESHIFT_TESTING_RAGGED_CASES_H_
#define MESHIFT_TESTING_RAGGED_CASES_H_

#include <cstdint>
#include <vector>

#include "testing/conformance_cases.h"

namespace meshift::testkit {

// `count` cases that depend only on the arguments, on meshes of 2 to `num_ranks` ranks and up to
// three dims, half in random order of ranks. Source, target or both have ragged cuts of one or two
// tensor dims, with ceil cuts nested inside. Sizes are random, with zeros, all on one coordinate,
// or the same in source and target. Sources may be partial; all dtypes and ops are used in turn,
// also f4e2m1. REQUIRES: num_ranks >= 2.
std::vector<ConformanceCase> RaggedCases(int64_t num_ranks, int64_t count);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_RAGGED_CASES_H_
