// Triples of shardings for the triangle inequality: a wide distribution of source, stop and target,
// and which detours no plan goes by.
//
//   const Triple triple = WideTriple(seed);
//   if (const auto plans = PlansOf(triple)) {
//     plans->direct.total().est_ns;                  // from A to C; no more than by way of B, or
//     UnplannedOf(triple.a, triple.b, triple.c);     // this says why
//   }
#ifndef MESHIFT_TESTS_TRIPLES_H_
#define MESHIFT_TESTS_TRIPLES_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"

namespace meshift {

struct Triple {
  Sharding a;
  Sharding b;
  Sharding c;
  PlannerOptions options;
};

// Depends on the seed only. A mesh of 1 to 5 dims, some of size 1, of at most 64 ranks, one in four
// in another order; a tensor of rank 0 to 4 with even, uneven, short and empty dims, of a few bytes
// or many megabytes, of 8 to 64 bits; any placements and orders of cuts, partial by one op or by
// sums and averages, on either side; on one level of links, two or three, some without a promise. B
// is any sharding, or one like A or C, and no larger than the larger of A and C.
Triple WideTriple(uint64_t seed);

// What no plan does, and a detour may do for less.
enum class Unplanned : uint8_t {
  kReducesWhatStays,  // adds what source and target both leave partial
  kAddsWhatIsMoved,   // adds, by way of identities, what source and target both have whole, though
                      // nothing else is reduced: a move keeps bits
  kDividesEarly,      // divides an average, in B, before all of its contributions are added
};
constexpr int kNumUnplanned = 3;
std::string_view Name(Unplanned unplanned);

// Whether a detour by B does that, by the placements alone.
std::optional<Unplanned> UnplannedOf(const Sharding& a, const Sharding& b, const Sharding& c);

struct TriplePlans {
  Plan direct;
  Plan to;
  Plan from;
  bool IsLonger() const { return direct.total().est_ns > to.total().est_ns + from.total().est_ns; }
};

// Null where one of them cannot be planned: where B is partial otherwise than A, say.
std::optional<TriplePlans> PlansOf(const Triple& triple);

}  // namespace meshift

#endif  // MESHIFT_TESTS_TRIPLES_H_
