// A planner that remembers its plans.
//
//   PlannerCache planner({.topology = topology}, {.max_bytes = 64 << 20});
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, planner.Find(from, to));    // planned
//   MESHIFT_ASSIGN_OR_RETURN(plan, planner.Find(from, to));         // looked up
//   planner.stats().hits;                                           // 1
//
// What it gives is what MakePlan gives. It remembers plans, by their two shardings, and, on one
// mesh, the paths of problems: a problem is what is left of two shardings without names and without
// mesh dims of size 1, so that meshes that differ in nothing else share what the search finds.
//
// Bounded by bytes, about: what was not used for the longest time goes first. Safe for concurrent
// use; it consists of parts with a lock each, which no search is made under, so two threads that
// miss the same plan at once both make it, alike.
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
  // Of plans and of paths, each; a plan takes some thousand, more where ranks or sizes are listed.
  int64_t max_bytes = int64_t{64} << 20;
};

struct PlannerCacheStats {
  int64_t hits = 0;          // plans that were found
  int64_t shared_paths = 0;  // plans made of a path that was found
  int64_t searches = 0;      // plans made anew; refusals, and plans onto another mesh, among them
  int64_t evicted = 0;       // plans and paths
  int64_t plans = 0;         // that are remembered now
  int64_t paths = 0;
  int64_t bytes = 0;  // that they take
};

class PlannerCache {
 public:
  // `options`: of all plans.
  explicit PlannerCache(PlannerOptions options = {}, const PlannerCacheLimits& limits = {});
  ~PlannerCache();

  // As MakePlan with the options of the cache, but for reduce_dtype where it is given. Refusals are
  // not remembered.
  absl::StatusOr<Plan> Find(const Sharding& from, const Sharding& to,
                            std::optional<DType> reduce_dtype = std::nullopt);
  // The same under a budget that several plans share, in place of options().max_work. What was
  // found before is not charged again, so whether the budget does depends on that.
  absl::StatusOr<Plan> Find(const Sharding& from, const Sharding& to,
                            std::optional<DType> reduce_dtype, WorkBudget& budget);

  const PlannerOptions& options() const { return options_; }
  PlannerCacheStats stats() const;

 private:
  struct Parts;
  // `charges_known`: paths that were found before count as if they were found now.
  absl::StatusOr<Plan> Find(const Sharding& from, const Sharding& to,
                            std::optional<DType> reduce_dtype, WorkBudget& budget,
                            bool charges_known);

  const PlannerOptions options_;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_CACHE_H_
