// Translates a plan into one call on symmetric memory, if that is possible. Internal to the
// redistributor.
//
//   SymmetricForm form = SymmetricFormOf(plan, /*rank=*/3);
//   if (form.miss) ...
//
// It is possible for a plan of one all-gather or reduce-scatter whose blocks are contiguous in the
// whole tensor, in the order of the members. Each member then reads its data directly from the
// others' tensors: blocks have their exact sizes, and nothing is padded or packed.
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

// Equal on all members of a group, except `member` and `bytes_sent`.
struct SymmetricForm {
  std::optional<SymmetricMiss> miss;  // why not: kOperation, kGroup or kPromise
  std::vector<int64_t> ranks;         // of the group, ascending
  int member = 0;                     // this rank's number in the group
  SymmetricCall::Kind kind = SymmetricCall::Kind::kAllGather;
  DType dtype = DType::kU8;  // all-gathers are of bytes
  Reduction reduction;
  std::vector<int64_t> counts;  // elements of each member's block
  int64_t source_bytes = 0;     // the largest of any member's source
  int64_t target_bytes = 0;     // the largest of any member's target
  int64_t bytes_sent = 0;       // bytes that others read from this member
  // Whether the plan's promise needs the bits of the ordinary call.
  bool needs_same_bits = false;
};

// REQUIRES: `rank` is in the plan's mesh. O(members of its group).
SymmetricForm SymmetricFormOf(const Plan& plan, int64_t rank);

}  // namespace meshift

#endif  // MESHIFT_COMM_SYMMETRIC_SYMMETRIC_FORM_H_
