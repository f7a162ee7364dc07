// The bytes of a step and its workspace, by the rules of docs/plan_format.md. Internal to the
// verifier.
//
//   StepBytes bytes = BytesOf(view);
//   bytes.sent;                                   // by the worst rank
//   WorkspaceOf(bytes, /*first=*/true, last, /*scratch=*/0);
#ifndef MESHIFT_PLANNER_VERIFIER_BYTES_H_
#define MESHIFT_PLANNER_VERIFIER_BYTES_H_

#include "planner/verifier/state.h"
#include "planner/verifier/step.h"

namespace meshift::verifier_internal {

// Bytes of the worst rank.
struct StepBytes {
  Wide in = 0;
  Wide out = 0;
  Wide sent = 0;
  Wide to_send = 0;     // the piece of workspace that messages are sent from
  Wide to_receive = 0;  // the piece that they are received into
};

// Rounds up to a multiple of 16: pieces of the workspace are aligned so.
Wide RoundUp16(Wide bytes);

// REQUIRES: CheckFields and CheckData found nothing.
StepBytes BytesOf(const StepView& view);

// The bytes of workspace that the step needs. The first step reads the source, the last writes the
// target. Pieces of the other steps that fit, in sequence, into the `scratch` bytes of a consumed
// source take none.
Wide WorkspaceOf(const StepBytes& bytes, bool first, bool last, Wide scratch);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_BYTES_H_
