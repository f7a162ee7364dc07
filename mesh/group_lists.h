// GroupLists: a cache of a mesh's lists of group members, so that all members of a large group
// share one list. Lists of fewer than 32 ranks are not kept. When it holds more than about 4
// million ranks, the next new list clears it. Internal to mesh/.
//
//   RankList ranks = lists.Get(dims, base, [&] { return ...; });
#ifndef MESHIFT_MESH_GROUP_LISTS_H_
#define MESHIFT_MESH_GROUP_LISTS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "meshift/device_mesh.h"

namespace meshift {

// Safe for concurrent use.
class GroupLists {
 public:
  // The list of the group over `mesh_dims` whose first member is at position `base`; calls `make`
  // if it is not cached. `make` runs under the lock and must not call Get.
  RankList Get(absl::Span<const int> mesh_dims, int64_t base,
               absl::FunctionRef<std::vector<int64_t>()> make) {
    Key key(std::vector<int>(mesh_dims.begin(), mesh_dims.end()), base);
    const MutexLock lock(mutex_);
    if (const auto it = lists_.find(key); it != lists_.end()) return it->second;
    RankList list(make());
    if (list.size() < kFew) return list;
    if (kept_ > kMostRanks) {
      lists_.clear();
      kept_ = 0;
    }
    kept_ += list.size();
    lists_.emplace(std::move(key), list);
    return list;
  }

 private:
  using Key = std::pair<std::vector<int>, int64_t>;
  static constexpr size_t kFew = 32;  // smaller lists are not cached: making them again is cheaper
  static constexpr size_t kMostRanks = size_t{1} << 22;  // 32 MiB of ranks

  Mutex mutex_;
  size_t kept_ MESHIFT_GUARDED_BY(mutex_) = 0;  // ranks in all lists
  absl::flat_hash_map<Key, RankList> lists_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_MESH_GROUP_LISTS_H_
