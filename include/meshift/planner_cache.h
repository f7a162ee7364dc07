// PlannerCache: MakePlan with a cache of plans.
//
//   PlannerCache planner({.topology = topology}, {.max_bytes = 64 << 20});
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, planner.Find(from, to));    // planned
//   MESHIFT_ASSIGN_OR_RETURN(plan, planner.Find(from, to));         // looked up
//   planner.stats().hits;                                           // 1
//
// Results are those of MakePlan, refusals too. Exception: a plan that was cached under another
// budget is returned, even if making it would exceed max_work. Plans are cached by their two
// shardings and reduce_dtype. On one mesh, search results (paths) are also cached, under a key
// without names and without mesh dims of size 1: meshes that differ only in these share them.
//
// The size is bounded in bytes, approximately. The cache has 16 parts with equal shares of the
// limit; each evicts its least recently used entry first, and an entry larger than a share is not
// cached. Safe for concurrent use. Each part has its own lock, which is not held during a search:
// two threads that miss the same plan at the same time both make it, with the same result.
#ifndef MESHIFT_PLANNER_CACHE_H_
#define MESHIFT_PLANNER_CACHE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "meshift/dtype.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

class WorkBudget;  // base/work_budget.h

struct PlannerCacheLimits {
  // The limit of the cached plans, and also that of the cached paths. A plan takes a few thousand
  // bytes, more if ranks or sizes are listed.
  int64_t max_bytes = int64_t{64} << 20;
};

struct PlannerCacheStats {
  int64_t hits = 0;          // plans found in the cache
  int64_t shared_paths = 0;  // plans made from a cached path
  int64_t searches = 0;      // other misses: searches, refusals, and plans onto another mesh
  int64_t evicted = 0;       // plans and paths
  int64_t plans = 0;         // in the cache now
  int64_t paths = 0;         // in the cache now
  int64_t bytes = 0;         // of both, approximately
};

class PlannerCache {
 public:
  // `options` apply to all plans.
  explicit PlannerCache(PlannerOptions options = {}, const PlannerCacheLimits& limits = {});
  ~PlannerCache();

  // As MakePlan with the cache's options, except for `reduce_dtype` if given. Errors are not
  // cached.
  absl::StatusOr<Plan> Find(const Sharding& from, const Sharding& to,
                            std::optional<DType> reduce_dtype = std::nullopt);
  // The same, but charges the work to `budget`, which several plans share, instead of
  // options().max_work. Cached results are not charged, so whether the budget suffices depends on
  // earlier calls.
  absl::StatusOr<Plan> Find(const Sharding& from, const Sharding& to,
                            std::optional<DType> reduce_dtype, WorkBudget& budget);

  const PlannerOptions& options() const { return options_; }
  PlannerCacheStats stats() const;

 private:
  struct Parts;
  // `charges_known`: cached paths are charged as if they were searched for now.
  absl::StatusOr<Plan> Find(const Sharding& from, const Sharding& to,
                            std::optional<DType> reduce_dtype, WorkBudget& budget,
                            bool charges_known);

  const PlannerOptions options_;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CACHE_H_
