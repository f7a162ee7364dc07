// A redistributor's cache of plans and of this rank's programs. Internal to comm/redistribution.
//
//   MESHIFT_ASSIGN_OR_RETURN(const auto* entry, cache.Find({&from, &to, reduce_dtype}));
//   MESHIFT_ASSIGN_OR_RETURN(Call * call, cache.CallOf(**entry, layouts));
//
// Plans come from a PlannerCache, which several redistributors may share. This cache keeps the
// programs that are lowered from them for this rank: those for row-major tensors within a limit in
// bytes; others, merged ones and lists that are planned together within limits in number. It makes
// no communicators, so that a refused call changes nothing but caches and their counts. Not
// thread-safe. Errors: those of MakePlan, Lower(), MergePrograms and `check_mesh`.
// INVALID_ARGUMENT: a plan of the caller breaks a rule. FAILED_PRECONDITION: a batch-invariant plan
// of the caller uses reductions of the engine, and this engine has neither the plan's
// native_invariance nor kReduceScatter.
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
#include "comm/executor/group_streams.h"
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

// A program. The caller adds its communicators and executable before the first run.
struct ProgramEntry {
  // Instructions that run on one stream.
  struct Part {
    ListRange instructions;
    int step = 0;  // of the first instruction
    Stream* stream = nullptr;
    // Recorded after this part if the next one is on another stream, which waits for it. Reused by
    // each run.
    std::shared_ptr<Event> done;
  };
  explicit ProgramEntry(Program p) : workspace_bytes(p.workspace_bytes), program(std::move(p)) {}
  // Every call reads the first members, so they are adjacent.
  const int64_t workspace_bytes;           // the program's
  GroupStream* first_stream = nullptr;     // the stream of the first part
  std::unique_ptr<Executable> executable;  // null before the first run
  std::vector<Part> parts;
  std::vector<Communicator*> communicators;  // one per group
  uint64_t id = 0;                           // unique in this cache, never reused
  const Program program;
};

// A cached call: the program of one plan, or the programs of a list of plans.
struct Call : std::enable_shared_from_this<Call> {
  struct Part {
    std::shared_ptr<ProgramEntry> program;
    std::vector<int> tensors;      // the program's tensors in order, by index in the call
    int64_t workspace_offset = 0;  // in a workspace for the whole call
  };
  // Every call reads these members, so they are adjacent.
  std::vector<Part> parts;
  int64_t workspace_bytes = 0;
  std::shared_ptr<const CallText> call_text;  // for the record; null before its first use
  uint32_t num_done = 1;                      // events at its end; a guess before the first run
  bool is_bound = false;                      // whether all programs have their executables
  bool has_run = false;                       // whether a call was recorded
  std::shared_ptr<RunRecord> record = std::make_shared<RunRecord>();  // of the last run
  Fingerprint fingerprint;
  std::shared_ptr<const std::string> text;  // description for errors and logs
};

// A plan and its programs on this rank.
struct PlanEntry {
  static constexpr size_t kMaxLayouts = 64;  // besides row-major

  // Every call reads the first members, so they are adjacent. The shardings are copies of the
  // plan's, since lookups compare keys with them.
  Sharding from;
  Sharding to;
  std::shared_ptr<Call> call;  // for row-major tensors
  PlainTensor source;          // this rank's local tensors; of shape {0} if it is not in the mesh
  PlainTensor target;
  Plan plan;
  CoalesceTraits traits;
  bool has_source = true;  // whether this rank is in the source's mesh
  bool has_target = true;  // whether this rank is in the target's mesh
  LruCache<LoweringOptions, std::shared_ptr<Call>> others{kMaxLayouts};
};

using PlanEntries = std::vector<std::shared_ptr<PlanEntry>>;

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
  // `planner`: its options have no reduce_dtype. `verify`: whether to verify plans of the caller.
  // `max_bytes`: the approximate limit of the row-major programs of plans that MakePlan made, and
  // the same again for other plans; a program above it is not cached. `coalesce_bytes`: for
  // CoalesceTraitsOf(). `check_mesh` is called for each mesh of a new plan.
  PlanCache(int64_t rank, std::shared_ptr<PlannerCache> planner, bool verify, int64_t max_bytes,
            int64_t coalesce_bytes, std::function<absl::Status(const DeviceMesh&)> check_mesh)
      : rank_(rank),
        planner_(std::move(planner)),
        coalesce_bytes_(coalesce_bytes),
        check_mesh_(std::move(check_mesh)),
        verify_(verify),
        planner_plans_(max_bytes),
        other_plans_(max_bytes) {}

  // Only the plan for two shardings, for a rank that runs no program.
  absl::StatusOr<Plan> FindPlan(const PlanKey& what);
  // The plan for two shardings with its program, which is lowered if it is not cached. The pointer
  // is valid until the next call of Find or FindTogether; a copy of what it points to, longer.
  ABSL_ATTRIBUTE_HOT absl::StatusOr<const std::shared_ptr<PlanEntry>*> Find(const PlanKey& what);
  // A plan of the caller, which is verified and lowered if it is not cached; else as above.
  absl::StatusOr<const std::shared_ptr<PlanEntry>*> Find(const Plan& plan);
  // The plans of a list's tensors by MakePlans, each with its tensor's reduce_dtype; max_work
  // limits each plan alone, and the choice. If the choice takes more: the plans that the tensors
  // have alone. Null: fewer than two tensors go onto another mesh. Valid until the next call of
  // this function. Errors name the tensor.
  absl::StatusOr<const PlanEntries*> FindTogether(absl::Span<const Redistribution> list);
  // The call for tensors of these layouts. Valid until the next call of this function, while
  // `entry` is alive.
  absl::StatusOr<Call*> CallOf(PlanEntry& entry, const LoweringOptions& layouts);
  // One call for a list of at least one tensor. `plans`: each tensor's plan; `calls`: the call that
  // would run it alone, from CallOf().
  absl::StatusOr<std::shared_ptr<Call>> Merge(absl::Span<const std::shared_ptr<PlanEntry>> plans,
                                              absl::Span<const std::shared_ptr<Call>> calls);

  // Only the counts of plans and programs are set.
  RedistributorStats stats() const {
    RedistributorStats stats = stats_;
    stats.plans_cached = static_cast<int64_t>(planner_plans_.size() + other_plans_.size());
    return stats;
  }

 private:
  static constexpr size_t kMaxLists = 64;
  // A merged program may have this many times the bytes up to which one plan is merged.
  static constexpr int64_t kMergedPlans = 8;
  using Ids = std::vector<uint64_t>;
  struct ListPlans {
    std::vector<PlanKey> keys;  // point into the plans
    PlanEntries plans;
  };

  absl::StatusOr<const std::shared_ptr<PlanEntry>*> PlanAndInsert(const PlanKey& what);
  absl::StatusOr<const PlanEntries*> PlanTogetherAndInsert(absl::Span<const PlanKey> keys);
  // As Find(plan). `check`: whether to verify a plan that is not cached.
  absl::StatusOr<const std::shared_ptr<PlanEntry>*> FindOther(const Plan& plan, bool check);
  // `kept`, or `entry`, kept until the next call, if that is null.
  const std::shared_ptr<PlanEntry>* KeptOr(const std::shared_ptr<PlanEntry>& entry,
                                           const std::shared_ptr<PlanEntry>* kept);
  absl::Status CheckMeshes(const Plan& plan) const;
  absl::StatusOr<std::shared_ptr<PlanEntry>> Make(const Plan& plan);
  std::shared_ptr<ProgramEntry> Add(Program program);
  std::shared_ptr<Call> AddCall(Program program, const Fingerprint& fingerprint,
                                std::shared_ptr<const std::string> text);

  const int64_t rank_;
  const std::shared_ptr<PlannerCache> planner_;
  const int64_t coalesce_bytes_;
  const std::function<absl::Status(const DeviceMesh&)> check_mesh_;
  const bool verify_;
  // Keys of planner_plans_ and together_ point into their values.
  LruCache<PlanKey, std::shared_ptr<PlanEntry>> planner_plans_;
  LruCache<FingerprintKey, std::shared_ptr<PlanEntry>> other_plans_;  // of the caller or of lists
  std::shared_ptr<PlanEntry> too_large_;  // the last entry, if it was above the limit
  std::vector<PlanKey> keys_;             // scratch memory of FindTogether()
  LruCache<absl::Span<const PlanKey>, ListPlans> together_{kMaxLists};
  uint64_t next_id_ = 0;
  Ids ids_;  // scratch memory of Merge()
  LruCache<Ids, std::shared_ptr<Call>> merged_{kMaxLists};
  RedistributorStats stats_;
};

}  // namespace meshift::run_internal

#endif  // MESHIFT_COMM_REDISTRIBUTION_PLAN_CACHE_H_
