// The messages of an all_to_all or exchange of one rank, in closed form: boxes are products over
// tensor dims, so who overlaps whom is found tensor dim by tensor dim. Internal to the lowering.
//
//   for (const Part& part : Senders(geometry, members, me)) { part.number; part.box; }
#ifndef MESHIFT_COMM_PROGRAM_MESSAGE_PARTS_H_
#define MESHIFT_COMM_PROGRAM_MESSAGE_PARTS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "comm/program/step_geometry.h"
#include "meshift/device_mesh.h"
#include "meshift/sharding.h"

namespace meshift::lowering_internal {

// What goes to or comes from one member, numbered as the communicator does; in global indices.
struct Part {
  int64_t number = 0;
  Box box;
  int64_t contribution = 0;  // whose it is, of a reduction in order; else 0
};

// In both, parts are not empty and in the order of the members, with this rank among them. O(parts
// + members).

// Who holds, before the step, the parts of this rank's box after it.
std::vector<Part> Senders(const StepGeometry& geometry, const Members& members,
                          absl::Span<const int64_t> me);
// Who takes parts of this rank's box before the step.
std::vector<Part> Receivers(const StepGeometry& geometry, const Members& members,
                            absl::Span<const int64_t> me);

// Whether some member's box after the step is not inside its box before it. O(members).
bool AnyMemberLacks(const StepGeometry& geometry, const Members& members,
                    absl::Span<const int64_t> me);

}  // namespace meshift::lowering_internal

#endif  // MESHIFT_COMM_PROGRAM_MESSAGE_PARTS_H_
