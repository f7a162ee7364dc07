// Triples of shardings for the triangle inequality: a wide distribution of source, stop and target,
// and the detours that plans never take.
//
//   const Triple triple = WideTriple(seed);
//   if (const auto plans = PlansOf(triple)) {
//     plans->direct.total().est_ns;                  // from A to C; at most that of the way by B,
//     UnplannedOf(triple.a, triple.b, triple.c);     // unless this has a reason
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

// Depends only on the seed. A mesh of 1 to 5 dims, some of size 1, with at most 64 ranks, one in
// four not in order; a tensor of rank 0 to 4 with even, uneven, short and empty dims, from a few
// bytes to many megabytes, with elements of 8 to 64 bits; any placements and orders of cuts,
// partial by one op or by sums and averages, on either side; one to three levels of links; some
// without a promise. B is any sharding, or one like A or C, and no larger than the larger of A and
// C.
Triple WideTriple(uint64_t seed);

// Actions that no plan takes, although a detour may cost less with them.
enum class Unplanned : uint8_t {
  kReducesWhatStays,  // reduces a mesh dim that is partial in source and target
  kAddsWhatIsMoved,   // adds identities to a value that is whole in source and target, though
                      // nothing else is reduced: a move keeps bits
  kDividesEarly,      // divides an average, in B, before all of its contributions are added
};
constexpr int kNumUnplanned = 3;
std::string_view Name(Unplanned unplanned);

// The action of a detour by B, as far as the placements show; nullopt: none of these.
std::optional<Unplanned> UnplannedOf(const Sharding& a, const Sharding& b, const Sharding& c);

struct TriplePlans {
  Plan direct;
  Plan to;
  Plan from;
  bool IsLonger() const { return direct.total().est_ns > to.total().est_ns + from.total().est_ns; }
};

// Nullopt if one of them cannot be planned, for example if B is partial on mesh dims where A is
// not.
std::optional<TriplePlans> PlansOf(const Triple& triple);

}  // namespace meshift

#endif  // MESHIFT_TESTS_TRIPLES_H_
