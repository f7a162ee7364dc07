// Translates a plan into one call on symmetric memory, if that is possible. Internal to comm/. A
// pure function, which never fails. It does not ask whether the engine has such a call.
//
//   SymmetricForm form = SymmetricFormOf(plan, /*rank=*/3);
//   if (form.miss) ...
//
// It is possible under four conditions. The plan has one step: an all-gather, a reduce-scatter, or
// an exchange that gathers. It has one mesh and no cast. The members' blocks, in their order, are
// contiguous in the box that they form together. That box has elements. A reduce-scatter also needs
// a dtype of whole bytes, and a promise about bits that allows it. Each member then reads its data
// directly from the others' tensors: blocks have exact sizes, and nothing is padded or packed.
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
  std::vector<int64_t> counts;  // elements of `dtype` of each member's block
  int64_t source_bytes = 0;     // the largest of any member's source
  int64_t target_bytes = 0;     // the largest of any member's target
  int64_t bytes_sent = 0;       // bytes that others read from this member
  // Whether the plan's promise needs the bits of the ordinary call.
  bool needs_same_bits = false;
};

// A miss if `rank` is not in the plan's mesh. O(members of its group).
SymmetricForm SymmetricFormOf(const Plan& plan, int64_t rank);

}  // namespace meshift

#endif  // MESHIFT_COMM_SYMMETRIC_SYMMETRIC_FORM_H_
