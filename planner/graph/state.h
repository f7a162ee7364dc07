// What the search works on: a problem stripped of names and of mesh dims of size 1, and its states,
// a packed integer each, with the stage of the casts.
//
//   MESHIFT_ASSIGN_OR_RETURN(Problem problem, Problem::Create(from, to));
//   problem.source();                    // a State: what each (remaining) mesh dim does
//   State next = problem.source();
//   next.SetReplicate(0);
//
// Within the planner, mesh dims are those of the problem: the mesh's dims of size > 1, in order.
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
// Some of all such sets, by mask.
using DimSets = std::bitset<1 << kMaxStateDims>;

// The sizes of a cut's pieces: ceil chunks, or those of the ragged cut that the source (the target)
// has on the same mesh dim and tensor dim. Of two such cuts with equal sizes, kSource.
enum class CutSizes : uint8_t { kCeil, kSource, kTarget };

// The placement of each mesh dim, with the place of every cut in its tensor dim's order. One byte
// per mesh dim: 0 = R; 1 + op = P(op); 0x80 | tensor dim << 3 | place = S; 0x40 | 0x10 for the
// target's sizes | tensor dim = a ragged S, which is always outermost. And how many casts are done
// (Problem::dtype).
class State {
 public:
  State() = default;

  bool IsReplicate(int d) const { return Code(d) == 0; }
  bool IsShard(int d) const { return (Code(d) & 0xC0) != 0; }
  bool IsPartial(int d) const { return Code(d) != 0 && !IsShard(d); }
  ReduceOp op(int d) const { return static_cast<ReduceOp>(Code(d) - 1); }
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

  // Everything but the stage.
  uint64_t code() const { return packed_; }
  static State FromCode(uint64_t code, int stage) {
    State state;
    state.packed_ = code;
    return state.AtStage(stage);
  }

  // The order in which ties are broken.
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

// The mesh dims that cut each tensor dim, outermost first: a State read the other way.
struct CutLists {
  struct List {
    int size = 0;
    CutSizes outermost = CutSizes::kCeil;  // of the first cut; the others are of ceil chunks
    std::array<int8_t, kMaxStateDims> dims = {};
    int operator[](int i) const { return dims[i]; }
    void Append(int d) { dims[size++] = static_cast<int8_t>(d); }
    void Insert(int at, int d);
    friend bool operator==(const List& a, const List& b) {
      return a.size == b.size && CommonLength(a, b) == a.size;
    }
    // How many cuts are alike, from the outermost on.
    friend int CommonLength(const List& a, const List& b) {
      if (a.outermost != b.outermost) return 0;
      return CommonLength(absl::MakeConstSpan(a.dims.data(), a.size),
                          absl::MakeConstSpan(b.dims.data(), b.size));
    }
  };
  std::array<List, kMaxTensorRank> of;  // by tensor dim
};

class Problem {
 public:
  // `reduce_dtype`: of the reductions; none: DefaultReduceDType (placement/cast.h).
  // `reduced_behind`: one end is at a crossing to another mesh. What is partial in `to` is reduced
  // behind it, in the dtype of `to`, so that casts of contributions may round; and what is cut in
  // `from`, which nobody asked for, may be gathered for a partial average.
  // INVALID_ARGUMENT where `to` cannot be reached from `from`; UNIMPLEMENTED for what the planner
  // does not know (two meshes, more than kMaxStateDims mesh dims of size > 1). The message names
  // the value and the rule.
  static absl::StatusOr<Problem> Create(const Sharding& from, const Sharding& to,
                                        std::optional<DType> reduce_dtype = std::nullopt,
                                        bool reduced_behind = false);

  int num_dims() const { return static_cast<int>(sizes_.size()); }
  int64_t size(int d) const { return sizes_[d]; }
  int mesh_dim(int d) const { return mesh_dims_[d]; }  // index in the mesh
  int tensor_rank() const { return static_cast<int>(to_.shape().size()); }
  // In items: elements, but pairs of f4e2m1 along the last tensor dim.
  int64_t extent(int tensor_dim) const { return extents_[tensor_dim]; }
  // The dtypes that the value has one after the other, each unlike the one before; stage i is that
  // of dtype(i), and a cast leads from a stage to the next.
  int num_stages() const { return static_cast<int>(dtypes_.size()); }
  DType dtype(int stage) const { return dtypes_[stage]; }
  int64_t item_bytes(int stage) const { return item_bytes_[stage]; }
  int64_t least_item_bytes() const { return least_item_bytes_; }
  // The stage in which everything is reduced; the last one where nothing is.
  int reduce_stage() const { return reduce_stage_; }
  // Whether a cast may lead out of `state`: its partial values are then those of the source, and
  // behind the reductions only those that stay.
  bool MayCast(const State& state) const;
  // Whether no cut is inside a byte.
  bool IsAligned(const State& state) const;
  const DeviceMesh& mesh() const { return to_.mesh(); }
  const Sharding& from() const { return from_; }
  const Sharding& to() const { return to_; }
  const State& source() const { return source_; }
  const State& target() const { return target_; }

  // Whether source or target have a ragged cut.
  bool HasRagged() const { return has_ragged_; }
  // Where the pieces of mesh dim d's ragged cut begin, and where the last one ends: size(d) + 1
  // items. Empty where d has no cut of these sizes.
  absl::Span<const int64_t> begins(int d, CutSizes sizes) const {
    if (sizes == CutSizes::kCeil) return {};
    const auto& begins = begins_[sizes == CutSizes::kSource ? 0 : 1];
    return begins.empty() ? absl::Span<const int64_t>() : begins[d];
  }
  // Whether mesh dim d may cut tensor dim k, as its outermost cut, into pieces of `sizes`.
  bool HasCut(int d, int k, CutSizes sizes) const;
  // Whether outermost cuts of mesh dims d and e of the same tensor dim make the same pieces.
  bool CutAlike(int d, CutSizes sizes, int e, CutSizes other) const;

  // Tensor dims that cuts may be added to: those that source or target cut, and of the others the
  // largest, the outermost that is longer than 1, along which pieces need no packing, and on meshes
  // of up to four dims each that has no dim before it that all ranks divide.
  const absl::InlinedVector<int, 6>& candidate_dims() const { return candidate_dims_; }
  int largest_dim() const { return largest_dim_; }  // of them; -1 for a rank-0 tensor
  // Partial in the source and in the target: never touched.
  bool StaysPartial(int d) const { return source_.IsPartial(d) && target_.IsPartial(d); }
  // Whether `state` is partial on mesh dim d and must be reduced over it before it is the target:
  // what stays partial is not, nor what a mask has made for the target, which it does in the last
  // stage. Any other mask has joined a reduction.
  bool IsReducible(const State& state, int d) const {
    if (!state.IsPartial(d) || StaysPartial(d)) return false;
    if (!target_.IsPartial(d)) return true;
    return state.stage() != target_.stage() || state.op(d) != target_.op(d);
  }
  // Whether `state` is partial on mesh dim d for the target alone, and may be reduced over it along
  // with what must be, and be masked again: what was masked is a value and identities. An average
  // is not: of n equal contributions integers may wrap.
  bool MayReduceAlong(const State& state, int d) const {
    return state.IsPartial(d) && !source_.IsPartial(d) && state.op(d) != ReduceOp::kAvg &&
           !IsReducible(state, d);
  }
  // The op that a replicated dim may be masked to, so that it joins a reduction.
  ReduceOp mask_op() const { return mask_op_; }
  // Whether a mesh dim is partial in the target alone; then the op that a cut may be masked to, so
  // that a reduction makes it whole.
  bool MasksTarget() const { return cut_mask_op_.has_value(); }
  ReduceOp cut_mask_op() const { return cut_mask_op_.value_or(mask_op_); }

  CutLists Cuts(const State& state) const {
    if (state.code() == source_.code()) return source_cuts();
    if (state.code() == target_.code()) return target_cuts();
    return MakeCuts(state);
  }
  const CutLists& source_cuts() const { return ends_[0].cuts; }
  const CutLists& target_cuts() const { return ends_[1].cuts; }
  // The state with these cuts; dims that are in no list are as in `base`, or R if they cut there.
  State WithCuts(const State& base, const CutLists& cuts) const;
  // `state` as a sharding of the mesh, of its stage's dtype; mesh dims of size 1 are as in the
  // target.
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
  // No value on the way has more: the larger of source and target, or the source in the dtype of
  // the reductions, where there are any.
  int64_t MaxValueBytes() const;

  // Counts work on the problem against a budget, which outlives it; none: no limit. Charge()
  // returns false where the limit is passed: loops then end with the results that they have.
  void SetBudget(WorkBudget* budget) { budget_ = budget; }
  WorkBudget* budget() const { return budget_; }
  bool Charge(int64_t work, int64_t times = 1) const {
    return budget_ == nullptr || budget_->Charge(work, times);
  }
  bool HasWorkLeft() const { return budget_ == nullptr || !budget_->exhausted(); }

 private:
  Problem(Sharding from, Sharding to) : from_(std::move(from)), to_(std::move(to)) {}
  State Reduce(const Sharding& sharding, CutSizes ragged) const;
  void SetBegins(const Sharding& sharding, CutSizes ragged);
  // Sets dtypes, extents and the target's stage. REQUIRES: source and target are set.
  absl::Status SetStages(std::optional<DType> reduce_dtype, bool reduced_behind);
  void ChooseCandidates();
  CutLists MakeCuts(const State& state) const;
  int64_t CountMaxItems(const State& state) const;

  Sharding from_;
  Sharding to_;
  absl::InlinedVector<int64_t, kMaxStateDims> sizes_;
  absl::InlinedVector<int, kMaxStateDims> mesh_dims_;
  absl::InlinedVector<int, 6> candidate_dims_;
  int largest_dim_ = -1;
  absl::InlinedVector<int64_t, 6> extents_;
  absl::InlinedVector<DType, 3> dtypes_;
  absl::InlinedVector<int64_t, 3> item_bytes_;
  int64_t least_item_bytes_ = 0;
  int reduce_stage_ = 0;
  // Of source and target; by mesh dim, or empty where none is ragged.
  std::array<std::vector<std::vector<int64_t>>, 2> begins_;
  bool has_ragged_ = false;
  State source_;
  State target_;
  // Of source and target, what is asked again and again.
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
