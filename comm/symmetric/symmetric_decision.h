// The redistributor's cached decision whether a call of one tensor in symmetric memory runs as one
// symmetric call (hit) or as the ordinary plan (miss). Internal to comm/redistribution.
//
//   const SymmetricKey key{plan.fingerprint(), pool.id(), use.source, use.target};
//   const SymmetricDecision* decision = decisions.Find(key);    // in an LruCache; null: not there
//   if (decision != nullptr && !decision->miss) communicator.CallSymmetric(decision->call, stream);
//
// Plain data, which checks nothing. redistributor_symmetric.cc makes the decisions.
#ifndef MESHIFT_COMM_SYMMETRIC_SYMMETRIC_DECISION_H_
#define MESHIFT_COMM_SYMMETRIC_SYMMETRIC_DECISION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/symmetric/symmetric_form.h"
#include "meshift/engine.h"
#include "meshift/plan.h"
#include "meshift/symmetric.h"

namespace meshift::run_internal {

// The key of the cache: everything that the decision depends on. Numbers of blocks and pools are
// never reused, so a decision does not become stale.
struct SymmetricKey {
  Fingerprint plan;
  int64_t pool = 0;
  SymmetricTensor source;
  SymmetricTensor target;
  friend bool operator==(const SymmetricKey&, const SymmetricKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const SymmetricKey& k) {
    return H::combine(std::move(h), k.plan.high, k.plan.low, k.pool, k.source.block,
                      k.source.offset, k.target.block, k.target.offset);
  }
};

struct SymmetricDecision {
  std::optional<SymmetricMiss> miss;
  // Ranks compare the fingerprint of the text, which describes the plan and the tensors' places.
  Fingerprint fingerprint;
  std::shared_ptr<const std::string> text;
  // Only for a hit; `call` points into `form`.
  std::shared_ptr<const SymmetricForm> form;
  SymmetricCall call;
  std::shared_ptr<RunRecord> record;  // of the last call
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_SYMMETRIC_SYMMETRIC_DECISION_H_
