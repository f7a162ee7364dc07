#include "planner/cost/lower_bound_task.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "base/checked_math.h"
#include "planner/graph/geometry.h"

namespace meshift {
namespace {

// Ranks that are looked at one by one, of the mesh dims that cut tensor dims which hang together.
constexpr int64_t kMaxRanks = 4096;

using Coordinates = Task::Coordinates;

DimMask DimsOf(const CutLists::List& list) {
  DimMask dims = 0;
  for (int i = 0; i < list.size; ++i) dims |= DimMask{1} << list[i];
  return dims;
}

int64_t Pieces(const Problem& problem, const CutLists::List& list) {
  int64_t pieces = 1;
  for (int i = 0; i < list.size; ++i) pieces *= problem.size(list[i]);
  return pieces;
}

Interval PieceAt(const Problem& problem, const CutLists::List& list, int k, const Coordinates& at) {
  Interval piece{0, problem.extent(k)};
  for (int i = 0; i < list.size; ++i) piece = Cut(problem, list, i, piece, at[list[i]]);
  return piece;
}

}  // namespace

Task::Task(const Problem& problem)
    : problem_(problem), before_(problem.source_cuts()), after_(problem.target_cuts()) {
  const State& source = problem.source();
  const State& target = problem.target();
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (target.IsReplicate(d)) wanting_ *= problem.size(d);
    if (problem.StaysPartial(d)) {
      classes_ *= problem.size(d);
    } else if (source.IsPartial(d)) {
      contributions_ *= problem.size(d);
      dims_ |= DimMask{1} << d;
    } else if (target.IsPartial(d)) {
      masks_ = true;
    }
    if (source.IsReplicate(d)) replicas_ *= problem.size(d);
    if (source.IsReplicate(d) && target.IsReplicate(d)) idle_ *= problem.size(d);
  }
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    elements_ *= problem.extent(k);
    cut_by_[k] = DimsOf(before_.of[k]) | DimsOf(after_.of[k]);
    for (const CutLists* lists : {&before_, &after_}) {
      even_ &= problem.extent(k) > 0 && lists->of[k].outermost == CutSizes::kCeil &&
               problem.extent(k) % Pieces(problem, lists->of[k]) == 0;
    }
  }
  if (masks_ || elements_ == 0) return;
  overlap_ = Held();
  if (contributions_ > 1) {
    // Each rank that wants an element gets a message that completes it; besides, contributions - 2
    // must have been merged before, one more where no rank that wants it has a contribution.
    total_ = classes_ * (elements_ * (wanting_ + contributions_ - 1) - overlap_);
  } else {
    held_ = overlap_ * idle_ * classes_;
    total_ = classes_ * wanting_ * elements_ - held_;
  }
  LookAtCorners();
}

// What the boxes before and after of a rank have in common is a product over tensor dims, and so is
// its sum over ranks, by sets of tensor dims that no mesh dim connects.
__int128 Task::Held() const {
  __int128 held = 1;
  DimMask done = 0;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (HasDim(done, k)) continue;
    DimMask connected = DimMask{1} << k;
    DimMask dims = cut_by_[k];
    for (bool grows = true; grows;) {
      grows = false;
      for (int j = k + 1; j < problem_.tensor_rank(); ++j) {
        if (HasDim(connected, j) || (cut_by_[j] & dims) == 0) continue;
        connected |= DimMask{1} << j;
        dims |= cut_by_[j];
        grows = true;
      }
    }
    done |= connected;
    held *= HeldAlong(connected);
  }
  return held;
}

// Over the coordinates of the mesh dims that cut these tensor dims; or no less.
__int128 Task::HeldAlong(DimMask tensor_dims) const {
  DimMask dims = 0;
  __int128 whole = 1;
  DimMask moving_before = 0;
  DimMask moving_after = 0;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (!HasDim(tensor_dims, k)) continue;
    const CutLists::List& a = before_.of[k];
    const CutLists::List& b = after_.of[k];
    dims |= cut_by_[k];
    whole *= problem_.extent(k);
    for (int i = CommonLength(a, b); i < a.size; ++i) moving_before |= DimMask{1} << a[i];
    for (int i = CommonLength(a, b); i < b.size; ++i) moving_after |= DimMask{1} << b[i];
  }
  // Where no mesh dim cuts anew before and after, every piece before meets every piece after,
  // within those that both have.
  if ((moving_before & moving_after) == 0) return whole;
  int64_t ranks = 1;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (HasDim(dims, d)) ranks = SaturatingMul(ranks, problem_.size(d));
  }
  if (ranks > kMaxRanks) {
    // No more than the shorter of the two boxes of each rank, nor than all boxes before, or after.
    __int128 shorter = ranks;
    __int128 all_before = whole;
    __int128 all_after = whole;
    for (int d = 0; d < problem_.num_dims(); ++d) {
      if (!HasDim(dims, d)) continue;
      if (!problem_.source().IsShard(d)) all_before *= problem_.size(d);
      if (!problem_.target().IsShard(d)) all_after *= problem_.size(d);
    }
    for (int k = 0; k < problem_.tensor_rank(); ++k) {
      if (!HasDim(tensor_dims, k)) continue;
      shorter *= std::min(ExtentsAfter(problem_, k, before_).front(),
                          ExtentsAfter(problem_, k, after_).front());
    }
    return std::min({shorter, all_before, all_after});
  }
  // A piece's number is a sum over the rank's coordinates.
  using Strides = std::array<int64_t, kMaxStateDims>;  // by mesh dim
  const auto strides = [&](const CutLists::List& list) {
    Strides by_dim = {};
    int64_t stride = 1;
    for (int i = list.size; i-- > 0; stride *= problem_.size(list[i])) by_dim[list[i]] = stride;
    return by_dim;
  };
  struct Along {
    // Lists of pieces are large: they are made where they stay.
    Along(const Problem& problem, const CutLists::List& a, const CutLists::List& b, int64_t extent)
        : before(AllPieces(problem, a, 0, extent)), after(AllPieces(problem, b, 0, extent)) {}
    PieceList before;
    PieceList after;
    const Interval* before_pieces = nullptr;  // theirs, once all are made
    const Interval* after_pieces = nullptr;
    Strides before_stride;
    Strides after_stride;
    int64_t before_at = 0;
    int64_t after_at = 0;
  };
  absl::InlinedVector<Along, 2> along;
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (!HasDim(tensor_dims, k)) continue;
    Along& a = along.emplace_back(problem_, before_.of[k], after_.of[k], problem_.extent(k));
    a.before_stride = strides(before_.of[k]);
    a.after_stride = strides(after_.of[k]);
  }
  for (Along& a : along) {
    a.before_pieces = a.before.data();
    a.after_pieces = a.after.data();
  }
  __int128 held = 0;
  Coordinates at = {};
  const auto move = [&](int d, int64_t by) {
    at[d] += by;
    for (Along& a : along) {
      a.before_at += by * a.before_stride[d];
      a.after_at += by * a.after_stride[d];
    }
  };
  // All coordinates of the innermost mesh dim, at each combination of the others'.
  const int inner = std::bit_width(dims) - 1;
  dims &= ~(DimMask{1} << inner);
  while (true) {
    for (int64_t i = 0; i < problem_.size(inner); ++i) {
      int64_t items = 1;
      for (const Along& a : along) {
        items *= Overlap(a.before_pieces[a.before_at + i * a.before_stride[inner]],
                         a.after_pieces[a.after_at + i * a.after_stride[inner]]);
      }
      held += items;
    }
    DimMask left = dims;
    for (; left != 0; left &= left - 1) {
      const int d = __builtin_ctz(left);
      if (at[d] + 1 < problem_.size(d)) break;
      move(d, -at[d]);
    }
    if (left == 0) return held;
    move(__builtin_ctz(left), 1);
  }
}

// Along tensor dim k, of the rank at these coordinates.
Task::Corner Task::LookAt(int k, const Coordinates& at) const {
  const CutLists::List& list = before_.of[k];
  const Interval after = PieceAt(problem_, after_.of[k], k, at);
  Corner corner{.wanted = after.Length()};
  corner.own = corner.wanted;
  if (corner.wanted == 0 || list.size == 0 || list == after_.of[k]) return corner;
  corner.own = Overlap(PieceAt(problem_, list, k, at), after);
  // The pieces with the first item of `after`, and with its last.
  std::array<int64_t, 2> index = {0, 0};
  for (const int end : {0, 1}) {
    const int64_t item = end == 0 ? after.begin : after.end - 1;
    Interval piece{0, problem_.extent(k)};
    for (int i = 0; i < list.size; ++i) {
      const int64_t n = problem_.size(list[i]);
      int64_t c = 0;
      if (i > 0 || list.outermost == CutSizes::kCeil) {
        const int64_t chunk = CeilDiv(piece.Length(), n);
        c = (item - piece.begin) / chunk;
        piece.begin += chunk * c;
        piece.end = std::min(piece.end, piece.begin + chunk);
      } else {
        while (Cut(problem_, list, 0, piece, c).end <= item) ++c;
        piece = Cut(problem_, list, 0, piece, c);
      }
      index[end] = index[end] * n + c;
      if (c != at[list[i]]) corner.across |= DimMask{1} << list[i];
    }
  }
  // Between the two, uneven cuts may have empty pieces.
  const int64_t between = index[1] - index[0];
  corner.holders = 1 + (even_ ? between : std::min<int64_t>(between, 1));
  return corner;
}

// Of ranks at the first or last coordinate of each mesh dim. What one of them needs, some rank
// needs.
void Task::LookAtCorners() {
  DimMask cut = 0;
  for (int k = 0; k < problem_.tensor_rank(); ++k) cut |= cut_by_[k];
  std::array<Corner, kMaxTensorRank> corners;
  Coordinates at = {};
  for (DimMask last = cut, before = 0;; before = last, last = (last - 1) & cut) {
    for (int d = 0; d < problem_.num_dims(); ++d) {
      at[d] = HasDim(last, d) ? problem_.size(d) - 1 : 0;
    }
    int64_t wanted = 1;
    int64_t own = 1;
    int64_t holders = 1;  // distinct pieces before that have something of the box after
    DimMask across = 0;
    for (int k = 0; k < problem_.tensor_rank(); ++k) {
      if (last == cut || (cut_by_[k] & (last ^ before)) != 0) corners[k] = LookAt(k, at);
      wanted *= corners[k].wanted;
      own *= corners[k].own;
      holders = SaturatingMul(holders, corners[k].holders);
      across |= corners[k].across;
    }
    if (wanted > 0) {
      dims_ |= across;
      lacking_ = std::max(lacking_, wanted - own);
      kept_ = std::max(kept_, own);
      messages_ = std::max(messages_, holders - (own > 0 ? 1 : 0));
    }
    if (last == 0) break;
  }
}

int64_t Task::LeastGathered() const {
  if (!even_) return 0;
  const int64_t target = problem_.MaxItems(problem_.target());
  int64_t together = target;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    if (HasDim(dims_, d) && problem_.target().IsShard(d)) {
      together = SaturatingMul(together, problem_.size(d));
    }
  }
  return std::max<int64_t>(together - problem_.MaxItems(problem_.source()), 0);
}

Task::Copies Task::CopiesNeeded() const {
  Copies copies;
  if (!even_ || contributions_ > 1 || masks_) return copies;
  // Along the tensor dims behind j pieces before and after are the same; along j they are not.
  int j = problem_.tensor_rank() - 1;
  int64_t old_pieces = 1;
  int64_t new_pieces = 1;
  for (; j >= 0; --j) {
    old_pieces = Pieces(problem_, before_.of[j]);
    new_pieces = Pieces(problem_, after_.of[j]);
    if (old_pieces != new_pieces) break;
  }
  if (j < 0) return copies;
  int64_t rows = 1;      // of a box after: the indices along the tensor dims before j
  int64_t distinct = 1;  // boxes
  int64_t common = 1;    // least rows of what two boxes have in common, so far
  int64_t torn = 1;      // of them, where a box before is longer along the next tensor dim
  int64_t joined = 1;    // where a box after is
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    const int64_t before = Pieces(problem_, before_.of[k]);
    const int64_t after = Pieces(problem_, after_.of[k]);
    distinct = SaturatingMul(distinct, after);
    if (k < j) rows = SaturatingMul(rows, problem_.extent(k) / after);
    if (before < after) torn = common;
    if (after < before) joined = common;
    // Pieces of lengths x and y, aligned at their common multiple, overlap by gcd(x, y) or more.
    common =
        SaturatingMul(common, std::gcd(problem_.extent(k) / before, problem_.extent(k) / after));
  }
  copies.row = elements_ / (static_cast<__int128>(rows) * distinct);
  copies.once = copies.row * (rows - 1) * distinct;
  copies.apiece = old_pieces % new_pieces == 0 ? held_ * (old_pieces / new_pieces) : held_;
  if (rows == 1) copies.apiece = 0;
  copies.torn_rows = torn;
  copies.joined_rows = joined;
  if (torn > 1 && joined > 1) copies.twice = elements_ - overlap_;
  return copies;
}

}  // namespace meshift
