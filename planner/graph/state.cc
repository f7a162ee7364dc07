#include "planner/graph/state.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/status.h"
#include "placement/cast.h"
#include "placement/cuts.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

// The cost model enumerates all sizes of ragged cuts, for several tensor dims in all combinations.
constexpr int64_t kMaxRaggedChoices = int64_t{1} << 20;

// With more mesh dims the search has too many states to try to cut every tensor dim.
constexpr int kMaxWideDims = 4;

int64_t RaggedChoices(const Sharding& sharding) {
  int64_t choices = 1;
  for (const Placement& p : sharding.placements()) {
    if (!p.IsShard() || !p.IsRagged()) continue;
    choices = SaturatingMul(choices, static_cast<int64_t>(p.sizes().size()));
  }
  return choices;
}

}  // namespace

absl::StatusOr<Problem> Problem::Create(const Sharding& from, const Sharding& to,
                                        std::optional<DType> reduce_dtype, bool ends_at_crossing,
                                        std::optional<UnitDims> unit_dims) {
  if (from.shape() != to.shape()) {
    return InvalidArgument("source {} and target {} differ in shape", from.tensor().ToString(),
                           to.tensor().ToString());
  }
  if (!(from.mesh() == to.mesh())) {
    return Unimplemented("source mesh {} and target mesh {} differ; this version plans on one mesh",
                         from.mesh().ToString(), to.mesh().ToString());
  }
  for (const Sharding* end : {&from, &to}) {
    if (!HasManyOwners(*end)) continue;
    return Unimplemented("no search for At of several coordinates, as in {}", end->ToString());
  }
  MESHIFT_RETURN_IF_ERROR(CheckCast(from.dtype(), to.dtype()));
  UnitDims units = unit_dims ? *std::move(unit_dims) : UnitDims::Of({&from, &to});
  Sharding cut_from = from;
  Sharding cut_to = to;
  if (!units.empty()) {
    MESHIFT_ASSIGN_OR_RETURN(cut_from, units.Expand(from));
    MESHIFT_ASSIGN_OR_RETURN(cut_to, units.Expand(to));
  }
  Problem problem(from, to, std::move(units), std::move(cut_from), std::move(cut_to));
  const DeviceMesh& mesh = from.mesh();
  for (int d = 0; d < mesh.NumDims(); ++d) {
    if (mesh.dim(d).size == 1) continue;
    const Placement& s = from.placement(d);
    const Placement& t = to.placement(d);
    if (s.IsPartial() && t.IsPartial() && s.op() != t.op()) {
      return InvalidArgument(
          "{} -> {} on mesh dim '{}': a partial value cannot change its op without being reduced",
          s.ToString(), t.ToString(), mesh.dim(d).name);
    }
    // At a crossing the planner chose the shard itself. It is gathered before it is masked.
    if ((s.IsShard() || s.IsAt()) && t.IsPartial() && t.op() == ReduceOp::kAvg &&
        !ends_at_crossing) {
      return InvalidArgument("{} -> {} on mesh dim '{}': {} cannot become a partial average",
                             s.ToString(), t.ToString(), mesh.dim(d).name,
                             s.IsAt() ? "what one coordinate holds" : "a shard");
    }
    problem.sizes_.push_back(mesh.dim(d).size);
    problem.mesh_dims_.push_back(d);
  }
  if (problem.num_dims() > kMaxStateDims) {
    return Unimplemented("mesh {} has {} dims of size > 1; this version plans for at most {}",
                         mesh.ToString(), problem.num_dims(), kMaxStateDims);
  }
  problem.has_ragged_ = problem.HasOwners();
  problem.SetBegins(problem.cut_from_, CutSizes::kSource);
  problem.SetBegins(problem.cut_to_, CutSizes::kTarget);
  for (const Sharding* sharding : {&from, &to}) {
    const int64_t choices = RaggedChoices(*sharding);
    if (choices <= kMaxRaggedChoices) continue;
    return Unimplemented(
        "the ragged cuts of {} make {} different boxes; this version plans for at most {}",
        sharding->PlacementsText(), choices, kMaxRaggedChoices);
  }
  problem.source_ = problem.ToState(problem.cut_from_, CutSizes::kSource);
  problem.target_ = problem.ToState(problem.cut_to_, CutSizes::kTarget);
  MESHIFT_RETURN_IF_ERROR(problem.SetStages(reduce_dtype, ends_at_crossing));
  const auto summed = [](ReduceOp op) { return op == ReduceOp::kAvg ? ReduceOp::kSum : op; };
  for (int d = 0; d < problem.num_dims(); ++d) {
    const State& source = problem.source_;
    const State& target = problem.target_;
    if (source.IsPartial(d)) {
      problem.mask_op_ = summed(source.op(d));
    } else if (target.IsPartial(d)) {
      problem.cut_mask_op_ = summed(target.op(d));
    }
  }

  problem.ends_[0] = {problem.MakeCuts(problem.source_), problem.CountMaxItems(problem.source_)};
  problem.ends_[1] = {problem.MakeCuts(problem.target_), problem.CountMaxItems(problem.target_)};
  problem.ChooseCandidates();
  return problem;
}

void Problem::ChooseCandidates() {
  int64_t ranks = 1;
  for (const int64_t size : sizes_) ranks *= size;
  int largest = -1;  // of those that neither source nor target cuts
  // Cuts of a tensor dim whose extent the ranks divide are no worse than cuts of a later one.
  bool all_divide = num_dims() > kMaxWideDims;
  bool outermost = true;
  for (int k = 0; k < tensor_rank(); ++k) {
    if (source_cuts().of[k].size + target_cuts().of[k].size > 0) {
      candidate_dims_.push_back(k);
      continue;
    }
    if (largest < 0 || extent(k) > extent(largest)) largest = k;
    if (extent(k) <= 1) continue;
    if (outermost || !all_divide) candidate_dims_.push_back(k);
    outermost = false;
    all_divide |= extent(k) % ranks == 0;
  }
  const auto end = candidate_dims_.end();
  if (largest >= 0 && std::find(candidate_dims_.begin(), end, largest) == end) {
    candidate_dims_.push_back(largest);
    std::sort(candidate_dims_.begin(), candidate_dims_.end());
  }
  may_cut_.assign(tensor_rank(), (DimMask{1} << num_dims()) - 1);
  for (int unit = 0; unit < num_unit_dims(); ++unit) {
    const auto own =
        std::find(mesh_dims_.begin(), mesh_dims_.end(), units_.MeshDimOf(unit, mesh()));
    may_cut_[unit] = DimMask{1} << (own - mesh_dims_.begin());
  }
}

absl::Status Problem::SetStages(std::optional<DType> reduce_dtype, bool ends_at_crossing) {
  const DType source = from_.dtype();
  const DType target = to_.dtype();
  bool reduces = false;
  bool stays_partial = false;
  for (int d = 0; d < num_dims(); ++d) {
    reduces |= source_.IsPartial(d) && !target_.IsPartial(d);
    stays_partial |= StaysPartial(d);
  }
  dtypes_ = {source};
  if (reduces) {
    const DType reduce = reduce_dtype.value_or(DefaultReduceDType(source, target));
    for (const auto& [a, b] : {std::pair(source, reduce), std::pair(reduce, target)}) {
      MESHIFT_RETURN_IF_ERROR(CheckCast(a, b));
    }
    for (int d = 0; d < num_dims(); ++d) {
      if (source_.IsPartial(d)) MESHIFT_RETURN_IF_ERROR(CheckReduce(source_.op(d), reduce));
    }
    if (reduce != source) dtypes_.push_back(reduce);
    reduce_stage_ = num_stages() - 1;
  }
  if (dtypes_.back() != target) dtypes_.push_back(target);
  if (!reduces) reduce_stage_ = num_stages() - 1;
  target_ = target_.AtStage(num_stages() - 1);
  for (int i = 0; i + 1 < num_stages(); ++i) {
    if (!stays_partial || ends_at_crossing || IsExactCast(dtypes_[i], dtypes_[i + 1])) continue;
    return InvalidArgument(
        "{} -> {}: contributions to a partial value that stays partial would be rounded one by one "
        "by the cast from {} to {}",
        from_.ToString(), to_.ToString(), Name(dtypes_[i]), Name(dtypes_[i + 1]));
  }
  extents_.assign(cut_to_.shape().begin(), cut_to_.shape().end());
  for (const DType dtype : dtypes_) item_bytes_.push_back(std::max(BitWidth(dtype) / 8, 1));
  least_item_bytes_ = *std::min_element(item_bytes_.begin(), item_bytes_.end());
  if (source == DType::kF4E2M1) extents_.back() /= 2;  // Sharding ensures whole bytes
  return absl::OkStatus();
}

bool Problem::MayCast(const State& state) const {
  if (state.stage() + 1 == num_stages()) return false;
  for (int d = 0; d < num_dims(); ++d) {
    if (!state.IsPartial(d) || StaysPartial(d)) continue;
    const bool from_source = source_.IsPartial(d) && source_.op(d) == state.op(d);
    if (state.stage() >= reduce_stage_ || !from_source) return false;
  }
  return true;
}

int64_t Problem::MaxValueBytes() const {
  int64_t most = std::max(MaxBytes(source_), MaxBytes(target_));
  for (int d = 0; d < num_dims(); ++d) {
    if (!source_.IsPartial(d) || StaysPartial(d)) continue;
    most = std::max(most, MaxBytes(source_.AtStage(reduce_stage_)));
  }
  return most;
}

bool Problem::IsAligned(const State& state) const {
  if (from_.dtype() != DType::kF4E2M1) return true;
  const int last = tensor_rank() - 1;
  const CutLists::List cuts = Cuts(state).of[last];
  Lengths lengths = {extents_[last]};
  int first = 0;
  if (cuts.outermost != CutSizes::kCeil) {
    lengths = PieceLengths(lengths, {sizes_[cuts[0]], begins(cuts[0], cuts.outermost)});
    first = 1;
  }
  for (int64_t& length : lengths) length *= 2;  // in elements
  for (int i = first; i < cuts.size; ++i) lengths = PieceLengths(lengths, {sizes_[cuts[i]]});
  // A piece that ends inside a byte keeps that end under further cuts.
  return std::all_of(lengths.begin(), lengths.end(), [](int64_t n) { return n % 2 == 0; });
}

void Problem::SetBegins(const Sharding& sharding, CutSizes ragged) {
  auto& begins = begins_[ragged == CutSizes::kSource ? 0 : 1];
  for (int d = 0; d < num_dims(); ++d) {
    const Placement& p = sharding.placement(mesh_dims_[d]);
    if (!p.IsShard() || !p.IsRagged()) continue;
    if (ragged == CutSizes::kTarget && p == cut_from_.placement(mesh_dims_[d])) continue;
    const bool in_pairs =
        from_.dtype() == DType::kF4E2M1 && p.tensor_dim() + 1 == tensor_rank();  // whole bytes
    begins.resize(num_dims());
    begins[d] = BeginsOf(p.sizes());
    for (int64_t& begin : begins[d]) begin /= in_pairs ? 2 : 1;
    has_ragged_ = true;
  }
}

bool Problem::HasCut(int d, int k, CutSizes sizes) const {
  if (sizes == CutSizes::kCeil) return true;
  const Sharding& sharding = sizes == CutSizes::kSource ? cut_from_ : cut_to_;
  return !begins(d, sizes).empty() && sharding.placement(mesh_dims_[d]).tensor_dim() == k;
}

bool Problem::MakesSamePieces(int d, CutSizes sizes, int e, CutSizes other) const {
  return size(d) == size(e) && begins(d, sizes) == begins(e, other);
}

State Problem::ToState(const Sharding& sharding, CutSizes ragged) const {
  State state;
  for (int d = 0; d < num_dims(); ++d) {
    const Placement& p = sharding.placement(mesh_dims_[d]);
    if (p.IsPartial()) state.SetPartial(d, p.op());
  }
  for (int k = 0; k < tensor_rank(); ++k) {
    int place = 0;
    for (int mesh_dim : sharding.CutsOf(k)) {
      const auto it = std::find(mesh_dims_.begin(), mesh_dims_.end(), mesh_dim);
      if (it == mesh_dims_.end()) continue;
      const int d = static_cast<int>(it - mesh_dims_.begin());
      if (sharding.placement(mesh_dim).IsRagged()) {
        state.SetRagged(d, k, HasCut(d, k, ragged) ? ragged : CutSizes::kSource);
        ++place;
      } else {
        state.SetShard(d, k, place++);
      }
    }
  }
  return state;
}

CutLists Problem::MakeCuts(const State& state) const {
  CutLists cuts;
  for (int d = 0; d < num_dims(); ++d) {
    if (!state.IsShard(d)) continue;
    CutLists::List& list = cuts.of[state.tensor_dim(d)];
    list.dims[state.place(d)] = static_cast<int8_t>(d);
    if (state.place(d) == 0) list.outermost = state.cut_sizes(d);
    ++list.size;
  }
  return cuts;
}

Sharding Problem::ToSharding(const State& state) const {
  if (state == target_) return to_;
  std::vector<Placement> placements(cut_to_.placements().begin(), cut_to_.placements().end());
  std::vector<meshift::Cuts> cuts(tensor_rank());
  for (int d = 0; d < num_dims(); ++d) {
    Placement& p = placements[mesh_dims_[d]];
    if (state.IsShard(d)) {
      const CutSizes sizes = state.cut_sizes(d);
      p = sizes == CutSizes::kCeil
              ? Placement::Shard(state.tensor_dim(d))
              : (sizes == CutSizes::kSource ? cut_from_ : cut_to_).placement(mesh_dims_[d]);
    } else if (state.IsPartial(d)) {
      p = Placement::Partial(state.op(d));
    } else {
      p = Placement::Replicate();
    }
  }
  const CutLists mine = Cuts(state);
  const CutLists& wanted = target_cuts();
  for (int k = 0; k < tensor_rank(); ++k) {
    if (mine.of[k] == wanted.of[k]) {
      cuts[k].assign(cut_to_.CutsOf(k).begin(), cut_to_.CutsOf(k).end());
      continue;
    }
    for (int i = 0; i < mine.of[k].size; ++i) cuts[k].push_back(mesh_dims_[mine.of[k][i]]);
    for (int mesh_dim : cut_to_.CutsOf(k)) {
      if (mesh().dim(mesh_dim).size == 1) cuts[k].push_back(mesh_dim);
    }
  }
  const TensorType tensor{dtype(state.stage()), cut_to_.shape()};
  const auto collapsed = [&](const Sharding& expanded) {
    return units_.empty() ? expanded : units_.Collapse(expanded, {&from_, &to_});
  };
  absl::StatusOr<Sharding> sharding = Sharding::Create(mesh(), tensor, placements, cuts);
  if (sharding.ok()) return collapsed(*sharding);
  // The target's partial ops on mesh dims of size 1 may conflict with those of this state, or not
  // exist for this dtype.
  for (int d = 0; d < mesh().NumDims(); ++d) {
    if (mesh().dim(d).size == 1 && placements[d].IsPartial()) {
      placements[d] = Placement::Replicate();
    }
  }
  return collapsed(
      Sharding::Create(mesh(), tensor, std::move(placements), std::move(cuts)).value());
}

int64_t Problem::CountMaxItems(const State& state) const {
  // The longest ceil chunk of ceil chunks is that of one cut into all pieces, in any order.
  std::array<int64_t, kMaxTensorRank> pieces;
  std::array<int64_t, kMaxTensorRank> extents;
  for (int k = 0; k < tensor_rank(); ++k) {
    pieces[k] = 1;
    extents[k] = extent(k);
  }
  for (int d = 0; d < num_dims(); ++d) {
    if (!state.IsShard(d)) continue;
    const int k = state.tensor_dim(d);
    if (state.cut_sizes(d) == CutSizes::kCeil) {
      pieces[k] *= sizes_[d];
      continue;
    }
    const absl::Span<const int64_t> begins = this->begins(d, state.cut_sizes(d));
    extents[k] = 0;
    for (size_t j = 1; j < begins.size(); ++j) {
      extents[k] = std::max(extents[k], begins[j] - begins[j - 1]);
    }
  }
  int64_t items = 1;
  for (int k = 0; k < tensor_rank(); ++k) {
    items *= pieces[k] == 1 ? extents[k] : CeilDiv(extents[k], pieces[k]);
  }
  return items;
}

}  // namespace meshift
