// One redistribution: what a Redistributor (meshift/redistributor.h) is asked to do.
//
//   redistribute({.from = from, .to = to, .source = in, .target = out, .after = &compute_stream})
#ifndef MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTION_H_
#define MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTION_H_

#include <cstdint>
#include <optional>

#include "meshift/engine.h"
#include "meshift/run_handle.h"
#include "comm/symmetric/symmetric_use.h"
#include "meshift/tensor_view.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift {

// Scratch memory of the caller, aligned to 16 bytes; untouched until the work is done. None: the
// redistributor keeps its own, which grows with the plans.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

// A view for the length of a call, which copies what it keeps: the shardings must live until it
// returns. Temporaries do so where they are written into the call itself, but not where they are
// put into a list that is passed later.
struct Redistribution {
  const Sharding& from;
  const Sharding& to;
  TensorView source;  // this rank's local tensors; none where it is not in the tensor's mesh
  TensorView target;
  Workspace workspace = {};
  // The source is given up: once it was read, its memory takes values and packed pieces on the way,
  // as far as they fit, and the call needs so much less workspace. Its contents are then
  // unspecified. Without effect on a source that is not contiguous or not aligned to 16 bytes.
  bool consume_source = false;
  // In which partial values are reduced (PlannerOptions). Equal on all ranks.
  std::optional<DType> reduce_dtype = std::nullopt;

  // What must be done before the source is read or the target is written: all work that is on this
  // stream of the same engine now, and that earlier run. Null and empty: nothing, memory is ready.
  Stream* after = nullptr;
  RunHandle after_run = {};
  // The place of this call in the order of all calls, where several threads make them: 0, 1, 2, ...
  // of the redistributor, in an order that is equal on all ranks. All calls have one, or none has.
  // A call waits for those before it; one that is refused has used its ticket up.
  std::optional<int64_t> ticket = std::nullopt;

  // Where the tensors lie in symmetric memory: the call then goes without packing and messages if
  // its plan, the group and the engine allow it, else as always (docs/symmetric_memory.md). Equal
  // on all ranks, also on those whose part is empty. Null: nothing is looked at.
  const SymmetricUse* symmetric = nullptr;
};

// What a plan that was made elsewhere is run with: as the fields of a Redistribution say.
struct PlanRunOptions {
  Workspace workspace = {};
  bool consume_source = false;
  Stream* after = nullptr;
  RunHandle after_run = {};
  std::optional<int64_t> ticket = std::nullopt;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_REDISTRIBUTION_REDISTRIBUTION_H_
