// Runs the cases of tests/ordered_case.h on any engine, on each of its ranks.
//
//   // On every rank of the engine's world:
//   EXPECT_EQ(Message(CheckOrdered(engine, {.seed = OrderedSeed(engine->world_size())})), "");
#ifndef MESHIFT_TESTS_ORDERED_CHECK_H_
#define MESHIFT_TESTS_ORDERED_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "meshift/engine.h"
#include "meshift/plan.h"

namespace meshift {

// The cases that every engine runs: 64 for each of these world sizes, 512 together.
inline constexpr int64_t kOrderedSizes[] = {2, 3, 5, 8, 12, 16, 24, 40};
inline constexpr int64_t kOrderedCases = 64;
// The seed of the first case for a world size.
constexpr uint64_t OrderedSeed(int64_t ranks) { return static_cast<uint64_t>(1000 * ranks); }

struct OrderedCheckOptions {
  int64_t cases = kOrderedCases;
  uint64_t seed = 1;  // of the first case
  // kBatchInvariant is allowed on engines that always combine in ascending order of ranks.
  Reproducibility promise = Reproducibility::kOrdered;
  bool blocks = false;  // only with kOrdered
};

// Runs every factoring of every case on all ranks of the engine's world, and compares this rank's
// bits with the reference. Collective. DATA_LOSS describes the first difference.
absl::Status CheckOrdered(Engine* engine, const OrderedCheckOptions& options);

}  // namespace meshift

#endif  // MESHIFT_TESTS_ORDERED_CHECK_H_
