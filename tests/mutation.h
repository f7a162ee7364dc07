// Damages plans in a seeded random way.
//
//   std::string what = Mutate(rng, &fields);   // "swap steps 0 and 1"
#ifndef MESHIFT_TESTS_MUTATION_H_
#define MESHIFT_TESTS_MUTATION_H_

#include <random>
#include <string>

#include "meshift/plan.h"

namespace meshift {

inline constexpr int kNumMutations = 34;

// Applies mutation `kind` (0 .. kNumMutations - 1) at a random place in `fields`. Returns a
// description, or "" if the mutation does not apply. The result may be the same plan, or another
// valid one.
std::string Mutate(int kind, std::mt19937_64& rng, PlanFields* fields);

}  // namespace meshift

#endif  // MESHIFT_TESTS_MUTATION_H_
