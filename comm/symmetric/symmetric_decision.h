// Which way a call that names symmetric memory goes, and what remembers that. Internal to the
// redistributor.
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

// All that decides. Blocks have numbers of their own for ever, and so have pools.
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
  // What is posted: the plan, and what is said of its tensors.
  Fingerprint fingerprint;
  std::shared_ptr<const std::string> text;
  // Of a hit; `call` points into `form`.
  std::shared_ptr<const SymmetricForm> form;
  SymmetricCall call;
  std::shared_ptr<RunRecord> record;  // of its last call
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_SYMMETRIC_SYMMETRIC_DECISION_H_
