// Computes the bytes of a step and its workspace, by the rules of docs/plan_format.md.
//
//   StepBytes bytes = BytesOf(view);
//   bytes.sent;                                   // by the worst rank
//   WorkspaceOf(bytes, /*first=*/true, last, /*scratch=*/0);
//
// verifier.cc compares the plan's values with these. Internal to the verifier; pure functions.
#ifndef MESHIFT_PLANNER_VERIFIER_BYTES_H_
#define MESHIFT_PLANNER_VERIFIER_BYTES_H_

#include "planner/verifier/state.h"
#include "planner/verifier/step.h"

namespace meshift::verifier_internal {

// Each is the maximum over ranks, in bytes.
struct StepBytes {
  Int128 in = 0;   // the value before the step
  Int128 out = 0;  // the value after it
  Int128 sent = 0;
  Int128 to_send = 0;     // the piece of workspace that messages are sent from
  Int128 to_receive = 0;  // the piece that they are received into
};

// Rounds up to a multiple of 16: pieces of the workspace are aligned so.
Int128 RoundUp16(Int128 bytes);

// REQUIRES: CheckFields and CheckData found nothing, and the step is not a crossing
// (BytesOfCrossing in planner/verifier/crossing.h).
StepBytes BytesOf(const StepView& view);

// The bytes of workspace that the step needs. The first step reads the source, the last writes the
// target. The pieces of each step but the first may lie in the `scratch` bytes of a consumed
// source: the one to send, then the one to receive, each if it fits into the rest. Does not count
// the copy that a single step in one buffer may need (verifier.cc).
Int128 WorkspaceOf(const StepBytes& bytes, bool first, bool last, Int128 scratch);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_BYTES_H_
