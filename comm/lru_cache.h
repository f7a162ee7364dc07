// A bounded map that forgets what was not used for the longest time.
//
//   LruCache<int, std::string> cache(2);
//   cache.Insert(1, "one");
//   std::string* found = cache.Find(1);     // null: not there
//
// Values keep their addresses until they are forgotten. For one thread at a time.
#ifndef MESHIFT_COMM_LRU_CACHE_H_
#define MESHIFT_COMM_LRU_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace meshift {

template <typename Key, typename Value>
class LruCache {
 public:
  // Holds at most `capacity` entries, at least one.
  explicit LruCache(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)) {}

  // Null where there is none; else it counts as used.
  Value* Find(const Key& key) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, it->second);
    return &it->second->second;
  }

  // Puts an entry in, in place of one with an equal key.
  Value* Insert(Key key, Value value) {
    if (const auto it = by_key_.find(key); it != by_key_.end()) {
      // A key may refer to its value: out go both.
      // A key may point into its value, so it goes first.
      const auto entry = it->second;
      by_key_.erase(it);
      entries_.erase(entry);
    }
    if (entries_.size() == capacity_) {
      by_key_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(std::move(key), std::move(value));
    by_key_.emplace(entries_.front().first, entries_.begin());
    return &entries_.front().second;
  }

  size_t size() const { return entries_.size(); }

 private:
  using Entries = std::list<std::pair<Key, Value>>;
  const size_t capacity_;
  Entries entries_;  // the last used first
  absl::flat_hash_map<Key, typename Entries::iterator> by_key_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LRU_CACHE_H_
