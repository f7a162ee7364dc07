// Symmetric memory of the in-process engine: the first member that asks makes the buffers of all,
// so that nobody waits.
#ifndef MESHIFT_COMM_LOCAL_SYMMETRIC_H_
#define MESHIFT_COMM_LOCAL_SYMMETRIC_H_

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/local/group.h"
#include "meshift/engine.h"

namespace meshift {

// The buffers of all members of a group for one request.
class LocalSymmetricSet {
 public:
  // RESOURCE_EXHAUSTED where there is no memory.
  static absl::StatusOr<std::shared_ptr<const LocalSymmetricSet>> Create(
      int64_t group, int members, const SymmetricRequest& request);

  int64_t group() const { return group_; }  // its id
  const SymmetricRequest& request() const { return request_; }
  void* At(int64_t buffer, int member) const { return data_[buffer * members_ + member].get(); }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  LocalSymmetricSet(int64_t group, int members, const SymmetricRequest& request)
      : group_(group), members_(members), request_(request) {}

  const int64_t group_;
  const int members_;
  const SymmetricRequest request_;
  std::vector<std::unique_ptr<void, Free>> data_;
};

class LocalSymmetricBuffer final : public SymmetricBuffer {
 public:
  // `count` is told of bytes that come (positive) and go.
  LocalSymmetricBuffer(std::shared_ptr<const LocalSymmetricSet> set, int64_t buffer, int member,
                       std::function<void(int64_t)> count)
      : SymmetricBuffer(set->request().first + buffer),
        set_(std::move(set)),
        data_(set_->At(buffer, member)),
        count_(std::move(count)) {
    count_(size_bytes());
  }
  ~LocalSymmetricBuffer() override { count_(-size_bytes()); }
  void* data() const override { return data_; }
  int64_t size_bytes() const override { return set_->request().bytes; }
  int64_t group() const { return set_->group(); }

 private:
  const std::shared_ptr<const LocalSymmetricSet> set_;
  void* const data_;
  const std::function<void(int64_t)> count_;
};

// The requests that not all members of their group have made yet. Safe for concurrent use.
class LocalSymmetricSets {
 public:
  // The set of `member`'s next request. FAILED_PRECONDITION, with both ranks, where another member
  // has asked for something else.
  absl::StatusOr<std::shared_ptr<const LocalSymmetricSet>> Get(const Group& group, int member,
                                                               const SymmetricRequest& request);

 private:
  struct Entry {
    int first_member = 0;
    SymmetricRequest request;
    absl::StatusOr<std::shared_ptr<const LocalSymmetricSet>> set;
    int members = 0;  // that have asked
  };
  struct Asked {
    std::vector<int64_t> calls;  // of each member
    int64_t first = 0;           // the number of entries[0]
    std::deque<Entry> entries;
  };
  Mutex mutex_;
  absl::flat_hash_map<int64_t, Asked> groups_ MESHIFT_GUARDED_BY(mutex_);  // by id
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_SYMMETRIC_H_
