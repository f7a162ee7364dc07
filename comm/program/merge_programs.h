// Merges programs whose collective calls match into one: the data of matching calls is packed into
// one buffer and sent with one call.
//
//   const MergePart parts[] = {{&one, {1}}, {&other, {0}}};   // each with an all_gather over "dp"
//   MESHIFT_ASSIGN_OR_RETURN(Program both, MergePrograms(parts));
//   const TensorBuffers tensors[] = {{in0, out0}, {in1, out1}};
//   executable->Enqueue(both.All(), {.workspace = w, .tensors = tensors}, *stream, &done);
//
// Merged gathers and messages are sent as bytes (u8), so that the parts may have different dtypes.
// A merged call carries exactly the elements of the parts' calls, without padding. A call that only
// one part has stays as it is. Within one member's data, pieces are sorted by alignment,
// descending: the largest power of two, at most 16, that divides a piece's size in bytes on all
// members. So the offset of each piece in the member's data is a multiple of its alignment.
// comm/program/coalesce.h decides which programs to merge. Internal to comm/. A pure function.
#ifndef MESHIFT_COMM_PROGRAM_MERGE_PROGRAMS_H_
#define MESHIFT_COMM_PROGRAM_MERGE_PROGRAMS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/program/program.h"

namespace meshift {

// A program of one tensor, and the indices of its collective steps, ascending. A program may have
// no call for such a step, if this rank's group has nothing to do.
struct MergePart {
  const Program* program = nullptr;
  std::vector<int> calls;
};

// The program of all parts. Part i is its tensor i. Step k of the result has call k of each part,
// and the local instructions before it; the last step also has all instructions after its call.
// workspace_bytes is the sum of the parts', plus the largest buffer of a call, each rounded up to
// kWorkspaceAlignment. one_buffer and consumes_source are set if they are set for any part; they
// hold for the tensors of those parts only.
//
// REQUIRES: all parts are programs of one rank, with equally many `calls`; each step has at most
// one call, and `calls` has every step with a call; those with groups have the same meshes; call k
// has the same kind and group in each part, and if it reduces, the same dtype and reduction. No
// part's source or target overlaps memory that another part writes. INTERNAL if a violation is
// noticed; an overlap and a call that `calls` does not name are not. INVALID_ARGUMENT: `parts` is
// empty.
absl::StatusOr<Program> MergePrograms(absl::Span<const MergePart> parts);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_MERGE_PROGRAMS_H_
