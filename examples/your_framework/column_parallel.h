// A made-up framework's column-parallel linear layer, only the end of its backward pass.
#ifndef TINYFRAME_COLUMN_PARALLEL_H_
#define TINYFRAME_COLUMN_PARALLEL_H_

#include "absl/types/span.h"

namespace tinyframe {

// One rank's part of the gradient of the weight [out, in], whose rows are cut over the
// tensor-parallel ranks. The two spans have equal sizes.
struct RankGradient {
  absl::Span<const float> grad;  // from the rank's own part of the batch
  absl::Span<float> synced;      // gets the sum over the data-parallel ranks
};

// Sums the gradients over the data-parallel ranks, bucket by bucket. Rank d * tp + t has
// data-parallel coordinate d and tensor-parallel coordinate t.
void SyncGradients(absl::Span<const RankGradient> ranks, int dp, int tp);

}  // namespace tinyframe

#endif  // TINYFRAME_COLUMN_PARALLEL_H_
