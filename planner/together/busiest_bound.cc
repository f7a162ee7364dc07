#include "planner/together/busiest_bound.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "planner/plan/crossing.h"
#include "planner/plan/workspace.h"

namespace meshift {
namespace {

constexpr int64_t kRankWork = 16;  // of a rank's boxes
constexpr int64_t kPairWork = 4;
constexpr int64_t kMostPairs = 4096;  // of a domain

// A rank with a box that is not empty.
struct Holder {
  int32_t index = 0;  // of the rank
  int32_t piece = 0;  // equal boxes with equal contributions have one
  int32_t place = 0;  // equal boxes have one
  int64_t contribution = 0;
  Box box;
};

// The holders of a sharding, ascending by index, and what each piece's holders are.
class Pieces {
 public:
  Pieces(const Sharding& sharding, const Links& links) {
    const DeviceMesh& mesh = sharding.mesh();
    for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
      const Coordinate at = mesh.CoordinateAt(position);
      if (!sharding.HoldsAt(at)) continue;
      Box box = sharding.BoxAt(at);
      if (box.IsEmpty()) continue;
      int64_t contribution = 0;
      for (int d = 0; d < mesh.NumDims(); ++d) {
        if (sharding.placement(d).IsPartial()) {
          contribution = contribution * mesh.dim(d).size + at[d];
        }
      }
      holders_.push_back({.index = links.IndexOf(mesh.RankAt(position)),
                          .contribution = contribution,
                          .box = std::move(box)});
    }
    std::sort(holders_.begin(), holders_.end(),
              [](const Holder& a, const Holder& b) { return a.index < b.index; });
    std::vector<int32_t> order(holders_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    // The boxes of a sharding are equal or disjoint.
    const auto less = [&](int32_t i, int32_t j) {
      const Holder& a = holders_[i];
      const Holder& b = holders_[j];
      return std::tie(a.box.offset, a.contribution, i) < std::tie(b.box.offset, b.contribution, j);
    };
    std::sort(order.begin(), order.end(), less);
    int32_t place = -1;
    for (size_t i = 0; i < order.size(); ++i) {
      Holder& holder = holders_[order[i]];
      const Holder* const last = i == 0 ? nullptr : &holders_[order[i - 1]];
      const bool same_place = last != nullptr && last->box.offset == holder.box.offset;
      if (!same_place) ++place;
      if (!same_place || last->contribution != holder.contribution) {
        first_.push_back(holder.index);
        last_.push_back(holder.index);
      }
      holder.place = place;
      holder.piece = static_cast<int32_t>(first_.size()) - 1;
      last_.back() = holder.index;
    }
  }

  const std::vector<Holder>& holders() const { return holders_; }
  // The lowest and the highest index of a rank that holds the piece.
  int32_t First(const Holder& holder) const { return first_[holder.piece]; }
  int32_t Last(const Holder& holder) const { return last_[holder.piece]; }
  const Holder* Of(int32_t index) const {
    const auto it = std::lower_bound(holders_.begin(), holders_.end(), index,
                                     [](const Holder& h, int32_t i) { return h.index < i; });
    return it == holders_.end() || it->index != index ? nullptr : &*it;
  }

 private:
  std::vector<Holder> holders_;
  std::vector<int32_t> first_;  // by piece
  std::vector<int32_t> last_;
};

// The holders from `begin` on that are in the domain; sets *begin to the first one beyond it.
std::vector<const Holder*> InDomain(const std::vector<Holder>& holders, const Links& links,
                                    int level, int32_t domain, size_t* begin) {
  std::vector<const Holder*> found;
  for (; *begin < holders.size() && links.DomainOf(level, holders[*begin].index) == domain;
       ++*begin) {
    found.push_back(&holders[*begin]);
  }
  return found;
}

// Keeps one holder of each place.
void KeepPlaces(std::vector<const Holder*>* holders) {
  std::sort(holders->begin(), holders->end(),
            [](const Holder* a, const Holder* b) { return a->place < b->place; });
  holders->erase(std::unique(holders->begin(), holders->end(),
                             [](const Holder* a, const Holder* b) { return a->place == b->place; }),
                 holders->end());
}

// The elements of the boxes of `of` that are in none of the boxes of `in`. Boxes of one list are
// disjoint.
int64_t Without(const std::vector<const Holder*>& of, const std::vector<const Holder*>& in) {
  int64_t elements = 0;
  for (const Holder* a : of) {
    elements += a->box.NumElements();
    for (const Holder* b : in) elements -= CommonElements(a->box, b->box);
  }
  return elements;
}

DType Narrower(DType a, DType b) { return BitWidth(a) < BitWidth(b) ? a : b; }

int64_t TimeOf(__int128 bytes, __int128 bandwidth) {
  const __int128 ns = (bytes * 1000 + bandwidth - 1) / bandwidth;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return ns > kMost ? kMost : static_cast<int64_t>(ns);
}

}  // namespace

BusiestBound::BusiestBound(const Links& links, const PlannerOptions& options, WorkBudget& budget)
    : links_(links), options_(options), budget_(budget), of_rank_(links.num_ranks()) {
  for (int level = 0; level + 1 < links.num_levels(); ++level) {
    of_domain_.emplace_back(links.NumDomains(level));
  }
}

BusiestBound::OfMesh& BusiestBound::Of(const DeviceMesh& mesh) {
  // Neighbouring moves mostly have equal meshes.
  for (size_t i = of_mesh_.size(); i-- > 0;) {
    if (of_mesh_[i].mesh == mesh) return of_mesh_[i];
  }
  budget_.Charge(kRankWork, mesh.NumRanks() + links_.num_ranks());
  OfMesh set{.mesh = mesh, .has = std::vector<bool>(links_.num_ranks(), false)};
  for (const int64_t rank : mesh.Ranks()) set.has[links_.IndexOf(rank)] = true;
  const auto is_left = [&](int level) {
    for (int32_t i = 1; i < links_.num_ranks(); ++i) {
      if (set.has[i] != set.has[i - 1] &&
          links_.DomainOf(level, i) == links_.DomainOf(level, i - 1)) {
        return true;
      }
    }
    return false;
  };
  while (set.level + 1 < links_.num_levels() && !is_left(set.level)) ++set.level;
  of_mesh_.push_back(std::move(set));
  return of_mesh_.back();
}

void BusiestBound::Add(const TensorMove& move) {
  if (ContributionsOf(move.to) > 1 || NumElements(move.to.shape()) == 0) return;
  const int64_t ranks = move.from.mesh().NumRanks() + move.to.mesh().NumRanks();
  if (!budget_.Charge(kRankWork, ranks)) return;
  const bool reduces = ContributionsOf(move.from) > 1;
  DType dtype = Narrower(move.from.dtype(), move.to.dtype());
  if (reduces && options_.reduce_dtype) dtype = Narrower(dtype, *options_.reduce_dtype);
  const auto bytes = [&](int64_t elements) {
    return static_cast<__int128>(SaturatingBytes(dtype, elements)) * move.count;
  };
  const Pieces have(move.from, links_);
  const Pieces want(move.to, links_);

  for (const Holder& w : want.holders()) {
    const Holder* const own = reduces ? nullptr : have.Of(w.index);
    const int64_t held = own == nullptr ? 0 : CommonElements(own->box, w.box);
    of_rank_[w.index].in += bytes(w.box.NumElements() - held);
  }
  for (const Holder& s : have.holders()) {
    if (have.First(s) != have.Last(s)) continue;
    const Holder* w = want.Of(s.index);
    if (w != nullptr && want.First(*w) != want.Last(*w)) w = nullptr;  // others want it too
    const int64_t own = w == nullptr ? 0 : CommonElements(s.box, w->box);
    of_rank_[s.index].out += bytes(s.box.NumElements() - own);
  }

  // Elements count once. Those that the source's mesh alone has, and alone wants, need not leave
  // it; nor need those come to the target's mesh that one of its ranks has.
  const auto elements_of = [](const Pieces& pieces, const auto& counts) {
    std::vector<const Holder*> places;
    for (const Holder& holder : pieces.holders()) {
      if (counts(holder)) places.push_back(&holder);
    }
    KeepPlaces(&places);
    return Without(places, {});
  };
  const int64_t all = NumElements(move.to.shape());
  OfMesh& source = Of(move.from.mesh());
  const int64_t wanted_outside =
      elements_of(want, [&](const Holder& w) { return !source.has[w.index]; });
  source.flow.out += bytes(wanted_outside);
  OfMesh& target = Of(move.to.mesh());
  const int64_t held_inside =
      elements_of(have, [&](const Holder& s) { return static_cast<bool>(target.has[s.index]); });
  target.flow.in += bytes(all - held_inside);

  for (int level = 0; level + 1 < links_.num_levels(); ++level) {
    size_t next_have = 0;
    size_t next_want = 0;
    while (next_have < have.holders().size() || next_want < want.holders().size()) {
      const auto domain_at = [&](const Pieces& pieces, size_t next) {
        return next < pieces.holders().size() ? links_.DomainOf(level, pieces.holders()[next].index)
                                              : std::numeric_limits<int32_t>::max();
      };
      const int32_t domain = std::min(domain_at(have, next_have), domain_at(want, next_want));
      std::vector<const Holder*> has = InDomain(have.holders(), links_, level, domain, &next_have);
      std::vector<const Holder*> wants =
          InDomain(want.holders(), links_, level, domain, &next_want);
      // Those that no other domain has.
      const auto only_here = [&](const Pieces& pieces, const std::vector<const Holder*>& all) {
        std::vector<const Holder*> only;
        for (const Holder* h : all) {
          if (links_.DomainOf(level, pieces.First(*h)) == domain &&
              links_.DomainOf(level, pieces.Last(*h)) == domain) {
            only.push_back(h);
          }
        }
        KeepPlaces(&only);
        return only;
      };
      const std::vector<const Holder*> only_has = only_here(have, has);
      const std::vector<const Holder*> only_wants = only_here(want, wants);
      KeepPlaces(&has);
      KeepPlaces(&wants);
      if (std::ssize(has) * std::ssize(wants) > kMostPairs) continue;
      if (!budget_.Charge(kPairWork, 2 * std::ssize(has) * std::ssize(wants))) return;
      Flow& flow = of_domain_[level][domain];
      flow.in += bytes(Without(wants, has));
      flow.out += bytes(Without(only_has, only_wants));
    }
  }
}

int64_t BusiestBound::Ns() const {
  // The bandwidth of one rank's links of the levels above a rank, above a domain of level 0, ...
  std::vector<__int128> above(links_.num_levels() + 1, 0);
  for (int level = links_.num_levels() - 1; level >= 0; --level) {
    above[level] = above[level + 1] + links_.topology().level(level).bandwidth_bytes_per_us;
  }
  int64_t ns = 0;
  for (const Flow& flow : of_rank_)
    ns = std::max(ns, TimeOf(std::max(flow.in, flow.out), above[0]));
  for (const OfMesh& set : of_mesh_) {
    ns = std::max(
        ns, TimeOf(std::max(set.flow.in, set.flow.out), set.mesh.NumRanks() * above[set.level]));
  }
  for (size_t level = 0; level < of_domain_.size(); ++level) {
    std::vector<int64_t> members(of_domain_[level].size(), 0);
    for (int32_t i = 0; i < links_.num_ranks(); ++i) {
      ++members[links_.DomainOf(static_cast<int>(level), i)];
    }
    for (size_t d = 0; d < members.size(); ++d) {
      const Flow& flow = of_domain_[level][d];
      ns = std::max(ns, TimeOf(std::max(flow.in, flow.out), members[d] * above[level + 1]));
    }
  }
  return ns;
}

}  // namespace meshift
