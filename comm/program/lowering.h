// Lowers a plan for one rank: what each step does to this rank's memory, as docs/plan_format.md
// says.
//
//   MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(plan, rank));
//
// Values between two steps alternate between the low and the high end of the workspace, the pieces
// that a step packs lie between them, so that no step needs more than its own share of
// workspace_bytes.
//
// Strided tensors: whatever copies (slices, packing, unpacking) reads and writes them where they
// are. A call or cast that needs contiguous memory works on a copy in the workspace, or in the
// other tensor where that is contiguous, in place.
#ifndef MESHIFT_COMM_PROGRAM_LOWERING_H_
#define MESHIFT_COMM_PROGRAM_LOWERING_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "comm/program/program.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// How this rank's local tensors lie in memory, and what may be done with them.
struct LoweringOptions {
  Shape source_strides = {};  // in elements, one per tensor dim; empty: row-major
  Shape target_strides = {};
  // Source and target begin at one byte (their lowest). A plan of two steps or more reads the
  // source in its first step only, before the last one writes the target; an all_reduce of equal
  // contiguous tensors is made in place, and a copy of equal layouts is none. Any other single step
  // works on a copy in the workspace of the source or the target, whichever is smaller.
  bool one_buffer = false;
  // The source's memory takes values and pieces that fit, once the source was read. Only a
  // row-major source, and not with one_buffer, whose memory is the target's; else it is ignored.
  bool consume_source = false;
  friend bool operator==(const LoweringOptions&, const LoweringOptions&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const LoweringOptions& o) {
    return H::combine(std::move(h), o.source_strides, o.target_strides, o.one_buffer,
                      o.consume_source);
  }
};

// The program of `rank`. O(members of its groups + its messages) per step; of a step from one mesh
// to another, O(all its messages + ranks).
//
// A rank that is not in the mesh of source or target has a tensor without elements there. It has no
// instructions for steps on a mesh that it is not in, but names their groups, which are made by all
// ranks of a root (comm/executor/group_cache.h).
//
// The plan need not be verified: what comes out stays inside its buffers, and all members of a
// group come to the same decisions. INVALID_ARGUMENT: a step cannot be what it says, or the
// workspace is too small; strides that are too many or too large, overlap within the target, or cut
// a byte of f4e2m1.
absl::StatusOr<Program> Lower(const Plan& plan, int64_t rank, const LoweringOptions& options = {});

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_LOWERING_H_
