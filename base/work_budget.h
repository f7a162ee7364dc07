// A limit on counted work. It counts instead of measuring time, so that every rank stops at the
// same point.
//
//   WorkBudget budget(/*limit=*/int64_t{1} << 29);
//   while (more && budget.Charge(cost)) ...    // false: the limit is passed
//   if (budget.exhausted()) return budget.Refusal("planning");
//
// An exhausted budget stays exhausted: each loop that charges it stops early, and a function around
// them returns Refusal(). A limit of INT64_MAX is never passed. Callers charge about one unit for
// 10 ns on one core, and for large memory at least one unit per 2 bytes. Not thread-safe.
#ifndef MESHIFT_BASE_WORK_BUDGET_H_
#define MESHIFT_BASE_WORK_BUDGET_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/checked_math.h"

namespace meshift {

class WorkBudget {
 public:
  explicit WorkBudget(int64_t limit) : limit_(limit) {}
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // Adds work * times units; saturates. False: the limit is exceeded. REQUIRES: both >= 0.
  bool Charge(int64_t work, int64_t times = 1) {
    done_ = SaturatingAdd(done_, SaturatingMul(work, times));
    return done_ <= limit_;
  }
  bool exhausted() const { return done_ > limit_; }
  int64_t done() const { return done_; }
  int64_t limit() const { return limit_; }

  // RESOURCE_EXHAUSTED: "planning takes more work than max_work = 1000 allows; raise max_work
  // (--max-work)".
  absl::Status Refusal(std::string_view what) const;

 private:
  const int64_t limit_;
  int64_t done_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_BASE_WORK_BUDGET_H_
