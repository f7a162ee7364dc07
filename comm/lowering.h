// Lowers a plan for one rank: what each step does to this rank's memory, as docs/plan_format.md
// says.
//
//   MESHIFT_ASSIGN_OR_RETURN(Program program, Lower(plan, rank));
//
// Values between two steps alternate between the low and the high end of the workspace, the pieces
// that a step packs lie between them, so that no step needs more than its own share of
// workspace_bytes.
#ifndef MESHIFT_COMM_LOWERING_H_
#define MESHIFT_COMM_LOWERING_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "comm/program.h"
#include "planner/plan.h"

namespace meshift {

// The program of `rank`, one of the ranks of the plan's mesh. O(members of its groups + its
// messages) per step.
//
// The plan need not be verified: what comes out stays inside its buffers, and all members of a
// group come to the same decisions. INVALID_ARGUMENT: the rank is not in the mesh, a step cannot be
// what it says, or the workspace is too small; UNIMPLEMENTED: several meshes, casts, ragged shards,
// fixed orders of reduction.
absl::StatusOr<Program> Lower(const Plan& plan, int64_t rank);

}  // namespace meshift

#endif  // MESHIFT_COMM_LOWERING_H_
