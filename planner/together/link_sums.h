// Adds up the loads of several tensors by link, and finds the busiest link.
//
//   LinkSums sums(links);
//   sums.Add(loads);
//   sums.Busiest().ns;       // of the busiest link, T of together.h
//   sums.CopiesNs();         // of the rank with the most local copies, C of together.h
//
// Sums have 128 bits. No errors. One thread at a time. Internal to planner/together.
#ifndef MESHIFT_PLANNER_TOGETHER_LINK_SUMS_H_
#define MESHIFT_PLANNER_TOGETHER_LINK_SUMS_H_

#include <cstdint>
#include <vector>

#include "meshift/planner.h"
#include "planner/together/links.h"

namespace meshift {

struct LinkTime {
  BusiestLink link;
  int64_t ns = 0;  // saturates
};

class LinkSums {
 public:
  // Keeps a reference to `links`. `most`: at least the bytes of all loads together, for the unit of
  // SquaresWith().
  explicit LinkSums(const Links& links, __int128 most = 0);

  void Add(const std::vector<LinkLoad>& loads) { Change(loads, 1); }
  // REQUIRES: they were added.
  void Remove(const std::vector<LinkLoad>& loads) { Change(loads, -1); }
  // The time of the busiest link and of the most copies of a rank, with these loads too, in ns.
  // O(levels + loads).
  int64_t TimeWith(const std::vector<LinkLoad>& loads) const;
  // The two parts of it without more loads.
  int64_t LinksNs() const;
  int64_t CopiesNs() const;
  // By how much these loads raise the sum of the squares of all links' times, in some unit. Copies
  // do not count.
  __int128 SquaresWith(const std::vector<LinkLoad>& loads) const;
  // The first of the busiest links, as PlanSet::busiest. O(links).
  LinkTime Busiest() const;

 private:
  // The copy level has one at which ns stay ns.
  int64_t BandwidthOf(int level) const {
    return level == links_.copy_level() ? 1000
                                        : links_.topology().level(level).bandwidth_bytes_per_us;
  }
  int64_t TimeOf(int level, __int128 bytes) const;
  void Change(const std::vector<LinkLoad>& loads, int sign);

  const Links& links_;
  const int64_t places_;
  // By level, and for copies: a tournament tree over the places; leaf places_ + p is place p, node
  // 1 the root.
  std::vector<std::vector<__int128>> trees_;
  int shift_ = 0;
  std::vector<int64_t> weights_;  // by level, at most 2^16
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_TOGETHER_LINK_SUMS_H_
