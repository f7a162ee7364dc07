// What a transition costs: the bytes it moves, the workspace it needs, and its estimated time.
//
//   CostModel model(problem, topology);
//   Traffic traffic = model.Measure(StepOp::kAllGather, before, after);
//   traffic.bytes_sent;                  // of the worst rank
//   traffic.est_ns;
//
// Time is the least over what the library may do (planner/cost/collective_time.h), and copies. What
// is counted, and how packing and padding are decided, is stated in docs/plan_format.md;
// docs/cost_model.md has the formulas. The model prices the program that runs.
//
// cost.cc has groups, and Measure(), which asks the others: cost_blocks.cc for gathers, scatters
// and reductions in order; cost_messages.cc for messages (planner/cost/messages.h); cost_stages.cc
// for reductions in blocks; cost_memory.cc for workspace.
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

struct Traffic {
  int64_t bytes_sent = 0;       // worst rank
  int64_t bytes_received = 0;   // worst rank
  int64_t messages = 0;         // sent or received, worst rank
  int64_t bytes_kept = 0;       // of what messages could carry: what stays, worst rank
  bool send_packs = false;      // of messages: not all are runs of what is sent, of what is
  bool receive_packs = false;   // received into
  int64_t send_pack_bytes = 0;  // workspace for what is sent, and for what is received
  int64_t receive_pack_bytes = 0;
  std::optional<StepSizes> sizes;  // null for local steps
  int64_t reduce_stages = 1;       // 2: of a reduction in blocks, by Step::reduce_stages
  TimeParts time;
  int64_t est_ns = 0;  // time.Sum()

  // Adds to both.
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
  void TakeCopy(int64_t ns) { Add(&time.copies_ns, ns); }
  // What messages are packed from and into, by `send_packs` and `receive_packs`.
  void TakePacks(const Topology& topology);

 private:
  void Add(int64_t* part, int64_t ns) {
    *part = SaturatingAdd(*part, ns);
    est_ns = SaturatingAdd(est_ns, ns);
  }
};

struct CostOptions {
  // The sizes of gathers and scatters over ragged cuts, kPadded or kExact; none: whichever is
  // cheaper.
  std::optional<StepSizes> ragged = std::nullopt;
  // Reductions are in ascending order of coordinates, and in blocks, if that is not 0.
  bool ordered = false;
  int64_t reduce_block = 0;
  // Of the workspace that a step may need: of several ways to do it, the cheapest that keeps to
  // this, else the one that needs least. None: the cheapest.
  std::optional<int64_t> max_workspace = std::nullopt;
  // As in TensorMemory (planner/plan/memory_limit.h): of a step from source to target itself, and
  // of the pieces of steps behind the first.
  int64_t copied_bytes = 0;
  int64_t scratch_bytes = 0;
  // The sets of mesh dims that collectives may be over. None: all.
  std::optional<DimSets> groups = std::nullopt;
  // Whether the problem's source (target) is the caller's tensor. Else, as beside a step from one
  // mesh to another, it is a value that lies in the workspace.
  bool from_source = true;
  bool to_target = true;
};

// Time of a local copy.
inline int64_t CopyNs(const Topology& topology, int64_t bytes) {
  const TopologyConstants& c = topology.constants();
  return SaturatingAdd(c.copy_latency_ns, MulDivCeil(bytes, 1000, c.copy_bandwidth_bytes_per_us));
}

// The least latency of a hop over `level` or one beyond.
int64_t LeastHopNs(const Topology& topology, int level);

// Keeps a reference to `problem`. Its const methods remember what they found, so a model is for one
// thread at a time; a copy has what was remembered.
class CostModel {
 public:
  CostModel(const Problem& problem, const Topology& topology, const CostOptions& options = {});

  // REQUIRES: `op` leads from `before` to `after` (ForEachTransition, or an exchange).
  Traffic Measure(StepOp op, const State& before, const State& after) const;

  // What a value takes of the workspace, on the worst rank: nothing where it is the caller's
  // tensor.
  int64_t HeldBytes(const State& state) const;
  // What a step that is measured so needs there (docs/plan_format.md, "Memory"), and whether
  // CostOptions::max_workspace allows that.
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
  // CostOptions::groups.
  const std::optional<DimSets>& groups() const { return options_.groups; }
  std::optional<int64_t> max_workspace() const { return options_.max_workspace; }
  // No less than this, in a fraction of the time that it takes to measure the step.
  int64_t LeastWorkspaceBytes(StepOp op, const State& before, const State& after) const;
  // Whether the limit has room for that, and for any other value beside one.
  bool HasRoom(StepOp op, const State& before, const State& after) const {
    return !options_.max_workspace ||
           LeastWorkspaceBytes(op, before, after) <= *options_.max_workspace;
  }
  bool HasRoomBeside(const State& state) const {
    return !options_.max_workspace ||
           SaturatingAdd(HeldBytes(state), LeastHeldBytes()) <= *options_.max_workspace;
  }
  // No value on the way takes less.
  int64_t LeastHeldBytes() const;
  // The same model under another limit, or none; with other groups allowed.
  CostModel WithMaxWorkspace(std::optional<int64_t> max_workspace) const;
  CostModel WithGroups(const DimSets& groups) const;

  // Whether an all_gather over a ragged cut leads from `before` to `after`, and its sizes were
  // chosen: then no exchange should.
  bool IsChosenGather(const State& before, const State& after) const;

  bool ordered() const { return options_.ordered; }

  // Bounds on the time of a collective that brings some rank so many bytes that it lacks, but for
  // what its hops take; MaxBytes() is the most that such a collective may bring it in `ns` (-1: not
  // even none). Concave, and it grows: of bytes in several collectives no less than of all in one,
  // and LeastCollectiveNs(0) for each other.
  int64_t LeastCollectiveNs(int64_t bytes = 0) const { return LeastNs(TransferNs(bytes)); }
  // Likewise, of contributions that a reduction adds up, or a result of theirs.
  int64_t LeastReductionNs(int64_t bytes) const {
    return LeastNs(MulDivFloor(bytes, 1000, reduction_bandwidth_));
  }
  // Of what takes so long on links at full speed.
  int64_t LeastNs(int64_t links_ns) const {
    const auto& line = starts_.At(links_ns);
    return SaturatingAdd(line.start, MulDivFloor(links_ns, line.times, line.over));
  }
  int64_t MaxBytes(int64_t ns) const;
  // Of a hop over `level` or one beyond, in the protocol in which it takes least.
  int64_t LeastHopNs(int level = 0) const;
  // In any step on this mesh, k ranks of a domain below `level` (level 0: one rank) together send
  // other ranks at most k times this many bytes per us, and receive at most that.
  int64_t BestBandwidth(int level) const;
  // Of bytes of a worst rank, at full speed.
  int64_t TransferNs(int64_t bytes) const { return MulDivFloor(bytes, 1000, best_bandwidth_); }
  // How long collectives over `dims` take.
  const GroupTimes& Times(DimMask dims) const {
    const std::optional<GroupTimes>& times = times_[dims];
    return times ? *times : TimesAnew(dims);
  }
  int64_t MessageNs() const { return topology_.constants().message_latency_ns; }
  int64_t CopyNs(int64_t bytes) const { return meshift::CopyNs(topology_, bytes); }
  const Topology& topology() const { return topology_; }
  // How the groups over `dims` lie on it.
  const GroupShape& Shape(DimMask dims) const { return Times(dims).shape(); }
  // Members of the group over `dims`, and how many such groups there are.
  int64_t GroupSize(DimMask dims) const;
  int64_t NumGroups(DimMask dims) const;

 private:
  // Blocks of consecutive coordinates, and those of one place in each block.
  struct Stages {
    GroupTimes inside;
    GroupTimes across;
  };
  const GroupTimes& TimesAnew(DimMask dims) const;
  void SetBounds();
  // Of the stages of a reduction in blocks over `dims`; null where a block is all or one of its
  // contributions, or blocks do not divide them.
  const std::optional<Stages>& StagesOf(DimMask dims) const;
  RankGroups GroupsOver(DimMask dims) const;
  std::vector<std::vector<int64_t>> RanksOver(DimMask dims) const;  // of each group
  GroupTimes MakeTimes(const RankGroups& groups) const;
  std::optional<Stages> MakeStages(DimMask dims) const;
  // An all_gather (or reduce_scatter) from `cut` to `parent` (or back) over `dims`.
  Traffic MeasureBlocks(bool gather, const State& parent, const State& cut, DimMask dims) const;
  void MeasureOrdered(StepOp op, const State& before, const State& after, const GroupTimes& times,
                      Traffic* traffic) const;
  Traffic MeasureStages(StepOp op, const State& before, const State& after, const Stages& stages,
                        bool even) const;
  // `even`: IsEven() of these cuts.
  void MeasureMessages(StepOp op, const CutLists& before, const CutLists& after, bool even,
                       int64_t item_bytes, Traffic* traffic) const;
  // What so many messages take, and the most bytes that a rank sends or receives in them.
  void TakeMessages(const GroupTimes& times, int64_t bytes, int64_t messages,
                    Traffic* traffic) const {
    traffic->Take(times.Direct(bytes, messages));
    traffic->TakeMessages(MessageNs() * messages);
  }
  // Along a tensor dim, between two lists of cuts: how long a message can be, and whether some
  // message is shorter than what it is part of, before or after.
  struct MovedLengths {
    int64_t longest = 0;
    bool splits_before = false;
    bool splits_after = false;
  };
  const MovedLengths& LengthsOf(int k, const CutLists::List& before,
                                const CutLists::List& after) const;
  // Which of two ways to do a step, `plain` where they cost the same.
  const Traffic& Choose(StepOp op, const State& before, const State& after, const Traffic& plain,
                        const Traffic& other) const;
  // What a step needs whose pieces are so long.
  int64_t WorkspaceBytes(StepOp op, const State& before, const State& after, int64_t send,
                         int64_t receive) const;

  const Problem& problem_;
  const Topology topology_;
  const CostOptions options_;
  // Of a collective in each protocol, by what links take at full speed.
  struct Nothing {};
  Envelope<Nothing> starts_;
  int64_t least_latency_percent_ = 100;
  int64_t best_bandwidth_ = 1;
  int64_t reduction_bandwidth_ = 1;
  mutable std::vector<std::optional<GroupTimes>> times_;  // by mask
  mutable std::vector<std::optional<std::optional<Stages>>> stages_;
  mutable absl::flat_hash_map<uint64_t, MovedLengths> lengths_;  // by tensor dim and lists
};

// Of a step that leads from `before` on, as plans for `topology` price it; onto another mesh too.
// They add up to the step's `est_ns`. REQUIRES: a step of a plan that is right.
TimeParts TimePartsOf(const Sharding& before, const Step& step, const Topology& topology);

}  // namespace meshift

#endif  // MESHIFT_PLANNER_COST_COST_H_
