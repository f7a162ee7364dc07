// A plan: the immutable, rank-independent list of steps that turns one sharding into another.
//
//   MESHIFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(from, to, {.topology = topology}));
//   for (const Step& step : plan.steps()) fmt::print("{}\n", step.ToString());
//     // all_reduce{ddp,fsdp} -> R,R,R
//   plan.fingerprint().ToString();      // 32 hex digits, equal on every rank
//
// A plan describes work and does none: a Redistributor runs it. Seal and FromParts do not check it;
// Verify (meshift/verifier.h) does. docs/plan_format.md defines each field and how bytes are
// counted. Times are estimates of the cost model, in ns. A Plan is a value that is cheap to copy;
// safe for concurrent use.
#ifndef MESHIFT_PLAN_H_
#define MESHIFT_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/planner_options.h"
#include "meshift/sharding.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

enum class StepOp : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kPermute,
  kExchange,
  kSlice,  // this to kRelabel: local
  kMask,
  kCast,
  kRelabel,
  // Rooted collectives, where all mesh dims of the step are At before it, after it, or both.
  kBroadcast,  // At -> R
  kReduce,     // P -> At
  kGather,     // S -> At
  kScatter,    // At -> S
  kSend,       // At -> At
};
inline constexpr int kNumStepOps = 15;
std::string_view Name(StepOp op);  // "all_reduce", ...
// Each Parse function of this file returns INVALID_ARGUMENT for another text.
absl::StatusOr<StepOp> ParseStepOp(std::string_view name);
bool IsCollective(StepOp op);
bool IsReduction(StepOp op);  // all_reduce, reduce_scatter, reduce

enum class ReduceOrder : uint8_t { kAny, kAscending };
std::string_view Name(ReduceOrder order);  // "any", "ascending"
absl::StatusOr<ReduceOrder> ParseReduceOrder(std::string_view name);
// How a step handles sizes within a group. kEven: all members' boxes have one size before the step,
// and one size after it. Otherwise kPadded: padded to the largest; kExact: messages or blocks have
// the sizes of their boxes.
enum class StepSizes : uint8_t { kEven, kPadded, kExact };
std::string_view Name(StepSizes sizes);  // "even", "padded", "exact"
absl::StatusOr<StepSizes> ParseStepSizes(std::string_view name);

// One transition. Bytes are those of the worst rank. Fields that do not apply keep their defaults;
// `after` must always be set.
struct Step {
  StepOp op = StepOp::kSlice;
  int mesh = 0;           // index into Plan::meshes(), for mesh_dims and after
  DimSet mesh_dims = {};  // dims whose placement changes, or that the group spans
  std::optional<int64_t> group_size = std::nullopt;  // null for local steps, as is `groups`
  std::optional<int64_t> groups = std::nullopt;
  DimSet tensor_dims = {};  // dims whose cut changes
  // Null if nothing is reduced, as is reduce_order.
  std::optional<ReduceOp> reduce_op = std::nullopt;
  std::optional<ReduceOrder> reduce_order = std::nullopt;
  // kAscending: the number of consecutive coordinates that are combined first. Null: no blocks.
  std::optional<int64_t> reduce_block = std::nullopt;
  // 2: each block is reduced first, and only its result is sent further. Null: in one stage.
  std::optional<int64_t> reduce_stages = std::nullopt;
  std::optional<int64_t> divisor = std::nullopt;  // avg: the product of the avg dims of the step
  std::optional<StepSizes> sizes = std::nullopt;  // null for local steps, as is wire_dtype
  std::optional<DType> wire_dtype = std::nullopt;
  std::optional<DType> accumulate_dtype = std::nullopt;  // null if nothing is reduced
  Sharding after;  // a cast if its dtype differs from the one before
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
  int64_t bytes_sent = 0;
  int64_t est_ns = 0;

  // "all_reduce{ddp,fsdp}"; "cast{bf16}"; "exchange{onto mesh 1}". A mesh dim that the mesh does
  // not have is written as "#" and its number.
  std::string Label() const;
  // "all_reduce{ddp,fsdp} -> R,R,R"
  std::string ToString() const;
  friend bool operator==(const Step&, const Step&) = default;
};

// Whether the step takes the value from one mesh to another: an exchange over no mesh dims, which
// adds contributions if it has a reduce_op, or a relabel, if every rank already holds its part.
bool IsCrossing(const Step& step);

// Totals of a plan. The memory is that of a run with the buffers that PlannerOptions::buffers says.
struct PlanTotals {
  int64_t collectives = 0;
  int64_t bytes_sent = 0;       // sum over the steps
  int64_t est_ns = 0;           // sum over the steps
  int64_t setup_ns = 0;         // of new groups, for each use of the plan
  int64_t peak_bytes = 0;       // largest source + largest target (in one buffer: the larger of
                                // them) + workspace
  int64_t workspace_bytes = 0;  // memory beyond source and target
  friend bool operator==(const PlanTotals&, const PlanTotals&) = default;
};

// The terms of a step's time, in ns; docs/cost_model.md defines them.
enum class Algorithm : uint8_t { kRing, kTree, kInSwitch, kDirect };
std::string_view Name(Algorithm algorithm);  // "ring", "tree", "in-switch", "direct"

// For several collectives in sequence: the sums; algorithm, protocol and level are those of the
// last.
struct TimeParts {
  int64_t starts_ns = 0;
  int64_t hops_ns = 0;
  int64_t messages_ns = 0;
  int64_t links_ns = 0;
  int64_t copies_ns = 0;
  Algorithm algorithm = Algorithm::kRing;
  int protocol = -1;  // index into Topology::protocols(); -1: it has none, or nothing is sent
  int level = -1;     // level of the slowest links used; -1: nothing is sent
  // If those links are between domains: the fewest members of a group in one domain of the level
  // below, each with its own link. Else 0.
  int64_t sharing = 0;
  int copies = 0;       // the number of local copies; copies_ns has copy_latency_ns for each
  int64_t Sum() const;  // saturates
};

// Lower bounds for any algorithm.
struct LowerBound {
  int64_t bytes_sent = 0;
  int64_t est_ns = 0;
  friend bool operator==(const LowerBound&, const LowerBound&) = default;
};

// The inputs of planning besides the two shardings, as far as a plan's text has them
// (docs/plan_format.md). `options.engine` has only its name and, under kBatchInvariant, its
// native_invariance. `options.groups` has only the limits on this plan, and names groups of its
// meshes.
struct PlanInputs {
  PlannerOptions options;
  // The size in bytes of the plan's largest value, if limits on groups left no plan within the
  // default of max_value. 0: the plan keeps max_value.
  int64_t exceeded_max_value = 0;
  friend bool operator==(const PlanInputs&, const PlanInputs&) = default;
};

// The 128-bit XXH3 hash (xxHash by Y. Collet, seed 0) of a plan's canonical text. It detects
// accidents, not forgery.
struct Fingerprint {
  uint64_t high = 0;
  uint64_t low = 0;
  static Fingerprint Of(std::string_view text);
  static absl::StatusOr<Fingerprint> Parse(std::string_view hex);  // 32 lower-case hex digits
  std::string ToString() const;
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

// The fields of a plan, for code that makes one (planners, readers, tests).
struct PlanFields {
  std::vector<DeviceMesh> meshes = {};
  int from_mesh = 0;
  int to_mesh = 0;
  Sharding from;
  Sharding to;
  Reproducibility kept = Reproducibility::kReplicas;
  std::string why = {};
  std::vector<Step> steps = {};
  PlanTotals total = {};
  LowerBound lower_bound = {};
  PlanInputs inputs = {};
  friend bool operator==(const PlanFields&, const PlanFields&) = default;
};

class Plan {
 public:
  // Makes a plan of `fields` and computes its fingerprint. Does not check the fields; see
  // meshift/verifier.h.
  static Plan Seal(PlanFields fields);
  // A plan as it was read, with the stated fingerprint, which is not checked.
  static Plan FromParts(PlanFields fields, Fingerprint stated);

  const PlanFields& fields() const { return rep_->fields; }
  const std::vector<DeviceMesh>& meshes() const { return rep_->fields.meshes; }
  const Sharding& from() const { return rep_->fields.from; }
  const Sharding& to() const { return rep_->fields.to; }
  Reproducibility asked() const { return options().reproducibility; }
  Reproducibility kept() const { return rep_->fields.kept; }
  const std::string& why() const { return rep_->fields.why; }
  const std::vector<Step>& steps() const { return rep_->fields.steps; }
  const PlanTotals& total() const { return rep_->fields.total; }
  const LowerBound& lower_bound() const { return rep_->fields.lower_bound; }
  const PlanInputs& inputs() const { return rep_->fields.inputs; }
  const PlannerOptions& options() const { return inputs().options; }
  // The stated one: for a plan that was read it may differ from Fingerprint::Of(CanonicalText()).
  const Fingerprint& fingerprint() const { return rep_->fingerprint; }

  // The text that the fingerprint hashes: meshes, tensor, from, to, and the steps without
  // costs; for two meshes also the topology. Version 2 if the plan has an At, else version 1.
  std::string CanonicalText() const;

  friend bool operator==(const Plan& a, const Plan& b) {
    return a.rep_->fields == b.rep_->fields && a.rep_->fingerprint == b.rep_->fingerprint;
  }

 private:
  struct Rep {
    explicit Rep(PlanFields f, Fingerprint stated = {})
        : fields(std::move(f)), fingerprint(stated) {}
    PlanFields fields;
    Fingerprint fingerprint;
  };
  explicit Plan(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<const Rep> rep_;
};

}  // namespace meshift

#endif  // MESHIFT_PLAN_H_
