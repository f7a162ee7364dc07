#include "planner/search/cut_table.h"

#include <algorithm>
#include <bit>

#include "base/checked_math.h"
#include "placement/cuts.h"

namespace meshift {
namespace {

// Units (base/work_budget.h) for a list, and for its pieces along a tensor dim: mostly memory.
constexpr int64_t kListWork = 64;
// Work of a piece that CoversAll() compares.
constexpr int64_t kPieceWork = 4;

// The only coordinate whose piece of a ragged cut is not empty; -1: there is another, or none.
int64_t OwnerOf(absl::Span<const int64_t> begins) {
  int64_t owner = -1;
  for (size_t i = 1; i < begins.size(); ++i) {
    if (begins[i] == begins[i - 1]) continue;
    if (owner >= 0) return -1;
    owner = static_cast<int64_t>(i) - 1;
  }
  return owner;
}

}  // namespace

CutTable::CutTable(const Problem& problem)
    : problem_(problem),
      num_samples_(1 + std::bit_width(static_cast<unsigned>(std::max(problem.num_dims(), 1) - 1))),
      rank_(problem.tensor_rank()),
      nodes_(1),
      along_(rank_, nullptr) {
  const CutLists& cuts = problem.target_cuts();
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    List list = kNoCuts;
    Samples& begin = target_begin_[k];
    Samples& end = target_end_[k];
    begin.fill(0);
    end.fill(problem.extent(k));
    for (int i = 0; i < cuts.of[k].size; ++i) {
      const int d = cuts.of[k][i];
      const CutSizes sizes = i == 0 ? cuts.of[k].outermost : CutSizes::kCeil;
      list = Append(list, d, sizes);
      CutSamples(d, sizes, begin, end, &begin, &end);
    }
    target_lists_[k] = list;
    for (int s = 0; s < num_samples_; ++s) target_[k][s] = end[s] - begin[s];
  }
  fills_target_ = FillsTarget(cuts);
}

bool CutTable::FillsTarget(const CutLists& target) const {
  if (problem_.HasRagged()) return false;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (problem_.extent(k) == 0) return false;
    const DimMask cut = dims(target_lists_[k]);
    for (DimMask last = cut; last != 0; last = (last - 1) & cut) {
      Interval piece{0, problem_.extent(k)};
      for (int i = 0; i < target.of[k].size; ++i) {
        const int d = target.of[k][i];
        piece = Chunk(piece, problem_.size(d), (last >> d & 1) != 0 ? problem_.size(d) - 1 : 0);
      }
      if (piece.Length() == 0) return false;
    }
  }
  return true;
}

void CutTable::CutSamples(int d, CutSizes sizes, const Samples& begin, const Samples& end,
                          Samples* new_begin, Samples* new_end) const {
  const int64_t n = problem_.size(d);
  if (sizes != CutSizes::kCeil) {
    const absl::Span<const int64_t> begins = problem_.begins(d, sizes);
    for (int s = 0; s < num_samples_; ++s) {
      (*new_begin)[s] = IsLast(s, d) ? begins[n - 1] : begins[0];
      (*new_end)[s] = IsLast(s, d) ? begins[n] : begins[1];
    }
    return;
  }
  int64_t length = 0;
  Chunks chunks(length, n);
  int64_t before_last = 0;  // length of the pieces before the last one
  for (int s = 0; s < num_samples_; ++s) {
    const int64_t low = begin[s];
    const int64_t high = end[s];
    if (high - low != length) {
      length = high - low;
      chunks = Chunks(length, n);
      before_last = chunks.full < n - 1 ? length : chunks.chunk * (n - 1);
    }
    const bool is_last = IsLast(s, d);
    (*new_begin)[s] = is_last ? low + before_last : low;
    (*new_end)[s] = is_last ? high : low + chunks.chunk;
  }
}

uint32_t CutTable::OwnerBit(int d, CutSizes sizes) const {
  const int64_t owner = OwnerOf(problem_.begins(d, sizes));
  if (owner < 0) return 0;
  const bool as_source =
      sizes == CutSizes::kSource || owner == OwnerOf(problem_.begins(d, CutSizes::kSource));
  return uint32_t{1} << (d + (owner == 0 ? 0 : as_source ? kMaxStateDims : 2 * kMaxStateDims));
}

Interval CutTable::PieceAt(List list, int k, absl::Span<const int64_t> at) const {
  if (list == kNoCuts) return {0, problem_.extent(k)};
  const int d = last(list);
  const Cut cut{problem_.size(d), problem_.begins(d, sizes(list))};
  return cut.Piece(PieceAt(Parent(list), k, at), at[d]);
}

bool CutTable::CoversAll(List outer, List inner, int k) const {
  // On any other mesh dim, `outer` would cut away a part of some piece.
  if ((dims(outer) & ~dims(inner)) != 0) return false;
  std::array<int64_t, kMaxStateDims> at = {};
  while (problem_.Charge(kPieceWork)) {
    if (!PieceAt(outer, k, at).Contains(PieceAt(inner, k, at))) return false;
    DimMask left = dims(inner);
    for (; left != 0; left &= left - 1) {
      const int d = std::countr_zero(left);
      if (++at[d] < problem_.size(d)) break;
      at[d] = 0;
    }
    if (left == 0) return true;
  }
  return false;
}

CutTable::List CutTable::Make(List list, int d, CutSizes sizes) {
  const List made = static_cast<List>(nodes_.size());
  problem_.Charge(kListWork);
  nodes_.emplace_back();
  at_ = nodes_.data();
  Node& node = nodes_.back();
  const Node& parent = nodes_[list];
  node.parent = list;
  node.size = static_cast<int8_t>(parent.size + 1);
  node.last = static_cast<int8_t>(d);
  node.dims = parent.dims | DimMask{1} << d;
  node.sizes = sizes;
  State cut;
  State next;
  if (sizes == CutSizes::kCeil) {
    cut.SetShard(d, 0, parent.size);
    next.SetShard(d, 1, parent.size);
  } else {
    cut.SetRagged(d, 0, sizes);
    next.SetRagged(d, 1, sizes);
  }
  node.code = parent.code | cut.code();
  node.code_per_tensor_dim = parent.code_per_tensor_dim | (next.code() - cut.code());
  (sizes == CutSizes::kCeil ? nodes_[list].next : ragged_[RaggedIndex(sizes)])[d] = made;
  along_.resize(nodes_.size() * rank_, nullptr);
  return made;
}

const CutTable::Pieces& CutTable::MakePieces(List list, int k) {
  Pieces& pieces = pieces_.emplace_back();
  problem_.Charge(kListWork);
  if (list == kNoCuts) {
    pieces.longest = problem_.extent(k);
    pieces.core = kNoCuts;
    pieces.owners = 0;
    pieces.begin.fill(0);
    pieces.end.fill(problem_.extent(k));
  } else {
    const Pieces& whole = Along(Parent(list), k);
    const int d = last(list);
    const CutSizes sizes = this->sizes(list);
    const Cut cut{problem_.size(d), problem_.begins(d, sizes)};
    pieces.longest = PieceLengths({whole.longest}, cut).front();
    const uint32_t ceil_bit = whole.longest <= 1 ? uint32_t{1} << d : 0;
    const uint32_t owner = sizes == CutSizes::kCeil ? ceil_bit : OwnerBit(d, sizes);
    pieces.owners = whole.owners | owner;
    pieces.core = owner != 0                   ? whole.core
                  : whole.core == Parent(list) ? list
                                               : Append(whole.core, d, sizes);
    CutSamples(d, sizes, whole.begin, whole.end, &pieces.begin, &pieces.end);
  }
  for (int s = 0; s < num_samples_; ++s) {
    const Interval piece{pieces.begin[s], pieces.end[s]};
    pieces.length[s] = piece.Length();
    pieces.wanted[s] = CommonIndices(piece, {target_begin_[k][s], target_end_[k][s]});
  }
  along_[list * rank_ + k] = &pieces;
  return pieces;
}

}  // namespace meshift
