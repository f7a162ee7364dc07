// What a plan would be as one call on symmetric memory. Internal to the redistributor.
//
//   SymmetricForm form = SymmetricFormOf(plan, /*rank=*/3);
//   if (form.miss) ...
//
// Some plans are one all-gather or one reduce-scatter whose blocks lie one behind the other in the
// whole tensor, in the order of the members. Then each member can take what it needs from the
// others' tensors themselves: blocks have their exact sizes, and nothing is padded or packed.
#ifndef MESHIFT_COMM_SYMMETRIC_SYMMETRIC_FORM_H_
#define MESHIFT_COMM_SYMMETRIC_SYMMETRIC_FORM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/plan.h"
#include "meshift/symmetric.h"

namespace meshift {

// Equal on all members of a group, but for `member` and `bytes_sent`.
struct SymmetricForm {
  std::optional<SymmetricMiss> miss;  // kOperation, kGroup, kPromise: there is none
  std::vector<int64_t> ranks;         // of the group, ascending
  int member = 0;                     // this rank's number
  SymmetricCall::Kind kind = SymmetricCall::Kind::kAllGather;
  DType dtype = DType::kU8;  // all-gathers are of bytes
  Reduction reduction;
  std::vector<int64_t> counts;  // elements of the members' blocks
  int64_t source_bytes = 0;     // of the largest member's source
  int64_t target_bytes = 0;
  int64_t bytes_sent = 0;  // read from this member by others
  // The promise needs the bits of the ordinary call.
  bool needs_same_bits = false;
};

// REQUIRES: `rank` is in the plan's mesh. O(members of its group).
SymmetricForm SymmetricFormOf(const Plan& plan, int64_t rank);

}  // namespace meshift

#endif  // MESHIFT_COMM_SYMMETRIC_SYMMETRIC_FORM_H_
