// Finds the messages that one rank sends and receives in an all_to_all or exchange. It does not
// compare all pairs of ranks: boxes are products of intervals, so it finds overlaps for each tensor
// dim alone. Internal to comm/program.
//
//   for (const Part& part : Senders(geometry, members, me)) { part.number; part.box; }
//
// REQUIRES: `geometry` and `members` are those of one step, and `me` is this rank's coordinate.
// Pure functions, which never fail.
#ifndef MESHIFT_COMM_PROGRAM_MESSAGE_PARTS_H_
#define MESHIFT_COMM_PROGRAM_MESSAGE_PARTS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "comm/program/step_geometry.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"

namespace meshift::lowering_internal {

// The data that is sent to, or received from, one member.
struct Part {
  int64_t number = 0;        // the member's, in the communicator
  Box box;                   // in global indices
  int64_t contribution = 0;  // in an ordered reduction: the index of the contribution; else 0
};

// Senders and Receivers return non-empty parts by ascending `number`, with this rank's part to
// itself, if there is one. O(parts * log(parts) + members).

// The senders of this rank's box after the step: one holder of each part before it. Among copies it
// is the member with this rank's coordinates on the group's mesh dims that do not cut before.
std::vector<Part> Senders(const StepGeometry& geometry, const Members& members,
                          absl::Span<const int64_t> me);
// The members that have this rank among their senders, and the parts that they receive from it.
std::vector<Part> Receivers(const StepGeometry& geometry, const Members& members,
                            absl::Span<const int64_t> me);

// Whether some member's box after the step, if not empty, is not inside its box before it.
// O(members).
bool AnyMemberNeedsData(const StepGeometry& geometry, const Members& members,
                        absl::Span<const int64_t> me);

}  // namespace meshift::lowering_internal

#endif  // MESHIFT_COMM_PROGRAM_MESSAGE_PARTS_H_
