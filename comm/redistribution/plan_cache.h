// The plans of a redistributor, lowered for its rank. Internal.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto entry, cache.Find({&from, &to, reduce_dtype}));
//   MESHIFT_ASSIGN_OR_RETURN(Call * call, cache.CallOf(*entry, layouts));
//
// Plans come from a PlannerCache, which others may share; what is lowered of them for this rank is
// kept here, bounded by bytes too. Verifies; makes no groups, so that what is refused has changed
// nothing. For one thread at a time.
#ifndef MESHIFT_COMM_REDISTRIBUTION_PLAN_CACHE_H_
#define MESHIFT_COMM_REDISTRIBUTION_PLAN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/lru_cache.h"
#include "comm/executor/executable.h"
#include "comm/executor/lanes.h"
#include "comm/program/coalesce.h"
#include "comm/program/lowering.h"
#include "comm/program/program.h"
#include "comm/record/call_text.h"
#include "comm/redistribution/view_check.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/plan.h"
#include "meshift/planner_cache.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "planner/plan_key.h"

namespace meshift::run_internal {

// A program, and what runs it, which the caller adds before it runs for the first time.
struct ProgramEntry {
  // Instructions that run on one stream.
  struct Part {
    ListRange instructions;
    int step = 0;  // of the first
    Stream* stream = nullptr;
    // Recorded behind this part where the next one is on another stream, which waits for it. Kept
    // from run to run.
    std::shared_ptr<Event> done;
  };
  explicit ProgramEntry(Program p) : workspace_bytes(p.workspace_bytes), program(std::move(p)) {}
  // What a call looks at, together.
  const int64_t workspace_bytes;           // the program's
  Lane* first_lane = nullptr;              // of the first part
  std::unique_ptr<Executable> executable;  // null before
  std::vector<Part> parts;
  std::vector<Communicator*> communicators;  // one per group
  uint64_t id = 0;                           // of this cache, never used again
  const Program program;
};

// One call: the program of one plan, or those of several.
struct Call : std::enable_shared_from_this<Call> {
  struct Part {
    std::shared_ptr<ProgramEntry> program;
    std::vector<int> tensors;      // numbers in the call; of the program in this order
    int64_t workspace_offset = 0;  // in a workspace of the whole call
  };
  // What a call looks at, together.
  std::vector<Part> parts;
  int64_t workspace_bytes = 0;
  std::shared_ptr<const CallText> call_text;  // for the record; null before it is asked for
  uint32_t num_done = 1;                      // events that it ends with, as far as is known
  bool is_bound = false;                      // all programs are
  bool has_run = false;                       // whether a call was recorded
  std::shared_ptr<RunRecord> record = std::make_shared<RunRecord>();  // of the last one
  Fingerprint fingerprint;
  std::shared_ptr<const std::string> text;  // for people
};

// A plan on this rank.
struct PlanEntry {
  static constexpr size_t kMaxLayouts = 64;  // besides row-major

  // What a call looks at, together; the plan's shardings among it, as a key is compared to them.
  Sharding from;
  Sharding to;
  std::shared_ptr<Call> call;  // for row-major tensors
  PlainTensor source;  // this rank's local tensors; of shape {0} where it is not in the mesh
  PlainTensor target;
  Plan plan;
  CoalesceTraits traits;
  bool has_source = true;  // whether this rank is in the mesh of the source, of the target
  bool has_target = true;
  LruCache<LoweringOptions, std::shared_ptr<Call>> others{kMaxLayouts};
};

struct FingerprintKey {
  Fingerprint fingerprint;
  friend bool operator==(const FingerprintKey&, const FingerprintKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const FingerprintKey& k) {
    return H::combine(std::move(h), k.fingerprint.high, k.fingerprint.low);
  }
};

class PlanCache {
 public:
  // `planner`: of options without a reduce_dtype. `max_bytes`: of programs, about; of plans that
  // are made and of plans that are brought, each. `coalesce_bytes`: for CoalesceTraitsOf.
  // `check_mesh`: of new plans.
  PlanCache(int64_t rank, std::shared_ptr<PlannerCache> planner, bool verify, int64_t max_bytes,
            int64_t coalesce_bytes, std::function<absl::Status(const DeviceMesh&)> check_mesh)
      : rank_(rank),
        planner_(std::move(planner)),
        coalesce_bytes_(coalesce_bytes),
        check_mesh_(std::move(check_mesh)),
        verify_(verify),
        made_(max_bytes),
        brought_(max_bytes) {}

  // The plan for two shardings alone, where this rank runs none.
  absl::StatusOr<Plan> FindPlan(const PlanKey& what);
  // The same, made ready where it is not here.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<std::shared_ptr<PlanEntry>> Find(const PlanKey& what);
  // A plan that the caller brings, verified where it is not here.
  absl::StatusOr<std::shared_ptr<PlanEntry>> Find(const Plan& plan);
  // What runs it for tensors of these layouts, which stays until the next call of this.
  absl::StatusOr<Call*> CallOf(PlanEntry& entry, const LoweringOptions& layouts);
  // Several plans in one call: the tensors' plans, and what would run each alone.
  absl::StatusOr<std::shared_ptr<Call>> Merge(absl::Span<const std::shared_ptr<PlanEntry>> plans,
                                              absl::Span<const std::shared_ptr<Call>> calls);

  // Of plans and programs.
  RedistributorStats stats() const {
    RedistributorStats stats = stats_;
    stats.plans_cached = static_cast<int64_t>(made_.size() + brought_.size());
    return stats;
  }

 private:
  static constexpr size_t kMaxMerged = 64;
  // What a program may merge beyond what one plan may have without staying alone.
  static constexpr int64_t kMergedPlans = 8;
  using Ids = std::vector<uint64_t>;

  absl::StatusOr<std::shared_ptr<PlanEntry>> FindAnew(const PlanKey& what);
  absl::Status CheckMeshes(const Plan& plan) const;
  absl::StatusOr<std::shared_ptr<PlanEntry>> Make(const Plan& plan);
  std::shared_ptr<ProgramEntry> Add(Program program);
  // Of one plan.
  std::shared_ptr<Call> AddCall(Program program, const Fingerprint& fingerprint,
                                std::shared_ptr<const std::string> text);

  const int64_t rank_;
  const std::shared_ptr<PlannerCache> planner_;
  const int64_t coalesce_bytes_;
  const std::function<absl::Status(const DeviceMesh&)> check_mesh_;
  const bool verify_;
  // Values keep what keys point to.
  LruCache<PlanKey, std::shared_ptr<PlanEntry>> made_;
  LruCache<FingerprintKey, std::shared_ptr<PlanEntry>> brought_;
  uint64_t next_id_ = 0;
  Ids ids_;  // of the call that is being looked up
  LruCache<Ids, std::shared_ptr<Call>> merged_{kMaxMerged};
  RedistributorStats stats_;
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_REDISTRIBUTION_PLAN_CACHE_H_
