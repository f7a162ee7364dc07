// Symmetric memory of the in-process engine. The first member that requests it allocates the
// buffers of all members, so no member waits for another's request. They are freed together, once
// all members have destroyed theirs.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto set, sets.Get(group, member, request));
//   LocalSymmetricBuffer buffer(set, /*buffer=*/0, member, [&](int64_t bytes) { used += bytes; });
//
// Buffers are aligned to 4096 bytes, and take a multiple of that; contents are unspecified.
// Requests must pass CheckRequest (meshift/engine.h). Internal to comm/local.
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
  // RESOURCE_EXHAUSTED if the allocation fails.
  static absl::StatusOr<std::shared_ptr<const LocalSymmetricSet>> Create(
      int64_t group, int members, const SymmetricRequest& request);

  int64_t group() const { return group_; }  // the group's id
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
  // Calls `count` with the buffer's bytes now, and with minus that number in the destructor.
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

// The requests that some but not all members of a group have made. Safe for concurrent use.
class LocalSymmetricSets {
 public:
  // The set for `member`'s next request. FAILED_PRECONDITION names both ranks if another member's
  // request differs; the caller must then end the group. RESOURCE_EXHAUSTED:
  // LocalSymmetricSet::Create has failed.
  absl::StatusOr<std::shared_ptr<const LocalSymmetricSet>> Get(const Group& group, int member,
                                                               const SymmetricRequest& request);

 private:
  struct Entry {
    int first_member = 0;
    SymmetricRequest request;
    absl::StatusOr<std::shared_ptr<const LocalSymmetricSet>> set;
    int members = 0;  // number of members that have made the request
  };
  struct PendingRequests {
    std::vector<int64_t> calls;  // number of requests, by member
    int64_t first = 0;           // the number of entries[0]
    std::deque<Entry> entries;
  };
  Mutex mutex_;
  absl::flat_hash_map<int64_t, PendingRequests> groups_ MESHIFT_GUARDED_BY(mutex_);  // by id
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_SYMMETRIC_H_
