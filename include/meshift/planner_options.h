// What a plan may do, what it must promise, and what it is for.
//
//   const Topology h100 = *Topology::Parse("h100");
//   MakePlan(from, to, {.reproducibility = Reproducibility::kOrdered, .topology = h100});
//
// All that planning depends on but the two shardings. A value; safe for concurrent use.
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

// The work that planning, or proving, may take: units of about 10 ns on one core, each charged for
// 2 bytes of memory at most. The default ends either after some seconds, with at most about 1 GiB.
inline constexpr int64_t kDefaultMaxWork = int64_t{1} << 29;

// How a run is handed source and target, which the memory that it takes depends on.
enum class Buffers : uint8_t {
  kTwo,       // each in its own
  kConsumed,  // likewise; the source is given up, and its memory takes pieces once it was read
  kOne,       // both begin at one address
};

std::string_view Name(Buffers buffers);  // "two", "consumed", "one"
// INVALID_ARGUMENT where the name is none of the three.
absl::StatusOr<Buffers> ParseBuffers(std::string_view name);

// Promises about bits (docs/reproducibility.md); each includes those before it.
enum class Reproducibility : uint8_t { kNone, kReplicas, kBatchInvariant, kOrdered };
std::string_view Name(Reproducibility r);  // "none", "replicas", "batch-invariant", "ordered"
absl::StatusOr<Reproducibility> ParseReproducibility(std::string_view name);

// Which groups a plan may use, and what new ones cost: part of PlannerOptions.
//
//   GroupBudget budget{.allow_new_groups = false};         // only the root and groups of one dim
//   MESHIFT_ASSIGN_OR_RETURN(budget.existing_groups, ParseMeshGroups("fsdp;ddp,fsdp", {mesh}));
//   GroupBudget frugal{.max_communicators = 2, .expected_uses = 1000};
//
// What exists is said by the caller, never looked up in a live cache: a plan is a function of what
// it is given, the same on all ranks. Groups are compared by the ranks that they are of, so that
// groups of one mesh count for plans on another that divides the same ranks alike.

using DimSet = absl::InlinedVector<int, 4>;  // indices of dims, ascending

// The groups over some dims of a mesh: all of them, one for every coordinate of the other dims.
struct MeshGroups {
  DeviceMesh mesh;
  DimSet mesh_dims;  // at least one
  friend bool operator==(const MeshGroups&, const MeshGroups&) = default;
};

struct GroupBudget {
  // False: only groups that exist. The promise about bits holds all the same.
  bool allow_new_groups = true;
  // The groups that exist besides the root. None: those over each single dim of the plan's meshes,
  // which is what a mesh comes with.
  std::optional<std::vector<MeshGroups>> existing_groups = std::nullopt;
  // The group of all these ranks is the root, from which the others are split: it always exists.
  // None: all ranks of the plan's meshes.
  std::optional<DeviceMesh> root = std::nullopt;
  // The most communicators that a rank may need for the plan: one for each group that it is a
  // member of in some step, whether that is new, exists, or is the root. None: any number.
  std::optional<int64_t> max_communicators = std::nullopt;
  // How often the plan will be run, 1 or more: each new group adds the topology's group_setup_ns,
  // divided by this and rounded up, to what the plan costs, once however many steps use it. None:
  // groups cost nothing.
  std::optional<int64_t> expected_uses = std::nullopt;

  friend bool operator==(const GroupBudget&, const GroupBudget&) = default;

  // Whether a plan may depend on it.
  bool IsSet() const { return !allow_new_groups || max_communicators || expected_uses; }
};

// INVALID_ARGUMENT: a negative max_communicators, expected_uses below 1, or an existing group over
// no dims, or over dims that its mesh does not have; the message names the value.
absl::Status CheckGroupBudget(const GroupBudget& budget);

// "fsdp;ddp,fsdp": groups over fsdp, and groups over ddp and fsdp together, of meshes[0]; "1:tp"
// are groups of meshes[1], "*" is the group of all ranks of all the meshes, "-" alone is no group.
// What is there twice counts once.
// INVALID_ARGUMENT names what is no such group.
absl::StatusOr<std::vector<MeshGroups>> ParseMeshGroups(std::string_view text,
                                                        absl::Span<const DeviceMesh> meshes);
// What ParseMeshGroups reads as these groups; those of a mesh that is none of `meshes` are "*".
std::string MeshGroupsText(absl::Span<const MeshGroups> groups,
                           absl::Span<const DeviceMesh> meshes);

// What an engine can reduce, and promises of it: an explicit input of planning. The planner never
// asks an engine; a Redistributor hands on what Engine::Capabilities() says, unless its options do.
//
//   EngineCapabilities::Local().CanReduce(ReduceOp::kSum, DType::kBF16);   // true
//   EngineCapabilities::Of("nccl").native_invariance;                      // kNone

// Which of an engine's own reductions give an element bits that depend on its contributions and on
// how its group lies on the topology alone: not on its position, the count, or what else is sent.
enum class NativeInvariance : uint8_t {
  kNone,
  kAllReduce,
  kReduceScatter,  // all_reduce and reduce_scatter, with equal bits
};
std::string_view Name(NativeInvariance invariance);  // "none", "all_reduce", "reduce_scatter"
absl::StatusOr<NativeInvariance> ParseNativeInvariance(std::string_view name);

class EngineCapabilities {
 public:
  // Every op that is allowed on a dtype at all: so is each engine of this project, which reduces by
  // kernels of its own what its library does not. Nothing is known of its own reductions.
  static EngineCapabilities Full(std::string name);
  // The in-process engine, which combines contributions element by element: kReduceScatter.
  static EngineCapabilities Local() { return Of("local"); }
  // NCCL, whose ring combines an element in an order that depends on where it lies: kNone. An
  // engine that runs may know more of its environment (NcclEngine::Capabilities).
  static EngineCapabilities Nccl() { return Of("nccl"); }
  // Of an engine of this project, by its name: "local", "mpi" (which adds as local does), "nccl".
  static EngineCapabilities Of(std::string name);
  // An engine that can reduce nothing yet; add with Allow.
  explicit EngineCapabilities(std::string name) : name_(std::move(name)) {}

  EngineCapabilities& Allow(ReduceOp op, DType dtype) {
    reduce_[static_cast<int>(op)] |= uint32_t{1} << static_cast<int>(dtype);
    return *this;
  }
  bool CanReduce(ReduceOp op, DType dtype) const {
    return (reduce_[static_cast<int>(op)] >> static_cast<int>(dtype) & 1) != 0;
  }
  // Whether the native min and max follow docs/dtypes.md (-0 < +0, NaN wins, canonical), so that
  // they are exact in any order.
  bool min_max_exact = true;
  NativeInvariance native_invariance = NativeInvariance::kNone;
  // What that rests on, or what is in its way, for plans' `why`: "rank 3: NCCL_ALGO is not set";
  // equal on all ranks, as the rest. May be empty.
  std::string native_why = {};
  const std::string& name() const { return name_; }
  friend bool operator==(const EngineCapabilities&, const EngineCapabilities&) = default;

 private:
  std::string name_;
  std::array<uint32_t, kNumReduceOps> reduce_ = {};  // a bit per dtype
};

enum class PlannerKind : uint8_t {
  kBest,    // the cheapest plan that keeps the promise; of a search that takes long (from five mesh
            // dims on), one near it: planner/search/search.h
  kPerDim,  // one collective per mesh dim, as DTensor's greedy planner; a baseline to compare with
};
std::string_view Name(PlannerKind kind);  // "best", "per-dim"
absl::StatusOr<PlannerKind> ParsePlannerKind(std::string_view name);

// How an all_gather or reduce_scatter over a ragged cut moves its blocks.
enum class RaggedSizes : uint8_t {
  kCost,  // the cheaper of the two
  kMax,   // padded to the largest block
  kSum,   // exactly, one block behind the other
};
std::string_view Name(RaggedSizes sizes);  // "cost", "max", "sum"
absl::StatusOr<RaggedSizes> ParseRaggedSizes(std::string_view name);

struct PlannerOptions {
  // What the plan must promise about bits. kPerDim asks for it and may not keep it: Plan::kept().
  Reproducibility reproducibility = Reproducibility::kReplicas;
  Topology topology = Topology::Flat();
  PlannerKind planner = PlannerKind::kBest;
  EngineCapabilities engine = EngineCapabilities::Local();
  // The dtype in which partial values are reduced; none: the source's where the cast to the
  // target's is exact, else the one that sums of the source's are formed in (docs/plan_format.md).
  std::optional<DType> reduce_dtype = std::nullopt;
  RaggedSizes ragged_sizes = RaggedSizes::kCost;
  // Whether contributions may be combined in a fixed order, by messages and local sums: where the
  // promise needs that, and where it is cheaper on the way to another mesh. Else kOrdered is
  // refused, and kBatchInvariant where the engine's own reductions do not keep it.
  bool ordered_reductions = true;
  // k > 0: reductions in order combine the contributions of k consecutive coordinates first, then
  // what comes of these blocks, and round once; bits are a function of k and the contributions.
  // Where that is cheaper, blocks are combined before anything leaves them (Step::reduce_stages).
  // Needs kOrdered. 0: no blocks.
  int64_t reduce_block = 0;
  // The most bytes that a rank may take, of source, target and workspace together
  // (PlanTotals::peak_bytes). The plan is the cheapest that keeps to it. None: no limit.
  std::optional<int64_t> max_memory = std::nullopt;
  // The most bytes that a value between two steps may take on a rank. None: a quarter more than the
  // larger of source and target, and 4 MiB in any case (planner/search/value_rule.h); or, with
  // max_memory, any. Where limits on groups leave no plan within that, one beyond it is made, whose
  // inputs say so; beyond a number that is given, none is (FAILED_PRECONDITION).
  std::optional<int64_t> max_value = std::nullopt;
  // How runs are handed source and target: what the plan says of memory, and the limit, is of that.
  // A run may do otherwise, and then takes more or less.
  Buffers buffers = Buffers::kTwo;
  // Which groups the plan may use, and what new ones cost.
  GroupBudget groups = {};
  // The work that planning may take, in units of about 10 ns (kDefaultMaxWork): states, steps,
  // ranks and messages are counted, so that it ends at the same place on every rank. Beyond it,
  // planning is refused (RESOURCE_EXHAUSTED). The plans that are made do not depend on it.
  int64_t max_work = kDefaultMaxWork;
  friend bool operator==(const PlannerOptions&, const PlannerOptions&) = default;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_OPTIONS_H_
