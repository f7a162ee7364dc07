#include "planner/intra_mesh/per_dim.h"

namespace meshift {
namespace {

class PerDim {
 public:
  explicit PerDim(const Problem& problem) : problem_(problem), state_(problem.source()) {}

  Path Run() {
    const int last = target().stage();
    bool reduces = false;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      reduces |= state_.IsPartial(d) && !target().IsPartial(d);
    }
    if (reduces || problem_.item_bytes(last) <= problem_.item_bytes(0)) {
      CastTo(problem_.reduce_stage());
    }
    bool has_shard = false;
    for (int d = 0; d < problem_.num_dims(); ++d) has_shard |= state_.IsShard(d);
    if (has_shard) {
      for (int d = problem_.num_dims() - 1; d >= 0; --d) FirstPass(d);
    }
    // A cut waits for the cuts outside it, so one round may not place all dims. Each round places
    // at least the outermost remaining one.
    while (!(state_.AtStage(last) == target())) {
      for (int d = 0; d < problem_.num_dims(); ++d) SecondPass(d);
    }
    CastTo(last);
    return std::move(path_);
  }

 private:
  const State& target() const { return problem_.target(); }

  void CastTo(int stage) {
    while (state_.stage() < stage) {
      state_ = state_.AtStage(state_.stage() + 1);
      path_.moves.push_back({StepOp::kCast, state_});
    }
  }

  // Whether the cuts outside the target's cut of dim d are in place.
  bool OuterCutsMatch(int d) const {
    const int k = target().tensor_dim(d);
    CutLists::List outer = problem_.Cuts(target()).of[k];
    outer.size = target().place(d);
    CutLists::List now = problem_.Cuts(state_).of[k];
    if (state_.IsShard(d) && state_.tensor_dim(d) == k) now.size = state_.place(d);
    return now == outer;
  }

  bool IsAsWanted(int d) const {
    if (target().IsShard(d)) {
      return state_.IsShard(d) && state_.tensor_dim(d) == target().tensor_dim(d) &&
             state_.cut_sizes(d) == target().cut_sizes(d) && OuterCutsMatch(d);
    }
    return !state_.IsShard(d) && state_.IsPartial(d) == target().IsPartial(d);
  }

  void FirstPass(int d) {
    if (IsAsWanted(d)) return;
    if (target().IsShard(d) && !OuterCutsMatch(d)) {
      ToReplicate(d);
    } else if (target().IsPartial(d)) {
      // Masks are made in the second pass, after all reductions.
    } else {
      Place(d);
    }
  }

  void SecondPass(int d) {
    if (IsAsWanted(d) || (target().IsShard(d) && !OuterCutsMatch(d))) return;
    if (target().IsPartial(d)) {
      for (int e = 0; e < problem_.num_dims(); ++e) {
        if (state_.IsPartial(e) && !target().IsPartial(e)) return;
      }
    }
    Place(d);
  }

  // Gathers the cuts inside d's cut.
  void FreeInner(int d) {
    if (!state_.IsShard(d)) return;
    const CutLists::List list = problem_.Cuts(state_).of[state_.tensor_dim(d)];
    for (int i = list.size - 1; i > state_.place(d); --i) ToReplicate(list[i]);
  }

  void ToReplicate(int d) {
    if (state_.IsReplicate(d)) return;
    FreeInner(d);
    const StepOp op = state_.IsPartial(d) ? StepOp::kAllReduce : StepOp::kAllGather;
    state_.SetReplicate(d);
    path_.moves.push_back({op, state_});
  }

  // Gives dim d its target placement. REQUIRES: for a shard, OuterCutsMatch(d).
  void Place(int d) {
    if (target().IsReplicate(d)) {
      ToReplicate(d);
      return;
    }
    FreeInner(d);
    if (target().IsPartial(d)) {
      CastTo(target().stage());
      if (state_.IsShard(d)) state_.SetReplicate(d);
      state_.SetPartial(d, target().op(d));
      path_.moves.push_back({StepOp::kMask, state_});
      return;
    }
    const StepOp op = state_.IsPartial(d) ? StepOp::kReduceScatter
                      : state_.IsShard(d) ? StepOp::kAllToAll
                                          : StepOp::kSlice;
    state_.SetShard(d, target().tensor_dim(d), target().place(d));
    if (target().cut_sizes(d) != CutSizes::kCeil) {
      state_.SetRagged(d, target().tensor_dim(d), target().cut_sizes(d));
    }
    path_.moves.push_back({op, state_});
  }

  const Problem& problem_;
  State state_;
  Path path_;
};

}  // namespace

Path PlanPerDim(const Problem& problem) { return PerDim(problem).Run(); }

}  // namespace meshift
