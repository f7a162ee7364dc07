// Ascending ranks that many own together: each of a group's members has the list of all.
//
//   const RankList ranks = mesh.GroupListOf({0}, 7);   // the same list for every member
//   ranks.size();                                      // 8
//   absl::Span<const int64_t> span = ranks;
#ifndef MESHIFT_MESH_RANK_LIST_H_
#define MESHIFT_MESH_RANK_LIST_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace meshift {

// Copies are cheap and share one list that never changes. Safe for concurrent use.
class RankList {
 public:
  RankList() = default;  // empty
  explicit RankList(std::vector<int64_t> ranks)
      : rep_(std::make_shared<const Rep>(Rep{absl::HashOf(ranks), std::move(ranks)})) {}
  RankList(std::initializer_list<int64_t> ranks) : RankList(std::vector<int64_t>(ranks)) {}

  size_t size() const { return rep_ == nullptr ? 0 : rep_->ranks.size(); }
  bool empty() const { return size() == 0; }
  int64_t operator[](size_t i) const { return rep_->ranks[i]; }  // REQUIRES: i < size()
  const int64_t* begin() const { return rep_ == nullptr ? nullptr : rep_->ranks.data(); }
  const int64_t* end() const { return begin() + size(); }
  // Valid while a copy of this list is.
  operator absl::Span<const int64_t>() const { return {begin(), size()}; }  // NOLINT: a view

  // Whether both are one list; O(1).
  bool IsSameAs(const RankList& other) const { return rep_ == other.rep_; }
  friend bool operator==(const RankList& a, const RankList& b) {
    if (a.rep_ == b.rep_) return true;
    return absl::Span<const int64_t>(a) == absl::Span<const int64_t>(b);
  }
  template <typename H>
  friend H AbslHashValue(H h, const RankList& list) {
    return H::combine(std::move(h), list.rep_ == nullptr ? 0 : list.rep_->hash);
  }

 private:
  struct Rep {
    size_t hash;
    std::vector<int64_t> ranks;
  };
  std::shared_ptr<const Rep> rep_;  // null: empty
};

}  // namespace meshift

#endif  // MESHIFT_MESH_RANK_LIST_H_
