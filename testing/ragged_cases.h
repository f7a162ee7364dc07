// Redistributions with ragged shards: a seeded sample, the same for every engine.
//
//   for (const ConformanceCase& c : RaggedCases(8, 1000)) { ... c.from, c.to ... }
#ifndef MESHIFT_TESTING_RAGGED_CASES_H_
#define MESHIFT_TESTING_RAGGED_CASES_H_

#include <cstdint>
#include <vector>

#include "testing/conformance_cases.h"

namespace meshift::testkit {

// `count` cases that depend on the arguments only, on meshes of 2 to `num_ranks` ranks and up to
// three dims, half in any order of ranks. Source, target or both have ragged cuts, of one or two
// tensor dims, with ceil cuts nested inside: sizes at random, with zeros, all of one coordinate, or
// the same in source and target. Sources may be partial; dtypes and ops come in turn, f4e2m1 among
// them. REQUIRES: num_ranks >= 2.
std::vector<ConformanceCase> RaggedCases(int64_t num_ranks, int64_t count);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_RAGGED_CASES_H_
