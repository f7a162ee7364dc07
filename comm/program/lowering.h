// Lowers a plan for one rank to a program: the copies and calls by which this rank's memory goes
// from source to target. docs/plan_format.md defines what each step does.
//
//   MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(plan, rank));
//
// Lower() reads no tensor data and calls no engine. Workspace sizes are in bytes. Thread-safe.
//
// Values between two steps alternate between the low and the high end of the workspace, or of a
// consumed source. The pieces that a step packs lie between them. Thus the largest step
// determines the workspace; with two row-major buffers it is the plan's workspace_bytes.
//
// Strided tensors: copies (slices, packing, unpacking) read and write them directly. A call or cast
// that needs contiguous memory works on a copy in the workspace, or in the other tensor if that is
// contiguous.
#ifndef MESHIFT_COMM_PROGRAM_LOWERING_H_
#define MESHIFT_COMM_PROGRAM_LOWERING_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "comm/program/program.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

// The memory layout of this rank's local tensors, and how their buffers may be used.
struct LoweringOptions {
  Shape source_strides = {};  // in elements, one per tensor dim; empty: row-major
  Shape target_strides = {};
  // Source and target begin at the same address (their lowest byte). A plan of two steps or more
  // needs no copy: only the first step reads the source, and only the last one writes the target. A
  // plan of one step works on a copy of the source or the target, whichever is smaller, in the
  // workspace; but an all_reduce of equal contiguous tensors runs in place, and a relabel that
  // leaves the layout equal does nothing. A plan without steps does nothing if the layouts are
  // equal.
  bool one_buffer = false;
  // The program may overwrite the source: once it has read the source, it keeps values and pieces
  // that fit there. Ignored for a strided source, and with one_buffer, since the memory is the
  // target's then.
  bool consume_source = false;
  friend bool operator==(const LoweringOptions&, const LoweringOptions&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const LoweringOptions& o) {
    return H::combine(std::move(h), o.source_strides, o.target_strides, o.one_buffer,
                      o.consume_source);
  }
};

// The program of `rank`. Takes O(members of its groups + its messages) per step, and O(all messages
// + ranks) for a step from one mesh to another, apart from sorting.
//
// A rank that is not in the mesh of the source (target) has a source (target) without elements. It
// has no instructions for steps on a mesh that it is not in. But its program lists their groups,
// since all ranks of a root take part in making them (comm/executor/group_cache.h).
//
// The plan need not be verified: the program of any plan stays inside its buffers, and all members
// of a group come to the same decisions. But an error, such as that of a rank's own strides, may
// occur on some ranks only. INVALID_ARGUMENT: `rank` is negative; the meshes, shapes or steps do
// not lead from source to target; a step does not match its shardings; the workspace is negative or
// too small; a cast is not defined; two meshes have 2^31 ranks or more together; strides have the
// wrong number, are too large, may let elements of the target overlap, or cut a byte of f4e2m1.
// UNIMPLEMENTED: a step's wire dtype is not the tensor's, or a mesh has over 64 dims.
absl::StatusOr<Program> Lower(const Plan& plan, int64_t rank, const LoweringOptions& options = {});

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_LOWERING_H_
