// Damages plans, by a seed.
//
//   std::string what = Mutate(rng, &fields);   // "swap steps 0 and 1"
#ifndef MESHIFT_TESTS_MUTATION_H_
#define MESHIFT_TESTS_MUTATION_H_

#include <random>
#include <string>

#include "meshift/plan.h"

namespace meshift {

inline constexpr int kNumMutations = 34;

// Applies mutation `kind` (0 .. kNumMutations - 1) somewhere in `fields`; says what it did, or ""
// where there is nothing to apply it to. The result may be the same plan, or another right one.
std::string Mutate(int kind, std::mt19937_64& rng, PlanFields* fields);

}  // namespace meshift

#endif  // MESHIFT_TESTS_MUTATION_H_
