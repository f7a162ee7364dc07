// A map with a limit on the total weight of its entries; it evicts the least recently used entries.
//
//   LruCache<int, std::string> cache(1000);
//   cache.Insert(1, "one", /*weight=*/300);   // bytes, say; or 1 each, to bound their number
//   std::string* found = cache.Find(1);       // null: not there
//
// Values keep their addresses until they are evicted or erased. A key may point to heap memory that
// its value owns. Not thread-safe. A map that was moved from, or whose Insert() threw, may only be
// destroyed.
#ifndef MESHIFT_BASE_LRU_CACHE_H_
#define MESHIFT_BASE_LRU_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/container/flat_hash_map.h"

namespace meshift {

template <typename Key, typename Value>
class LruCache {
 public:
  explicit LruCache(int64_t max_weight) : max_weight_(max_weight) {}
  LruCache(LruCache&&) noexcept = default;  // not copyable: by_key_ points into entries_

  // Null if the key is not in the map; otherwise the entry counts as used.
  ABSL_ATTRIBUTE_HOT Value* Find(const Key& key) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return nullptr;
    if (it->second != entries_.begin()) entries_.splice(entries_.begin(), entries_, it->second);
    return &it->second->value;
  }

  // Inserts an entry, and evicts others to make room. If the key exists, keeps its value, which
  // then counts as used. Returns the value of the key; null, without any effect, if `weight`
  // exceeds the limit of the map, even if the key exists. REQUIRES: weight > 0.
  Value* Insert(Key key, Value value, int64_t weight = 1) {
    if (weight > max_weight_) return nullptr;
    if (Value* found = Find(key)) return found;
    while (weight_ > max_weight_ - weight) {
      Entry& last = entries_.back();
      weight_ -= last.weight;
      ++evicted_;
      by_key_.erase(last.key);
      entries_.pop_back();
    }
    weight_ += weight;
    entries_.push_front({std::move(key), std::move(value), weight});
    by_key_.emplace(entries_.front().key, entries_.begin());
    return &entries_.front().value;
  }

  // Removes the entry of the key, if any.
  void Erase(const Key& key) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return;
    const auto entry = it->second;
    by_key_.erase(it);  // the key may point into the value
    weight_ -= entry->weight;
    entries_.erase(entry);
  }

  size_t size() const { return entries_.size(); }
  int64_t weight() const { return weight_; }    // of all entries
  int64_t evicted() const { return evicted_; }  // evictions since construction

 private:
  struct Entry {
    Key key;
    Value value;
    int64_t weight;
  };
  const int64_t max_weight_;
  int64_t weight_ = 0;
  int64_t evicted_ = 0;
  std::list<Entry> entries_;  // most recently used first
  absl::flat_hash_map<Key, typename std::list<Entry>::iterator> by_key_;
};

}  // namespace meshift

#endif  // MESHIFT_BASE_LRU_CACHE_H_
