// Makes one program of several whose calls are alike: everything that a step sends is packed into
// one buffer and goes with one call.
//
//   const MergePart parts[] = {{&one, {1}}, {&other, {0}}};   // each with an all_gather over "dp"
//   MESHIFT_ASSIGN_OR_RETURN(Program both, MergePrograms(parts));
//   const TensorBuffers tensors[] = {{in0, out0}, {in1, out1}};
//   executable->Enqueue(both.All(), {.workspace = w, .tensors = tensors}, *stream, &done);
//
// Gathers and messages travel as bytes, whatever their dtypes. Calls send exactly what the parts'
// calls would send together. Within a call, pieces lie in descending order of the powers of two
// that divide their sizes, so that none begins less aligned than its size allows.
#ifndef MESHIFT_COMM_PROGRAM_MERGE_PROGRAMS_H_
#define MESHIFT_COMM_PROGRAM_MERGE_PROGRAMS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/program/program.h"

namespace meshift {

// A program of one tensor, and which of its steps are collectives, ascending. A program may lack
// the call of such a step, where this rank's group has nothing to do.
struct MergePart {
  const Program* program = nullptr;
  std::vector<int> calls;
};

// The program of all parts, at least one: part i is its tensor i. REQUIRES: the parts are of one
// rank, those with groups of the same meshes, their calls number k are of one kind over the same
// mesh dims, and, where they reduce, of one dtype and reduction; INTERNAL where that is seen not to
// be so. No part's source or target may overlap what another part writes. Step k of the result has
// the calls number k, and what is local before them; the last step all behind.
//
// workspace_bytes is the sum of the parts' and of the largest buffer of a call.
absl::StatusOr<Program> MergePrograms(absl::Span<const MergePart> parts);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_MERGE_PROGRAMS_H_
