// The backward pair of a redistribution: from where to where its gradient goes.
//
//   // Forward: f32 S(0),S(1) -> bf16 R,S(1), an FSDP shard that is gathered.
//   MESHIFT_ASSIGN_OR_RETURN(RedistributionPair g, GradientOf(shard, weight));
//     // bf16 R,S(1) -> f32 S(0),S(1)
//   MESHIFT_ASSIGN_OR_RETURN(g, GradientOf(shard, weight, {.summed_over = {"fsdp"}}));
//     // bf16 P,S(1) -> f32 S(0),S(1): every rank of fsdp saw other data
#ifndef MESHIFT_GRADIENT_H_
#define MESHIFT_GRADIENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

struct RedistributionPair {
  Sharding from;
  Sharding to;
};

struct GradientOptions {
  // Mesh dims whose ranks worked on different data: what each has of the gradient is a contribution
  // to it, P(op) instead of R. They must not cut the forward target.
  std::vector<std::string> summed_over;
  ReduceOp op = ReduceOp::kSum;  // or kAvg
};

// The gradient of `to` comes in its placements and dtype, and goes to those of `from`; every
// partial in either is R (DTensor's convention: the gradient of a sum is the same for every
// contribution). INVALID_ARGUMENT: another shape; a dim in `summed_over` that the mesh of `to` has
// not, or that cuts there; an op other than sum and avg, or that the dtype does not have.
absl::StatusOr<RedistributionPair> GradientOf(const Sharding& from, const Sharding& to,
                                              const GradientOptions& options = {});

}  // namespace meshift

#endif  // MESHIFT_GRADIENT_H_
