// GradientOf: the source and target sharding of a gradient, given the redistribution of the forward
// pass. It only computes shardings; the caller redistributes the gradient.
//
//   // Forward: f32 S(0),S(1) -> bf16 R,S(1), an FSDP shard that is gathered.
//   MESHIFT_ASSIGN_OR_RETURN(RedistributionPair g, GradientOf(shard, weight));
//     // bf16 R,S(1) -> f32 S(0),S(1)
//   MESHIFT_ASSIGN_OR_RETURN(g, GradientOf(shard, weight, {.summed_over = {"fsdp"}}));
//     // bf16 P,S(1) -> f32 S(0),S(1): every rank of fsdp saw different data
//
// A pure function; safe for concurrent use.
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
  // Mesh dims whose ranks worked on different data: there each rank's gradient is a contribution,
  // P(op) instead of R. They must not cut the forward target.
  std::vector<std::string> summed_over;
  ReduceOp op = ReduceOp::kSum;  // or kAvg
};

// The gradient goes from the placements and dtype of `to` to those of `from`. A partial dim of
// either becomes R (DTensor's convention: the gradient of a sum is the same for every
// contribution). INVALID_ARGUMENT: the shapes differ; a dim in `summed_over` is not in the mesh of
// `to`, or cuts the tensor there; the op is not sum or avg, or the dtype does not have it.
absl::StatusOr<RedistributionPair> GradientOf(const Sharding& from, const Sharding& to,
                                              const GradientOptions& options = {});

}  // namespace meshift

#endif  // MESHIFT_GRADIENT_H_
