// The definition for contributions that somebody gives, instead of those that the oracle of
// definition.h makes up: what every rank must hold where these bytes are the source.
//
//   MESHIFT_ASSIGN_OR_RETURN(CheckResult sane, CheckReplicas(from, sources));     // on entry
//   ...                                            // run what is to be tested: sources -> targets
//   MESHIFT_ASSIGN_OR_RETURN(CheckResult result, CheckGiven(from, to, sources, targets));
//   // result.ok(), or result.first_wrong: "rank 5 holds 3 (0x4040) at [1,2], not 2 (0x4000)"
//
// What is only moved, integers, bools, min and max are compared bit for bit (a NaN that min or max
// gives is the canonical one). Sums, averages and products of floats are compared
//  - with the exact value, where every order of evaluation gives it: small integers, say;
//  - else within a bound on the error of any order of evaluation in the tensor's dtype. Where the
//    values are so large that some order overflows, infinities and NaN pass too.
// Where the target is partial, the op over the first replica of each partial coordinate must give
// the tensor.
//
// BufferViews are by position in the mesh, as in definition.h. Both functions are slow and simple:
// O(elements x partial coordinates), and O(shards of the source x shards of the target).
#ifndef MESHIFT_TESTING_GIVEN_H_
#define MESHIFT_TESTING_GIVEN_H_

#include <cstddef>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"

namespace meshift::testkit {

using BufferViews = absl::Span<const absl::Span<const std::byte>>;

// Whether ranks that hold the same part of the tensor hold the same bits; fills in replicas_differ
// and first_difference only. INVALID_ARGUMENT: a wrong number or size of buffers.
absl::StatusOr<CheckResult> CheckReplicas(const Sharding& sharding, BufferViews buffers);

// Judges all ranks' targets. Of the sources, the first replica counts. INVALID_ARGUMENT: another
// shape, a cast that there is not, a mesh dim whose partial op changes, a wrong number or size of
// buffers.
absl::StatusOr<CheckResult> CheckGiven(const Sharding& source, const Sharding& target,
                                       BufferViews sources, BufferViews targets,
                                       std::optional<DType> reduce_dtype = std::nullopt);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_GIVEN_H_
