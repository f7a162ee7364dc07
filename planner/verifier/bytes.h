// The bytes of a step and its workspace, counted as docs/plan_format.md says. Internal to the
// verifier.
//
//   StepBytes bytes = BytesOf(view);
//   bytes.sent;                                   // of the worst rank
//   WorkspaceOf(bytes, /*first=*/true, last, /*scratch=*/0);
#ifndef MESHIFT_PLANNER_VERIFIER_BYTES_H_
#define MESHIFT_PLANNER_VERIFIER_BYTES_H_

#include "planner/verifier/state.h"
#include "planner/verifier/step.h"

namespace meshift::verifier_internal {

struct StepBytes {
  Wide in = 0;
  Wide out = 0;
  Wide sent = 0;
  Wide to_send = 0;     // the piece of workspace to send from
  Wide to_receive = 0;  // and the one to receive into
};

// The pieces of the workspace begin at multiples of 16 bytes.
Wide RoundUp16(Wide bytes);

// REQUIRES: CheckFields and CheckData found nothing.
StepBytes BytesOf(const StepView& view);

// What the step needs of the workspace; the first step reads the source, the last writes the
// target. Pieces of the other steps lie in `scratch` bytes of a consumed source, if they fit one
// behind the other.
Wide WorkspaceOf(const StepBytes& bytes, bool first, bool last, Wide scratch);

}  // namespace meshift::verifier_internal

#endif  // MESHIFT_PLANNER_VERIFIER_BYTES_H_
