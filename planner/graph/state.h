// The search's form of a planning problem on one mesh (Problem) and of the shardings on its paths
// (State). Names and mesh dims of size 1 are removed. A state packs the placements of all mesh dims
// into one integer, beside the number of casts done.
//
//   MESHIFT_ASSIGN_OR_RETURN(Problem problem, Problem::Create(from, to));
//   State next = problem.source();
//   next.SetReplicate(0);
//   problem.ToSharding(next);            // as a Sharding of the mesh
//
// In the planner, mesh dim d is the d-th of the mesh's dims of size > 1. Create() refuses problems
// that cannot be planned: two meshes, more than eight such dims, more than 2^20 boxes of ragged
// cuts, and a target that cannot be reached (its comment has the list). State checks nothing. A
// Problem is safe for concurrent use until SetBudget(), then for one thread at a time. Internal to
// the planner.
#ifndef MESHIFT_PLANNER_GRAPH_STATE_H_
#define MESHIFT_PLANNER_GRAPH_STATE_H_

#include <algorithm>
#include <array>
#include <bitset>
#include <compare>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/work_budget.h"
#include "meshift/sharding.h"
#include "placement/cuts.h"
#include "placement/unit_dims.h"

namespace meshift {

inline constexpr int kMaxStateDims = 8;  // mesh dims of size > 1

// A set of mesh dims of a problem, bit d for dim d.
using DimMask = uint32_t;
inline bool HasDim(DimMask mask, int d) { return (mask >> d & 1) != 0; }
// Calls fn(subset) for every subset of `mask` that is not empty, ascending.
template <typename Fn>
void ForEachSubset(DimMask mask, const Fn& fn) {
  for (DimMask subset = mask & (~mask + 1); subset != 0; subset = (subset - mask) & mask) {
    fn(subset);
    if (subset == mask) return;
  }
}
// A set of such sets, indexed by mask.
using DimSets = std::bitset<1 << kMaxStateDims>;

// The sizes of a cut's pieces: ceil chunks, or those of the ragged cut that the source (the target)
// has on the same mesh dim and tensor dim. If both have the same sizes, kSource.
enum class CutSizes : uint8_t { kCeil, kSource, kTarget };

// The placement of each mesh dim, and its position among the cuts of its tensor dim (0: outermost).
// One byte per mesh dim:
//   R         0
//   P(op)     1 + op
//   S(k)      0x80 | k << 3 | position
//   ragged S  0x40 | k with the source's sizes, 0x50 | k with the target's; always outermost
// Beside them the stage: the number of casts done (Problem::dtype).
class State {
 public:
  State() = default;

  bool IsReplicate(int d) const { return Code(d) == 0; }
  bool IsShard(int d) const { return (Code(d) & 0xC0) != 0; }
  bool IsPartial(int d) const { return Code(d) != 0 && !IsShard(d); }
  ReduceOp op(int d) const { return static_cast<ReduceOp>(Code(d) - 1); }  // REQUIRES: IsPartial(d)
  // REQUIRES of both: IsShard(d).
  int tensor_dim(int d) const { return (IsRagged(d) ? Code(d) : Code(d) >> 3) & 15; }
  int place(int d) const { return IsRagged(d) ? 0 : Code(d) & 7; }
  CutSizes cut_sizes(int d) const {
    if (!IsRagged(d)) return CutSizes::kCeil;
    return (Code(d) & 0x10) == 0 ? CutSizes::kSource : CutSizes::kTarget;
  }

  void SetReplicate(int d) { Set(d, 0); }
  void SetPartial(int d, ReduceOp op) { Set(d, 1 + static_cast<int>(op)); }
  void SetShard(int d, int tensor_dim, int place) { Set(d, 0x80 | tensor_dim << 3 | place); }
  // Outermost. REQUIRES: sizes != kCeil.
  void SetRagged(int d, int tensor_dim, CutSizes sizes) {
    Set(d, 0x40 | (sizes == CutSizes::kTarget ? 0x10 : 0) | tensor_dim);
  }

  int stage() const { return stage_; }
  State AtStage(int stage) const {
    State state = *this;
    state.stage_ = static_cast<uint8_t>(stage);
    return state;
  }

  // The packed placements, without the stage.
  uint64_t code() const { return packed_; }
  static State FromCode(uint64_t code, int stage) {
    State state;
    state.packed_ = code;
    return state.AtStage(stage);
  }

  // A total order, for breaking ties.
  friend auto operator<=>(const State&, const State&) = default;  // NOLINT(modernize-use-nullptr)
  template <typename H>
  friend H AbslHashValue(H h, const State& s) {
    return H::combine(std::move(h), s.packed_, s.stage_);
  }

 private:
  int Code(int d) const { return static_cast<int>(packed_ >> (8 * d) & 255); }
  bool IsRagged(int d) const { return (Code(d) & 0xC0) == 0x40; }
  void Set(int d, int code) {
    packed_ = (packed_ & ~(uint64_t{255} << (8 * d))) | static_cast<uint64_t>(code) << (8 * d);
  }
  uint64_t packed_ = 0;
  uint8_t stage_ = 0;
};

// The cuts of a State by tensor dim: the mesh dims that cut it, outermost first.
struct CutLists {
  struct List {
    int size = 0;
    CutSizes outermost = CutSizes::kCeil;  // sizes of the first cut; the others are ceil chunks
    std::array<int8_t, kMaxStateDims> dims = {};
    int operator[](int i) const { return dims[i]; }
    friend bool operator==(const List& a, const List& b) {
      return a.size == b.size && CommonLength(a, b) == a.size;
    }
    // The length of the longest common prefix.
    friend int CommonLength(const List& a, const List& b) {
      if (a.outermost != b.outermost) return 0;
      return CommonLength(absl::MakeConstSpan(a.dims.data(), a.size),
                          absl::MakeConstSpan(b.dims.data(), b.size));
    }
  };
  std::array<List, kMaxTensorRank> of;  // by tensor dim
};

// A source and a target sharding on one mesh. Immutable, except for the budget.
class Problem {
 public:
  // `reduce_dtype`: the dtype of reductions. Default: DefaultReduceDType (placement/cast.h).
  // `ends_at_crossing`: one end is at a crossing to another mesh. If that is `to`, its partial mesh
  // dims are reduced by the crossing, in the dtype of `to`, so that casts of contributions may
  // round. If it is `from`, whose cuts the planner chose itself, a cut may be gathered for a
  // partial average. Create() allows both at either end.
  // `unit_dims`: of the mesh; they include those that UnitDims::Of() finds without ceil cuts.
  // Default: those of `from` and `to`.
  //
  // INVALID_ARGUMENT: the shapes differ, a cast or a reduction does not exist, or `to` cannot be
  // reached from `from`. It cannot if the op of a partial mesh dim would change, a shard would
  // become a partial average, or a cast would round contributions that stay partial.
  // UNIMPLEMENTED: two meshes, more than kMaxStateDims mesh dims of size > 1, ragged cuts that make
  // more than 2^20 different boxes, more than kMaxTensorRank dims with the unit dims, or At of
  // several coordinates. Messages name the value and the rule.
  static absl::StatusOr<Problem> Create(const Sharding& from, const Sharding& to,
                                        std::optional<DType> reduce_dtype = std::nullopt,
                                        bool ends_at_crossing = false,
                                        std::optional<UnitDims> unit_dims = std::nullopt);

  int num_dims() const { return static_cast<int>(sizes_.size()); }
  int64_t size(int d) const { return sizes_[d]; }
  int mesh_dim(int d) const { return mesh_dims_[d]; }                           // index in the mesh
  int tensor_rank() const { return static_cast<int>(cut_to_.shape().size()); }  // with unit dims
  // In items. An item is an element; for f4e2m1, a pair of elements along the last tensor dim.
  int64_t extent(int tensor_dim) const { return extents_[tensor_dim]; }
  // The dtypes of the value in sequence, each different from the one before. The value has dtype(i)
  // in stage i. A cast leads from each stage to the next.
  int num_stages() const { return static_cast<int>(dtypes_.size()); }
  DType dtype(int stage) const { return dtypes_[stage]; }
  int64_t item_bytes(int stage) const { return item_bytes_[stage]; }
  int64_t least_item_bytes() const { return least_item_bytes_; }
  // The stage of all reductions. Without reductions, the last stage.
  int reduce_stage() const { return reduce_stage_; }
  // Whether a cast out of `state` is allowed. Before the reductions, partial mesh dims must be
  // those of the source; after them, only those that stay partial.
  bool MayCast(const State& state) const;
  // Whether no cut is inside a byte (f4e2m1).
  bool IsAligned(const State& state) const;
  const DeviceMesh& mesh() const { return to_.mesh(); }
  const Sharding& from() const { return from_; }
  const Sharding& to() const { return to_; }
  // The same with each owner as a cut of a unit dim (placement/unit_dims.h), as states have them.
  const Sharding& cut_from() const { return cut_from_; }
  const Sharding& cut_to() const { return cut_to_; }
  bool HasOwners() const { return !units_.empty(); }
  int num_unit_dims() const { return units_.size(); }  // the first tensor dims
  const State& source() const { return source_; }
  const State& target() const { return target_; }

  // Whether source or target have a ragged cut or an owner.
  bool HasRagged() const { return has_ragged_; }
  // The offsets of the pieces of mesh dim d's ragged cut, and the end of the last piece: size(d) +
  // 1 numbers of items. Empty if d has no cut of these sizes.
  absl::Span<const int64_t> begins(int d, CutSizes sizes) const {
    if (sizes == CutSizes::kCeil) return {};
    const auto& begins = begins_[sizes == CutSizes::kSource ? 0 : 1];
    return begins.empty() ? absl::Span<const int64_t>() : begins[d];
  }
  // The mesh dims that plans may cut tensor dim k by: a unit dim by its own, others by all.
  DimMask MayCut(int k) const { return may_cut_[k]; }
  // Whether mesh dim d may cut tensor dim k, as its outermost cut, into pieces of `sizes`.
  bool HasCut(int d, int k, CutSizes sizes) const;
  // Whether outermost cuts of one tensor dim by mesh dims d and e make the same pieces.
  bool MakesSamePieces(int d, CutSizes sizes, int e, CutSizes other) const;

  // The tensor dims that plans may cut: those that source or target cut; of the others, the
  // largest, the outermost of extent > 1 (its pieces need no packing), and on meshes of up to four
  // dims also each one of extent > 1, up to the first whose extent the number of ranks divides.
  const absl::InlinedVector<int, 6>& candidate_dims() const { return candidate_dims_; }
  // Whether mesh dim d is partial in the source and in the target. Steps leave it as it is.
  bool StaysPartial(int d) const { return source_.IsPartial(d) && target_.IsPartial(d); }
  // Whether `state` is partial on mesh dim d and must be reduced over it before the target. False
  // if d stays partial, or if a mask has made d partial for the target (in the last stage, with the
  // target's op). Any other mask has joined a reduction.
  bool IsReducible(const State& state, int d) const {
    if (!state.IsPartial(d) || StaysPartial(d)) return false;
    if (!target_.IsPartial(d)) return true;
    return state.stage() != target_.stage() || state.op(d) != target_.op(d);
  }
  // Whether `state` is partial on mesh dim d for the target alone, and may be reduced over it
  // together with mesh dims that must be, and then be masked again: the contributions are one value
  // and identities. Not for an average: the sum of its n equal contributions may overflow integers.
  bool MayReduceAlong(const State& state, int d) const {
    return state.IsPartial(d) && !source_.IsPartial(d) && state.op(d) != ReduceOp::kAvg &&
           !IsReducible(state, d);
  }
  // The op that a replicated dim may be masked to, so that it joins a reduction.
  ReduceOp mask_op() const { return mask_op_; }
  // Whether a mesh dim is partial in the target alone. If so, cut_mask_op() is the op that a cut
  // may be masked to, so that a reduction removes it.
  bool MasksTarget() const { return cut_mask_op_.has_value(); }
  ReduceOp cut_mask_op() const { return cut_mask_op_.value_or(mask_op_); }

  CutLists Cuts(const State& state) const {
    if (state.code() == source_.code()) return source_cuts();
    if (state.code() == target_.code()) return target_cuts();
    return MakeCuts(state);
  }
  const CutLists& source_cuts() const { return ends_[0].cuts; }
  const CutLists& target_cuts() const { return ends_[1].cuts; }
  // `state` as a sharding of the mesh, in the dtype of its stage, without unit dims. An owner is
  // written as in source or target if it is the same there, else as At. Mesh dims of size 1 are as
  // in the target; if an op of a partial one does not fit, all partial ones are R. REQUIRES:
  // IsAligned(state).
  Sharding ToSharding(const State& state) const;
  // Items of the largest local box.
  int64_t MaxItems(const State& state) const {
    if (state.code() == source_.code()) return ends_[0].max_items;
    if (state.code() == target_.code()) return ends_[1].max_items;
    return CountMaxItems(state);
  }
  int64_t MaxBytes(const State& state) const {
    return SaturatingMul(MaxItems(state), item_bytes(state.stage()));
  }
  // Bytes of the larger of source and target, and with reductions also of the source in their
  // dtype.
  int64_t MaxValueBytes() const;

  // Charges work on the problem to a budget, which must outlive it; null: no limit. Charge()
  // returns false after the limit is passed: loops then end with the results that they have.
  void SetBudget(WorkBudget* budget) { budget_ = budget; }
  WorkBudget* budget() const { return budget_; }
  bool Charge(int64_t work, int64_t times = 1) const {
    return budget_ == nullptr || budget_->Charge(work, times);
  }
  bool HasWorkLeft() const { return budget_ == nullptr || !budget_->exhausted(); }

 private:
  Problem(const Sharding& from, const Sharding& to, UnitDims units, Sharding cut_from,
          Sharding cut_to)
      : from_(from),
        to_(to),
        units_(std::move(units)),
        cut_from_(std::move(cut_from)),
        cut_to_(std::move(cut_to)) {}
  State ToState(const Sharding& sharding, CutSizes ragged) const;
  void SetBegins(const Sharding& sharding, CutSizes ragged);
  // Sets dtypes, extents and the target's stage. REQUIRES: source and target are set.
  absl::Status SetStages(std::optional<DType> reduce_dtype, bool ends_at_crossing);
  void ChooseCandidates();
  CutLists MakeCuts(const State& state) const;
  int64_t CountMaxItems(const State& state) const;

  Sharding from_;
  Sharding to_;
  UnitDims units_;
  Sharding cut_from_;
  Sharding cut_to_;
  absl::InlinedVector<int64_t, kMaxStateDims> sizes_;
  absl::InlinedVector<int, kMaxStateDims> mesh_dims_;
  absl::InlinedVector<int, 6> candidate_dims_;
  absl::InlinedVector<DimMask, 6> may_cut_;
  absl::InlinedVector<int64_t, 6> extents_;
  absl::InlinedVector<DType, 3> dtypes_;
  absl::InlinedVector<int64_t, 3> item_bytes_;
  int64_t least_item_bytes_ = 0;
  int reduce_stage_ = 0;
  // begins() of source and target, by mesh dim; empty if none is ragged.
  std::array<std::vector<std::vector<int64_t>>, 2> begins_;
  bool has_ragged_ = false;
  State source_;
  State target_;
  // Cached for source and target, which are queried most.
  struct End {
    CutLists cuts;
    int64_t max_items = 0;
  };
  std::array<End, 2> ends_;
  ReduceOp mask_op_ = ReduceOp::kSum;
  std::optional<ReduceOp> cut_mask_op_;
  WorkBudget* budget_ = nullptr;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_GRAPH_STATE_H_
