// The oracle for sources that the caller provides, instead of those that Oracle generates
// (meshift/testing.h): checks each rank's target against these bytes.
//
//   MESHIFT_ASSIGN_OR_RETURN(CheckResult sane, CheckReplicas(from, sources));     // on entry
//   ...                                         // run the code under test: sources -> targets
//   MESHIFT_ASSIGN_OR_RETURN(CheckResult result, CheckGiven(from, to, sources, targets));
//   // result.ok(), or result.first_wrong: "rank 5 holds 3 (0x4040) at [1,2], not 2 (0x4000)"
//
// Moved values, integers, bools, min and max are compared bit for bit (a NaN from min or max must
// be the canonical one). Sums, averages and products of floats are compared
//  - with the exact value, if every order of evaluation gives it (small integers, for example);
//  - else within a bound on the error of any order of evaluation in the tensor's dtype. If some
//    order may overflow, infinities and NaN pass too.
// If the target is partial, its op over the first replica of each partial coordinate must give the
// tensor.
//
// Buffers are ordered by position in the mesh, as for Oracle. Both functions are slow and simple:
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

// Whether ranks that hold the same part of the tensor hold the same bits. Sets only replicas_differ
// and first_difference. INVALID_ARGUMENT: a wrong number or size of buffers.
absl::StatusOr<CheckResult> CheckReplicas(const Sharding& sharding, BufferViews buffers);

// Checks all ranks' targets. Reads only the first replica of each source. INVALID_ARGUMENT:
// different shapes, a cast that does not exist, a mesh dim whose partial op changes, a wrong number
// or size of buffers.
absl::StatusOr<CheckResult> CheckGiven(const Sharding& source, const Sharding& target,
                                       BufferViews sources, BufferViews targets,
                                       std::optional<DType> reduce_dtype = std::nullopt);

}  // namespace meshift::testkit

#endif  // MESHIFT_TESTING_GIVEN_H_
