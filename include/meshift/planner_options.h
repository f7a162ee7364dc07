// The options of planning: the promise about bits, the limits, the topology and the engine.
//
//   const Topology h100 = *Topology::Parse("h100");
//   MakePlan(from, to, {.reproducibility = Reproducibility::kOrdered, .topology = h100});
//
// A plan depends on these options and the two shardings only. Options are not checked when they are
// set: MakePlan refuses invalid ones. Each Parse function here returns INVALID_ARGUMENT for an
// unknown name. A value; safe for concurrent use.
#ifndef MESHIFT_PLANNER_OPTIONS_H_
#define MESHIFT_PLANNER_OPTIONS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/topology.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

// The default limit on the work of planning or of verifying. A unit is about 10 ns on one core, and
// stands for at most 2 bytes of memory: the default allows a few seconds and about 1 GiB.
inline constexpr int64_t kDefaultMaxWork = int64_t{1} << 29;

// How a run gets source and target; its memory depends on this.
enum class Buffers : uint8_t {
  kTwo,       // separate buffers
  kConsumed,  // separate buffers; the source is donated: the run may overwrite it once it is read
  kOne,       // both begin at the same address
};

std::string_view Name(Buffers buffers);  // "two", "consumed", "one"
absl::StatusOr<Buffers> ParseBuffers(std::string_view name);

// Promises about bits (docs/reproducibility.md); each includes the ones before it.
enum class Reproducibility : uint8_t { kNone, kReplicas, kBatchInvariant, kOrdered };
std::string_view Name(Reproducibility r);  // "none", "replicas", "batch-invariant", "ordered"
absl::StatusOr<Reproducibility> ParseReproducibility(std::string_view name);

// The group budget: the groups that a plan may use, and the cost of new ones.
//
//   GroupBudget budget{.allow_new_groups = false};         // only the root and groups of one dim
//   MESHIFT_ASSIGN_OR_RETURN(budget.existing_groups, ParseMeshGroups("fsdp;ddp,fsdp", {mesh}));
//   GroupBudget frugal{.max_communicators = 2, .expected_uses = 1000};
//
// The caller states which groups exist; the planner never asks a live cache. So a plan is a
// function of its inputs, and the same on all ranks. Groups are compared by their ranks: groups of
// one mesh also count on another mesh that divides the same ranks in the same way.

using DimSet = absl::InlinedVector<int, 4>;  // indices of dims, ascending

// The groups over some dims of a mesh: all of them, one for every coordinate of the other dims.
struct MeshGroups {
  DeviceMesh mesh;
  DimSet mesh_dims;  // at least one
  friend bool operator==(const MeshGroups&, const MeshGroups&) = default;
};

struct GroupBudget {
  // False: only existing groups. The promise about bits still holds.
  bool allow_new_groups = true;
  // The groups that exist besides the root. None: those over each single dim of the plan's meshes,
  // which every mesh has.
  std::optional<std::vector<MeshGroups>> existing_groups = std::nullopt;
  // The root is the group of all these ranks. The others are split from it; it always exists. None:
  // all ranks of the plan's meshes.
  std::optional<DeviceMesh> root = std::nullopt;
  // The most communicators that a rank may need for the plan: one for each new or existing group,
  // or the root, that it is a member of in some step. None: any number.
  std::optional<int64_t> max_communicators = std::nullopt;
  // How often the plan will be run, 1 or more. Each new group adds the topology's group_setup_ns,
  // divided by this and rounded up, to the plan's cost, once for all steps that use it. None:
  // groups cost nothing.
  std::optional<int64_t> expected_uses = std::nullopt;

  friend bool operator==(const GroupBudget&, const GroupBudget&) = default;

  // Whether it can change a plan.
  bool IsSet() const { return !allow_new_groups || max_communicators || expected_uses; }
};

// INVALID_ARGUMENT: a negative max_communicators, expected_uses below 1, or an existing group over
// no dims, or over dims that its mesh does not have; the message names the value.
absl::Status CheckGroupBudget(const GroupBudget& budget);

// Parses a list of groups. "fsdp;ddp,fsdp": groups over fsdp, and groups over ddp and fsdp
// together, of meshes[0]. "1:tp": groups of meshes[1]. "*": the group of all ranks of all meshes.
// "-" alone: the empty list. Duplicates count once. INVALID_ARGUMENT: an item is not such a group,
// or there is no mesh; the message names the item.
absl::StatusOr<std::vector<MeshGroups>> ParseMeshGroups(std::string_view text,
                                                        absl::Span<const DeviceMesh> meshes);
// The text from which ParseMeshGroups reads these groups. A group of a mesh that is not in `meshes`
// is written "*", which reads back as the group of all ranks. REQUIRES: CheckGroupBudget accepts
// the groups.
std::string MeshGroupsText(absl::Span<const MeshGroups> groups,
                           absl::Span<const DeviceMesh> meshes);

// Engine capabilities: the reductions that an engine supports, and the bits that it guarantees; an
// explicit input of planning. The planner never asks an engine. A Redistributor passes
// Engine::Capabilities(), unless its options override them.
//
//   EngineCapabilities::Local().CanReduce(ReduceOp::kSum, DType::kBF16);   // true
//   EngineCapabilities::Of("nccl").native_invariance;                      // kNone

// Which of an engine's native reductions are batch-invariant: the bits of an element depend only on
// its contributions and on the position of its group in the topology, not on the element's
// position, the count, or other data.
enum class NativeInvariance : uint8_t {
  kNone,
  kAllReduce,
  kReduceScatter,  // all_reduce and reduce_scatter, with equal bits
};
std::string_view Name(NativeInvariance invariance);  // "none", "all_reduce", "reduce_scatter"
absl::StatusOr<NativeInvariance> ParseNativeInvariance(std::string_view name);

class EngineCapabilities {
 public:
  // Every op that is valid for a dtype, as with each engine of this project (its own kernels reduce
  // what its library does not). native_invariance is kNone.
  static EngineCapabilities Full(std::string name);
  // The in-process engine; native_invariance is kReduceScatter, because it combines contributions
  // element by element.
  static EngineCapabilities Local() { return Of("local"); }
  // NCCL; native_invariance is kNone, because a ring combines an element in an order that depends
  // on its position. A running engine may know more (NcclEngine::Capabilities).
  static EngineCapabilities Nccl() { return Of("nccl"); }
  // The engine of this name in this project: "local", "mpi" (which adds as local does) or "nccl".
  // Any other name is not refused: it gets Full(name).
  static EngineCapabilities Of(std::string name);
  // An engine without any reduction; add them with Allow.
  explicit EngineCapabilities(std::string name) : name_(std::move(name)) {}

  EngineCapabilities& Allow(ReduceOp op, DType dtype) {
    reduce_[static_cast<int>(op)] |= uint32_t{1} << static_cast<int>(dtype);
    return *this;
  }
  bool CanReduce(ReduceOp op, DType dtype) const {
    return (reduce_[static_cast<int>(op)] >> static_cast<int>(dtype) & 1) != 0;
  }
  // Whether native min and max follow docs/dtypes.md (-0 < +0, NaN wins, canonical NaN) and so are
  // exact in any order.
  bool min_max_exact = true;
  NativeInvariance native_invariance = NativeInvariance::kNone;
  // The reason for native_invariance, for `why` in plans: "rank 3: NCCL_ALGO is not set". Equal on
  // all ranks, as all fields. May be empty.
  std::string native_why = {};
  const std::string& name() const { return name_; }
  friend bool operator==(const EngineCapabilities&, const EngineCapabilities&) = default;

 private:
  std::string name_;
  std::array<uint32_t, kNumReduceOps> reduce_ = {};  // a bit per dtype
};

enum class PlannerKind : uint8_t {
  kBest,    // the cheapest plan that keeps the promise; if the search is long (five mesh dims or
            // more), one close to it: planner/search/search.h
  kPerDim,  // one collective per mesh dim, as DTensor's greedy planner; a baseline to compare with
};
std::string_view Name(PlannerKind kind);  // "best", "per-dim"
absl::StatusOr<PlannerKind> ParsePlannerKind(std::string_view name);

// How an all_gather or reduce_scatter over a ragged cut moves its blocks.
enum class RaggedSizes : uint8_t {
  kCost,  // the cheaper of the following two
  kMax,   // padded to the largest block; but never if one member has all
  kSum,   // exact sizes, contiguous blocks
};
std::string_view Name(RaggedSizes sizes);  // "cost", "max", "sum"
absl::StatusOr<RaggedSizes> ParseRaggedSizes(std::string_view name);

struct PlannerOptions {
  // The promise about bits that the plan must keep. A kPerDim plan may break it: see Plan::kept().
  Reproducibility reproducibility = Reproducibility::kReplicas;
  Topology topology = Topology::Flat();
  PlannerKind planner = PlannerKind::kBest;
  EngineCapabilities engine = EngineCapabilities::Local();
  // The dtype in which partial values are reduced. None: the source's dtype if the cast to the
  // target's is exact, else the dtype in which sums of the source's dtype are accumulated
  // (docs/plan_format.md).
  std::optional<DType> reduce_dtype = std::nullopt;
  RaggedSizes ragged_sizes = RaggedSizes::kCost;
  // Whether plans may combine contributions in a fixed order, by messages and local sums. They do
  // if the promise needs it, and on the way to another mesh if it is cheaper. If false, a promise
  // that needs it is refused (FAILED_PRECONDITION), except under kPerDim: that plan may break it.
  bool ordered_reductions = true;
  // k > 0: reductions in order combine the contributions of k consecutive coordinates first, then
  // the results of these blocks, and round once; the bits depend on k and the contributions only.
  // Blocks are reduced locally before anything is sent further if that is cheaper
  // (Step::reduce_stages). Needs kOrdered. 0: no blocks.
  int64_t reduce_block = 0;
  // The most bytes that a rank may use for source, target and workspace together
  // (PlanTotals::peak_bytes). The plan is the cheapest within the limit. None: no limit.
  std::optional<int64_t> max_memory = std::nullopt;
  // The most bytes that a value between two steps may have on a rank (the value rule). None: the
  // larger of source and target plus a quarter, and at least 4 MiB (planner/search/value_rule.h);
  // with max_memory: no limit. If limits on groups leave no plan within this default, the plan may
  // exceed it, and its inputs say so. An explicit limit is never exceeded (FAILED_PRECONDITION).
  // kPerDim ignores this field.
  std::optional<int64_t> max_value = std::nullopt;
  // How runs get source and target; the plan's memory and max_memory assume this. A run may do
  // otherwise, and then takes more or less memory.
  Buffers buffers = Buffers::kTwo;
  // The groups that the plan may use, and the cost of new ones.
  GroupBudget groups = {};
  // The limit on the work of planning, in units of about 10 ns (kDefaultMaxWork). States, steps,
  // ranks and messages are counted, not time, so that planning stops at the same point on every
  // rank. Beyond it planning fails with RESOURCE_EXHAUSTED. Plans do not depend on it.
  int64_t max_work = kDefaultMaxWork;
  friend bool operator==(const PlannerOptions&, const PlannerOptions&) = default;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_OPTIONS_H_
