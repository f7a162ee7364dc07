// The cases of tests/ordered_case.h on any engine, run by each of its ranks.
//
//   // On every rank of the engine's world:
//   EXPECT_EQ(Message(CheckOrdered(engine, {.cases = 100, .seed = 1})), "");
#ifndef MESHIFT_TESTS_ORDERED_CHECK_H_
#define MESHIFT_TESTS_ORDERED_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "comm/engine.h"
#include "planner/plan.h"

namespace meshift {

struct OrderedCheckOptions {
  int64_t cases = 100;
  uint64_t seed = 1;  // of the first
  // Also kBatchInvariant, on engines that combine in ascending order of ranks by themselves.
  Reproducibility promise = Reproducibility::kOrdered;
  bool blocks = false;  // only with kOrdered
};

// Runs every factoring of every case on all ranks of the engine's world, and compares this rank's
// bits with the reference. Collective. DATA_LOSS names what is wrong.
absl::Status CheckOrdered(Engine* engine, const OrderedCheckOptions& options);

}  // namespace meshift

#endif  // MESHIFT_TESTS_ORDERED_CHECK_H_
