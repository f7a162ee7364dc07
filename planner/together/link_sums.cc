#include "planner/together/link_sums.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/checked_math.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

using Int128 = __int128;

}  // namespace

LinkSums::LinkSums(const Links& links, Int128 most)
    : links_(links), places_(2 * int64_t{links.num_ranks()}) {
  trees_.assign(links.copy_level() + 1, std::vector<Int128>(2 * places_, 0));
  while (most >> shift_ >= Int128{1} << 32) ++shift_;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int level = 0; level < links.num_levels(); ++level) {
    least = std::min(least, BandwidthOf(level));
  }
  for (int level = 0; level < links.num_levels(); ++level) {
    weights_.push_back(std::max<int64_t>(MulDivFloor(1 << 16, least, BandwidthOf(level)), 1));
  }
}

int64_t LinkSums::TimeWith(const std::vector<LinkLoad>& loads) const {
  int64_t links_ns = 0;
  size_t next = 0;
  for (int level = 0;; ++level) {
    const std::vector<Int128>& tree = trees_[level];
    Int128 most = tree[1];
    for (; next < loads.size() && loads[next].level == level; ++next) {
      most = std::max(most, tree[places_ + loads[next].place] + loads[next].bytes);
    }
    const int64_t ns = TimeOf(level, most);
    if (level == links_.copy_level()) return SaturatingAdd(links_ns, ns);
    links_ns = std::max(links_ns, ns);
  }
}

int64_t LinkSums::LinksNs() const {
  int64_t ns = 0;
  for (int level = 0; level < links_.num_levels(); ++level) {
    ns = std::max(ns, TimeOf(level, trees_[level][1]));
  }
  return ns;
}

int64_t LinkSums::CopiesNs() const {
  return TimeOf(links_.copy_level(), trees_[links_.copy_level()][1]);
}

Int128 LinkSums::SquaresWith(const std::vector<LinkLoad>& loads) const {
  Int128 raise = 0;
  for (const LinkLoad& load : loads) {
    if (load.level == links_.copy_level()) break;  // the last level
    const int64_t weight = weights_[load.level];
    const Int128 more = (Int128{load.bytes} >> shift_) * weight;
    const Int128 sum = (trees_[load.level][places_ + load.place] >> shift_) * weight;
    raise += more * (2 * sum + more);  // below 2^48 each
  }
  return raise;
}

LinkTime LinkSums::Busiest() const {
  LinkTime busiest{.link = {.rank = links_.ranks()[0]}};
  for (int32_t place = 0; place < places_; ++place) {
    for (int level = 0; level < links_.num_levels(); ++level) {
      const int64_t ns = TimeOf(level, trees_[level][places_ + place]);
      if (ns <= busiest.ns) continue;
      busiest = {{links_.ranks()[place / 2], level, place % 2 == kReceived}, ns};
    }
  }
  return busiest;
}

int64_t LinkSums::TimeOf(int level, Int128 bytes) const {
  const int64_t bandwidth = BandwidthOf(level);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (bytes <= kMost) return MulDivCeil(static_cast<int64_t>(bytes), 1000, bandwidth);
  const Int128 ns = (bytes * 1000 + bandwidth - 1) / bandwidth;
  return ns > kMost ? kMost : static_cast<int64_t>(ns);
}

void LinkSums::Change(const std::vector<LinkLoad>& loads, int sign) {
  for (const LinkLoad& load : loads) {
    std::vector<Int128>& tree = trees_[load.level];
    int64_t node = places_ + load.place;
    tree[node] += sign * Int128{load.bytes};
    for (node /= 2; node > 0; node /= 2) {
      const Int128 most = std::max(tree[2 * node], tree[2 * node + 1]);
      if (tree[node] == most) break;
      tree[node] = most;
    }
  }
}

}  // namespace meshift
