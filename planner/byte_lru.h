// A map bounded by bytes, which forgets what was not used for the longest time.
//
//   ByteLru<int, std::string> lru(1000);
//   lru.Insert(1, "one", /*bytes=*/300);
//   std::string* found = lru.Find(1);     // null: not there
//
// Values keep their addresses until they are forgotten; a key may point into its value. For one
// thread at a time.
#ifndef MESHIFT_PLANNER_BYTE_LRU_H_
#define MESHIFT_PLANNER_BYTE_LRU_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace meshift {

template <typename Key, typename Value>
class ByteLru {
 public:
  explicit ByteLru(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Null where there is none; else it counts as used.
  Value* Find(const Key& key) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, it->second);
    return &it->second->value;
  }

  // Puts in an entry of so many bytes, unless there is one with an equal key, or it is too large
  // for the map by itself. Others make room. REQUIRES: bytes > 0.
  void Insert(Key key, Value value, int64_t bytes) {
    if (bytes > max_bytes_ || by_key_.contains(key)) return;
    while (bytes_ > max_bytes_ - bytes) {
      Entry& last = entries_.back();
      bytes_ -= last.bytes;
      ++evicted_;
      by_key_.erase(last.key);
      entries_.pop_back();
    }
    bytes_ += bytes;
    entries_.push_front({std::move(key), std::move(value), bytes});
    by_key_.emplace(entries_.front().key, entries_.begin());
  }

  // Forgets an entry, if there is one.
  void Erase(const Key& key) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return;
    const auto entry = it->second;
    by_key_.erase(it);  // the key may point into the value
    bytes_ -= entry->bytes;
    entries_.erase(entry);
  }

  size_t size() const { return entries_.size(); }
  int64_t bytes() const { return bytes_; }
  int64_t evicted() const { return evicted_; }  // since it was made

 private:
  struct Entry {
    Key key;
    Value value;
    int64_t bytes;
  };
  const int64_t max_bytes_;
  int64_t bytes_ = 0;
  int64_t evicted_ = 0;
  std::list<Entry> entries_;  // the last used first
  absl::flat_hash_map<Key, typename std::list<Entry>::iterator> by_key_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_BYTE_LRU_H_
