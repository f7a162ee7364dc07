// The key of plans in caches: source, target and reduce dtype. It does not copy shardings: the key
// of an entry points into its plan.
//
//   LruCache<PlanKey, Plan> plans(max_bytes);
//   plans.Find({&from, &to, reduce_dtype});      // null: not in the cache
//
// Other planner options are not in the key, so a cache has one set of options.
#ifndef MESHIFT_PLANNER_PLAN_KEY_H_
#define MESHIFT_PLANNER_PLAN_KEY_H_

#include <optional>
#include <utility>

#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift {

// Both shardings must outlive the key.
struct PlanKey {
  const Sharding* from;
  const Sharding* to;
  std::optional<DType> reduce_dtype;
  friend bool operator==(const PlanKey& a, const PlanKey& b) {
    return *a.from == *b.from && *a.to == *b.to && a.reduce_dtype == b.reduce_dtype;
  }
  template <typename H>
  friend H AbslHashValue(H h, const PlanKey& k) {
    return H::combine(std::move(h), *k.from, *k.to, k.reduce_dtype);
  }
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_PLAN_KEY_H_
