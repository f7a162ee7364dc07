// The cost model: the bytes that a step moves, the workspace that it needs, and its estimated time.
//
//   CostModel model(problem, topology);
//   Traffic traffic = model.Measure(StepOp::kAllGather, before, after);
//   traffic.bytes_sent;                  // of the worst rank
//   traffic.est_ns;
//
// A step's time is that of its collective (the fastest algorithm and protocol, collective_time.h),
// the latency of each of its messages, and the time of its local copies. docs/plan_format.md
// defines the counts, and when messages are packed or blocks padded. docs/cost_model.md has the
// formulas.
//
// Bytes and messages are those of the worst rank, times are in ns; bytes and times saturate. No
// function returns an error: after the problem's work budget is spent, results are meaningless, and
// the caller must refuse. One thread at a time. cross_cost.h prices crossings to another mesh.
//
// cost.cc has Measure() and the groups. Measure() calls cost_blocks.cc for gathers, scatters and
// ordered reductions; cost_messages.cc for steps made of messages (messages.h); cost_stages.cc for
// reductions in blocks. cost_memory.cc has the workspace.
#ifndef MESHIFT_PLANNER_COST_COST_H_
#define MESHIFT_PLANNER_COST_COST_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/checked_math.h"
#include "meshift/plan.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/group_shape.h"
#include "planner/graph/state.h"
#include "planner/graph/transitions.h"

namespace meshift {

// Work (base/work_budget.h) of looking up a rank's index in its group, or its box.
inline constexpr int64_t kRankLookupWork = 8;

// `messages` and `bytes_kept` are 0, unless the step is an all_to_all, permute, exchange or
// crossing.
struct Traffic {
  int64_t bytes_sent = 0;       // worst rank
  int64_t bytes_received = 0;   // worst rank
  int64_t messages = 0;         // sent or received, worst rank
  int64_t bytes_kept = 0;       // that a rank copies to itself instead of sending, worst rank
  bool send_packs = false;      // some message is not contiguous in the sent buffer
  bool receive_packs = false;   // some message is not contiguous in the received buffer
  int64_t send_pack_bytes = 0;  // workspace for packing, for unpacking
  int64_t receive_pack_bytes = 0;
  std::optional<StepSizes> sizes;  // null for local steps
  int64_t reduce_stages = 1;       // Step::reduce_stages; 2: a reduction in blocks
  TimeParts time;
  int64_t est_ns = 0;  // time.Sum()

  // Each adds to `time` and `est_ns`.
  void Take(const CollectiveTime& collective) {
    Add(&time.starts_ns, collective.start_ns);
    Add(&time.hops_ns, collective.hops_ns);
    Add(&time.links_ns, collective.links_ns);
    time.algorithm = collective.algorithm;
    time.protocol = collective.protocol;
    if (collective.links_ns > 0) {
      time.level = collective.level;
      time.sharing = collective.sharing;
    }
  }
  void TakeMessages(int64_t ns) { Add(&time.messages_ns, ns); }
  void TakeCopy(int64_t ns) {
    Add(&time.copies_ns, ns);
    ++time.copies;
  }
  // Adds workspace and copies of packing, by `send_packs`, `receive_packs` and the bytes.
  void TakePacks(const Topology& topology);

 private:
  void Add(int64_t* part, int64_t ns) {
    *part = SaturatingAdd(*part, ns);
    est_ns = SaturatingAdd(est_ns, ns);
  }
};

struct CostOptions {
  // The sizes of gathers and scatters over ragged cuts: kPadded or kExact. Default: the cheaper
  // one.
  std::optional<StepSizes> ragged = std::nullopt;
  // Reductions are in ascending order of coordinates.
  bool ordered = false;
  // Ordered reductions are in blocks of that many contributions. 0: no blocks.
  int64_t reduce_block = 0;
  // The workspace that a step may need, in bytes. If there are several ways to do a step, the model
  // takes the cheapest within the limit, or else the one that needs least. Default: no limit.
  std::optional<int64_t> max_workspace = std::nullopt;
  // TensorMemory::copied and ::scratch (planner/plan/memory_limit.h): the workspace of a plan of
  // one step in one buffer; and the bytes of a consumed source, which pieces of later steps may
  // use.
  int64_t copied_bytes = 0;
  int64_t scratch_bytes = 0;
  // The sets of mesh dims that collectives may use. Default: all.
  std::optional<DimSets> groups = std::nullopt;
  // Whether the problem's source (target) is the caller's tensor. If not (at a crossing to another
  // mesh), it is a value in the workspace.
  bool from_source = true;
  bool to_target = true;
};

// The time of a local copy, in ns.
inline int64_t CopyNs(const Topology& topology, int64_t bytes) {
  const TopologyConstants& c = topology.constants();
  return SaturatingAdd(c.copy_latency_ns, MulDivCeil(bytes, 1000, c.copy_bandwidth_bytes_per_us));
}

// The least latency of a hop over `level` or a higher level, in ns.
int64_t LeastHopNs(const Topology& topology, int level);

// Keeps a reference to `problem`. Const methods cache their results, so a model is for one thread
// at a time. Copies include the cache.
class CostModel {
 public:
  CostModel(const Problem& problem, const Topology& topology, const CostOptions& options = {});

  // REQUIRES: `op` leads from `before` to `after` (planner/search/successors.h).
  Traffic Measure(StepOp op, const State& before, const State& after) const;

  // Workspace bytes of a value on the worst rank; 0 for the caller's tensors.
  int64_t HeldBytes(const State& state) const;
  // Workspace bytes of a step with this traffic (docs/plan_format.md, "Memory"); and whether
  // CostOptions::max_workspace allows them.
  int64_t WorkspaceBytes(StepOp op, const State& before, const State& after,
                         const Traffic& traffic) const;
  bool Fits(StepOp op, const State& before, const State& after, const Traffic& traffic) const {
    return !options_.max_workspace ||
           WorkspaceBytes(op, before, after, traffic) <= *options_.max_workspace;
  }
  // Whether CostOptions::groups allows the step.
  bool Allows(StepOp op, const State& before, const State& after) const {
    return !options_.groups || !IsCollective(op) ||
           options_.groups->test(StepDims(problem_, op, before, after));
  }
  const std::optional<DimSets>& groups() const { return options_.groups; }
  std::optional<int64_t> max_workspace() const { return options_.max_workspace; }
  // A lower bound of WorkspaceBytes(), much faster than Measure().
  int64_t LeastWorkspaceBytes(StepOp op, const State& before, const State& after) const;
  // Whether max_workspace has room for LeastWorkspaceBytes(); and for any other value beside
  // `state`.
  bool HasRoom(StepOp op, const State& before, const State& after) const {
    return !options_.max_workspace ||
           LeastWorkspaceBytes(op, before, after) <= *options_.max_workspace;
  }
  bool HasRoomBeside(const State& state) const {
    return !options_.max_workspace ||
           SaturatingAdd(HeldBytes(state), LeastHeldBytes()) <= *options_.max_workspace;
  }
  // A lower bound of HeldBytes() of any intermediate value.
  int64_t LeastHeldBytes() const;
  // The same model with another CostOptions::max_workspace; with other groups.
  CostModel WithMaxWorkspace(std::optional<int64_t> max_workspace) const;
  CostModel WithGroups(const DimSets& groups) const;

  bool ordered() const { return options_.ordered; }
  std::optional<StepSizes> ragged() const { return options_.ragged; }

  // A lower bound of the time, without hops, of a collective that brings some rank `bytes` that it
  // does not hold. Reductions have a bound of their own, except that with 0 bytes this one holds
  // for them too. It is concave and increasing: several collectives take at least as long as one
  // for all bytes and LeastCollectiveNs(0) for each other one.
  int64_t LeastCollectiveNs(int64_t bytes = 0) const { return LeastNs(TransferNs(bytes)); }
  // The same for a reduction that brings some rank `bytes` of contributions or results.
  int64_t LeastReductionNs(int64_t bytes) const {
    return LeastNs(MulDivFloor(bytes, 1000, reduction_bandwidth_));
  }
  // The same for bytes that take `links_ns` on links at full speed.
  int64_t LeastNs(int64_t links_ns) const {
    const auto& line = starts_.At(links_ns);
    return SaturatingAdd(line.start, MulDivFloor(links_ns, line.times, line.over));
  }
  // The inverse: the most bytes that a collective may bring a rank in `ns`. -1: `ns` is less than
  // the start of any collective.
  int64_t MaxBytes(int64_t ns) const;
  // A lower bound of the latency of a hop over `level` or a higher level, in any protocol.
  int64_t LeastHopNs(int level = 0) const;
  // In any step on this mesh, k ranks in one domain of the level below `level` (level 0: one rank)
  // together send at most k times this many bytes per us out of it, and receive at most that.
  // `reduces`: also in reductions.
  int64_t BestBandwidth(int level, bool reduces = true) const;
  // The time in which a rank sends or receives `bytes` at full speed.
  int64_t TransferNs(int64_t bytes) const { return MulDivFloor(bytes, 1000, best_bandwidth_); }
  // The times of collectives over `dims`.
  const GroupTimes& Times(DimMask dims) const {
    std::optional<GroupTimes>& times = times_[dims];
    if (!times) times.emplace(MakeTimes(GroupsOver(dims)));
    return *times;
  }
  int64_t MessageNs() const { return topology_.constants().message_latency_ns; }
  int64_t CopyNs(int64_t bytes) const { return meshift::CopyNs(topology_, bytes); }
  const Topology& topology() const { return topology_; }
  int64_t GroupSize(DimMask dims) const;  // members of a group over `dims`

 private:
  // The groups of a reduction in blocks: inside the blocks of consecutive coordinates, and across
  // blocks between members of equal index in their block.
  struct Stages {
    GroupTimes inside;
    GroupTimes across;
  };
  void SetBounds();
  // The stages of a reduction in blocks over `dims`. Null if a block would be all contributions or
  // only one, or if the block size does not divide their number.
  const std::optional<Stages>& StagesOf(DimMask dims) const;
  RankGroups GroupsOver(DimMask dims) const;
  std::vector<std::vector<int64_t>> RanksOver(DimMask dims) const;  // of each group
  GroupTimes MakeTimes(const RankGroups& groups) const;
  std::optional<Stages> MakeStages(DimMask dims) const;
  // An all_gather from `cut` to `parent` over `dims`, or a reduce_scatter back.
  Traffic MeasureBlocks(bool gather, const State& parent, const State& cut, DimMask dims) const;
  void MeasureOrdered(StepOp op, const State& before, const State& after, const GroupTimes& times,
                      Traffic* traffic) const;
  Traffic MeasureStages(StepOp op, const State& before, const State& after, const Stages& stages,
                        bool even) const;
  // `even`: IsEven() of these cuts.
  void MeasureMessages(StepOp op, const CutLists& before, const CutLists& after, bool even,
                       int64_t item_bytes, Traffic* traffic) const;
  // Adds the time of `messages` messages, in which the worst rank sends or receives `bytes`.
  void TakeMessages(const GroupTimes& times, int64_t bytes, int64_t messages,
                    Traffic* traffic) const {
    traffic->Take(times.Direct(bytes, messages));
    traffic->TakeMessages(MessageNs() * messages);
  }
  // Messages along a tensor dim, between two lists of cuts: the longest, and whether some message
  // is shorter than its piece before, than its piece after.
  struct MovedLengths {
    int64_t longest = 0;
    bool splits_before = false;
    bool splits_after = false;
  };
  const MovedLengths& LengthsOf(int k, const CutLists::List& before,
                                const CutLists::List& after) const;
  // The better of two ways to do a step, by time and CostOptions::max_workspace; on a tie, `plain`.
  const Traffic& Choose(StepOp op, const State& before, const State& after, const Traffic& plain,
                        const Traffic& other) const;
  // Workspace bytes of a step that packs `send` and unpacks `receive` bytes.
  int64_t WorkspaceBytes(StepOp op, const State& before, const State& after, int64_t send,
                         int64_t receive) const;

  const Problem& problem_;
  const Topology topology_;
  const CostOptions options_;
  // The time of a collective without hops, by the time of its bytes on links at full speed: a line
  // for each protocol.
  struct Nothing {};
  Envelope<Nothing> starts_;
  int64_t least_latency_percent_ = 100;
  int64_t best_bandwidth_ = 1;
  int64_t reduction_bandwidth_ = 1;
  // Caches.
  mutable std::vector<std::optional<GroupTimes>> times_;  // by mask
  mutable std::vector<std::optional<std::optional<Stages>>> stages_;
  mutable absl::flat_hash_map<uint64_t, MovedLengths> lengths_;  // by tensor dim and lists
};

// The parts of the time of a step, as plans for `topology` price it; also of a crossing to another
// mesh. They add up to the step's `est_ns`, with one exception: if a limit on
// memory made the plan reduce in blocks with the costlier number of stages, they are the parts of
// the cheaper one. REQUIRES: the plan is valid and has the step.
TimeParts TimePartsOf(const Plan& plan, int step, const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_COST_H_
