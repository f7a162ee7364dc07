#include "planner/search/domain_bound.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"

namespace meshift {
namespace {

// The most ranks of a domain: their pieces are listed.
constexpr int64_t kMaxSize = 4096;
// The mesh dims outside of which both ends are sampled; further ones share these ends.
constexpr int kMaxCorners = 3;

int64_t CountIndices(const PieceList& pieces) {
  int64_t items = 0;
  for (const Interval& piece : pieces) items += piece.Length();
  return items;
}

int64_t CountCommon(const PieceList& a, const PieceList& b) {
  int64_t items = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    items += CommonIndices(a[i], b[j]);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return items;
}

}  // namespace

DomainBound::DomainBound(const Problem& problem, const CostModel& model, Layouts& layouts)
    : problem_(problem), model_(model), layouts_(layouts) {
  if (!problem.mesh().IsRowMajor()) return;
  for (int level = 1; level < model.topology().NumLevels(); ++level) AddDomains(level);
  for (Domain& domain : domains_) {
    domain.wanted = layouts.bounds().empty().longest;
    for (int i = 0; i < layouts.num_lists(); ++i) {
      const List list = layouts.target().lists[i];
      domain.target[i] = PiecesOf(list, layouts.bounds().tensor_dim(i), domain);
      domain.wanted *= CountIndices(domain.target[i]);
    }
  }
}

// Lemma (links). In a step, the items that the ranks of a domain hold together, of those that they
// need, increase by at most the items that enter it. By CostModel::BestBandwidth() these take at
// least their bytes over `links`; in a reduction each result enters at least once, as a
// contribution or as a sum, and takes at least its bytes over `reduce_links`.
//
// A domain has whole mesh dims inside, and a run of coordinates of the next one.
void DomainBound::AddDomains(int level) {
  const int64_t size = model_.topology().level(level - 1).domain_size;
  Domain domain;
  int64_t inside = 1;
  int split = problem_.num_dims() - 1;
  for (; split >= 0 && inside * problem_.size(split) <= size; --split) {
    inside *= problem_.size(split);
    domain.last[split] = problem_.size(split) - 1;
  }
  const int64_t run = size / inside;
  if (split < 0 || size > kMaxSize || size % inside != 0 || problem_.size(split) % run != 0) return;
  domain.outside = (DimMask{2} << split) - 1;
  domain.links = SaturatingMul(size, model_.BestBandwidth(level, /*reduces=*/false));
  domain.reduce_links = SaturatingMul(size, model_.BestBandwidth(level, /*reduces=*/true));
  for (int d = split; d < problem_.num_dims(); ++d) {
    if (problem_.StaysPartial(d)) domain.parts *= d == split ? run : problem_.size(d);
  }
  for (int corner = 0; corner < 1 << std::min(split + 1, kMaxCorners); ++corner) {
    for (int d = 0; d <= split; ++d) {
      const bool at_end = (corner >> (d % kMaxCorners) & 1) != 0;
      const int64_t width = d == split ? run : 1;
      domain.first[d] = at_end ? problem_.size(d) - width : 0;
      domain.last[d] = domain.first[d] + width - 1;
    }
    domains_.push_back(domain);
  }
}

PieceList DomainBound::PiecesOf(List list, int k, const Domain& domain) const {
  absl::InlinedVector<List, kMaxStateDims> cuts;
  for (; list != CutTable::kNoCuts; list = layouts_.table().Parent(list)) cuts.push_back(list);
  std::reverse(cuts.begin(), cuts.end());
  PieceList pieces;
  AddPieces(cuts, {0, problem_.extent(k)}, domain, &pieces);
  return pieces;
}

void DomainBound::AddPieces(absl::Span<const List> cuts, const Interval& whole,
                            const Domain& domain, PieceList* pieces) const {
  const CutTable& table = layouts_.table();
  if (std::none_of(cuts.begin(), cuts.end(),
                   [&](List list) { return HasDim(domain.outside, table.last(list)); })) {
    if (whole.Length() > 0) pieces->push_back(whole);
    return;
  }
  const int d = table.last(cuts[0]);
  const Cut cut{problem_.size(d), problem_.begins(d, table.sizes(cuts[0]))};
  for (int64_t i = domain.first[d]; i <= domain.last[d]; ++i) {
    AddPieces(cuts.subspan(1), cut.Piece(whole, i), domain, pieces);
  }
}

const int64_t* DomainBound::Kept(int i, List list) {
  const size_t at = static_cast<size_t>(list) * layouts_.num_lists() + i;
  if (at >= at_.size()) at_.resize(2 * (at + 1), -1);
  if (at_[at] < 0) {
    at_[at] = static_cast<int>(kept_.size());
    const int k = layouts_.bounds().tensor_dim(i);
    for (const Domain& domain : domains_) {
      kept_.push_back(CountCommon(PiecesOf(list, k, domain), domain.target[i]));
    }
  }
  return kept_.data() + at_[at];
}

int64_t DomainBound::ComputeLeastNs(const State& state, DimMask reducible) {
  const Lists lists = layouts_.Decode(state).lists;
  for (int i = 0; i < layouts_.num_lists(); ++i) Kept(i, lists[i]);  // may reallocate kept_
  std::array<const int64_t*, kMaxTensorRank> kept;
  for (int i = 0; i < layouts_.num_lists(); ++i) kept[i] = Kept(i, lists[i]);
  __int128 least = 0;
  for (size_t j = 0; j < domains_.size(); ++j) {
    const Domain& domain = domains_[j];
    int64_t has = (reducible & domain.outside) == 0 ? layouts_.bounds().empty().longest : 0;
    for (int i = 0; i < layouts_.num_lists(); ++i) has *= kept[i][j];
    const __int128 items = static_cast<__int128>(domain.wanted - has) * domain.parts;
    const int64_t links = reducible == 0 ? domain.links : domain.reduce_links;
    least = std::max(least, items * problem_.least_item_bytes() * 1000 / links);
  }
  return static_cast<int64_t>(std::min<__int128>(least, INT64_MAX / 8));
}

}  // namespace meshift
