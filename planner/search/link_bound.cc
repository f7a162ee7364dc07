#include "planner/search/link_bound.h"

#include <algorithm>
#include <numeric>

#include "base/checked_math.h"

namespace meshift {
namespace {

// Fixed-point scale of the fraction share / of in AddSet().
constexpr int64_t kParts = int64_t{1} << 16;

}  // namespace

bool LinkBound::Applies(const Problem& problem, const CostModel& model, const Layouts& layouts) {
  const Topology& topology = model.topology();
  return topology.NumLevels() > 1 && problem.mesh().IsRowMajor() && problem.num_dims() > 1 &&
         topology.level(0).domain_size < problem.mesh().NumRanks() && !problem.HasRagged() &&
         layouts.num_lists() > 0;
}

LinkBound::LinkBound(const Problem& problem, const CostModel& model, Layouts& layouts)
    : problem_(problem),
      model_(model),
      layouts_(layouts),
      uncut_(layouts.bounds().empty().longest) {
  const Topology& topology = model.topology();
  for (int level = 1; level < topology.NumLevels(); ++level) {
    if (topology.level(level - 1).domain_size < problem.mesh().NumRanks()) AddSets(level);
  }
  for (Ranks& set : sets_) {
    set.wanted = uncut_;
    for (int i = 0; i < layouts.num_lists(); ++i) {
      set.target[i] = SpanOf(i, CutsOf(layouts.target().lists[i]), set);
      set.wanted *= set.target[i].items;
    }
  }
}

// Adds for each mesh dim d the smallest set of whole domains that has all coordinates of the mesh
// dims after d, unless it has all of d, too.
void LinkBound::AddSets(int level) {
  const int64_t domain = model_.topology().level(level - 1).domain_size;
  int64_t inside = 1;  // product of the sizes of the mesh dims after d
  for (int d = problem_.num_dims() - 1; d >= 0; --d) {
    const int64_t run = domain / std::gcd(domain, inside);
    if (run < problem_.size(d)) AddSet(level, d, run);
    inside *= problem_.size(d);
  }
}

// Lemma (links). Let a set of ranks consist of whole domains. In a step, the target items that its
// ranks hold together increase by at most the items that other domains send to them.
//   Each rank of the set receives over its own link while the step runs (GroupTimes::Blocks and
//   Direct). A gather or a reduction sends its group's items once into each domain, over one link
//   per member there. The price of n - 1 messages may leave out those to the s - 1 other members of
//   the sender's domain, so that at least the fraction (n - s) / (n - 1) of the bytes is priced.
//   `share / of` is the least such fraction over all groups.
void LinkBound::AddSet(int level, int dim, int64_t run) {
  int64_t ranks = run;
  for (int d = dim + 1; d < problem_.num_dims(); ++d) ranks *= problem_.size(d);
  const DimMask outside = (DimMask{2} << dim) - 1;
  int64_t share = 0;
  int64_t of = 0;
  for (DimMask dims = 1; dims < DimMask{1} << problem_.num_dims(); ++dims) {
    if ((dims & outside) == 0) continue;
    const GroupShape& shape = model_.Shape(dims);
    const int64_t sharing = shape.sharing[level - 1];
    if (sharing == 0) continue;
    if (of == 0 || static_cast<__int128>(shape.size - sharing) * of <
                       static_cast<__int128>(share) * (shape.size - 1)) {
      share = shape.size - sharing;
      of = shape.size - 1;
    }
  }
  if (of == 0) return;
  const int64_t bandwidth = model_.topology().level(level).bandwidth_bytes_per_us;
  Ranks& set = sets_.emplace_back();
  // With kParts, 2^63 bytes of 2^31 contributions still fit into 128 bits.
  set.links.num = static_cast<__int128>(1000) * problem_.least_item_bytes() * (share * kParts / of);
  set.links.den = static_cast<__int128>(ranks) * bandwidth * kParts;
  for (int d = 0; d < problem_.num_dims(); ++d) {
    set.coordinate_limit[d] = d < dim ? 1 : d == dim ? run : problem_.size(d);
    if (problem_.StaysPartial(d)) set.parts *= set.coordinate_limit[d];
  }
}

LinkBound::Cuts LinkBound::CutsOf(List list) const {
  const CutTable& table = layouts_.table();
  Cuts cuts(table.size(list));
  for (; list != CutTable::kNoCuts; list = table.Parent(list)) {
    cuts[table.size(list) - 1] = table.last(list);
  }
  return cuts;
}

// Items of an interval of this length that the ranks hold together under the cuts from `i` on.
int64_t LinkBound::ItemsOf(const Cuts& cuts, size_t i, int64_t length, const Ranks& ranks) const {
  bool all = true;
  for (size_t j = i; j < cuts.size(); ++j) {
    all &= ranks.coordinate_limit[cuts[j]] == problem_.size(cuts[j]);
  }
  if (all || length == 0) return length;
  const int64_t limit = ranks.coordinate_limit[cuts[i]];
  const Chunks chunks(length, problem_.size(cuts[i]));
  const int64_t items = std::min(limit, chunks.full) * ItemsOf(cuts, i + 1, chunks.chunk, ranks);
  if (limit <= chunks.full) return items;
  return items + ItemsOf(cuts, i + 1, chunks.rest, ranks);
}

LinkBound::Span LinkBound::SpanOf(int i, const Cuts& cuts, const Ranks& ranks) const {
  const int64_t extent = problem_.extent(layouts_.bounds().tensor_dim(i));
  Interval last{0, extent};
  for (const int d : cuts) last = Chunk(last, problem_.size(d), ranks.coordinate_limit[d] - 1);
  return {last.end, ItemsOf(cuts, 0, extent, ranks)};
}

const int64_t* LinkBound::Kept(int i, List list) {
  const size_t at = static_cast<size_t>(list) * layouts_.num_lists() + i;
  if (at >= at_.size()) at_.resize(2 * (at + 1), -1);
  if (at_[at] < 0) {
    at_[at] = static_cast<int>(kept_.size());
    const Cuts cuts = CutsOf(list);
    for (const Ranks& set : sets_) {
      const Span span = SpanOf(i, cuts, set);
      const Span& target = set.target[i];
      kept_.push_back(std::min({span.items, target.items, std::min(span.end, target.end)}));
    }
  }
  return kept_.data() + at_[at];
}

int64_t LinkBound::LinksNs(const Ranks& set, int64_t items) const {
  const __int128 ns = static_cast<__int128>(items) * set.parts * set.links.num / set.links.den;
  return static_cast<int64_t>(std::min<__int128>(ns, INT64_MAX / 8));
}

bool LinkBound::MayExceedOwnLink() const {
  const int64_t items = problem_.MaxItems(problem_.target());
  const int64_t ns = model_.TransferNs(SaturatingMul(items, problem_.least_item_bytes()));
  return std::any_of(sets_.begin(), sets_.end(),
                     [&](const Ranks& set) { return LinksNs(set, set.wanted) > ns; });
}

int64_t LinkBound::ComputeLeastNs(const State& state) {
  const DecodedState view = layouts_.Decode(state);
  for (int i = 0; i < layouts_.num_lists(); ++i) Kept(i, view.lists[i]);  // may reallocate kept_
  std::array<const int64_t*, kMaxTensorRank> kept;
  for (int i = 0; i < layouts_.num_lists(); ++i) kept[i] = Kept(i, view.lists[i]);
  int64_t least = 0;
  for (size_t s = 0; s < sets_.size(); ++s) {
    int64_t has = uncut_;
    for (int i = 0; i < layouts_.num_lists(); ++i) has *= kept[i][s];
    if (has < sets_[s].wanted) least = std::max(least, LinksNs(sets_[s], sets_[s].wanted - has));
  }
  return least;
}

}  // namespace meshift
