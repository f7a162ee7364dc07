#include "planner/plan/workspace.h"

namespace meshift {

bool WorksOnCopy(StepOp op, const Sharding& from, const Sharding& to) {
  if (op == StepOp::kAllReduce) return false;
  if (op != StepOp::kRelabel) return true;
  for (int64_t position = 0; position < to.mesh().NumRanks(); ++position) {
    const int64_t rank = to.mesh().RankAt(position);
    if (!from.mesh().PositionOf(rank)) continue;
    const Box box = to.LocalBox(rank);
    if (!box.IsEmpty() && !(from.LocalBox(rank) == box)) return true;
  }
  return false;
}

}  // namespace meshift
