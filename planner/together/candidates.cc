#include "planner/together/candidates.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/placement.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "planner/cost/cost.h"
#include "planner/cost/cross_cost.h"
#include "planner/inter_mesh/direct_crossing.h"
#include "planner/plan/crossing.h"
#include "planner/plan/workspace.h"
#include "planner/together/link_loads.h"

namespace meshift {
namespace {

// Work, in units of WorkBudget, of a rank and of a message of a crossing, and of a load.
constexpr int64_t kRankWork = 8;
constexpr int64_t kMessageWork = 8;
constexpr int64_t kLoadWork = 8;
// The messages of the crossings from all replicas together are at most about this many.
constexpr int64_t kMostReplicaMessages = int64_t{1} << 18;

// The replicas of a sharding: the coordinates of the mesh dims on which several hold the same.
class Replicas {
 public:
  explicit Replicas(const Sharding& from) : from_(from) {
    for (int d = 0; d < from.mesh().NumDims(); ++d) {
      const Placement& p = from.placement(d);
      Placement::Sizes coordinates;
      if (p.IsAt()) coordinates = p.coordinates();
      for (int64_t i = 0; p.IsReplicate() && i < from.mesh().dim(d).size; ++i) {
        coordinates.push_back(i);
      }
      if (coordinates.size() < 2) continue;
      count_ = SaturatingMul(count_, std::ssize(coordinates));
      dims_.push_back({d, std::move(coordinates)});
    }
  }
  int64_t count() const { return count_; }

  // Sets the replicated mesh dims of `coordinate` to those of a replica.
  void Choose(int64_t replica, Coordinate* coordinate) const {
    for (size_t i = dims_.size(); i-- > 0;) {
      const auto n = std::ssize(dims_[i].coordinates);
      (*coordinate)[dims_[i].mesh_dim] = dims_[i].coordinates[replica % n];
      replica /= n;
    }
  }
  // The sharding in which only this replica holds anything.
  absl::StatusOr<Sharding> Only(int64_t replica) const {
    Coordinate at(from_.mesh().NumDims(), 0);
    Choose(replica, &at);
    std::vector<Placement> placements(from_.placements().begin(), from_.placements().end());
    for (const Dim& dim : dims_) placements[dim.mesh_dim] = Placement::At({at[dim.mesh_dim]});
    std::vector<Cuts> cuts;
    for (int k = 0; k < static_cast<int>(from_.shape().size()); ++k) {
      cuts.emplace_back(from_.CutsOf(k).begin(), from_.CutsOf(k).end());
    }
    return from_.WithPlacements(std::move(placements), std::move(cuts));
  }

 private:
  struct Dim {
    int mesh_dim = 0;
    Placement::Sizes coordinates;
  };
  const Sharding& from_;
  absl::InlinedVector<Dim, 4> dims_;
  int64_t count_ = 1;
};

bool MayCrossDirectly(const TensorMove& move) {
  return move.from.mesh() != move.to.mesh() && move.from.dtype() == move.to.dtype() &&
         !move.from.HasPartial() && !move.to.HasPartial() && NumElements(move.from.shape()) > 0;
}

// The ranks that hold anything, by index.
std::vector<int32_t> HoldersOf(const Sharding& sharding, const Links& links) {
  const DeviceMesh& mesh = sharding.mesh();
  std::vector<int32_t> holders;
  for (int64_t position = 0; position < mesh.NumRanks(); ++position) {
    if (sharding.BoxAt(mesh.CoordinateAt(position)).IsEmpty()) continue;
    holders.push_back(links.IndexOf(mesh.RankAt(position)));
  }
  return holders;
}

bool IsDirect(const Plan& plan) { return plan.steps().size() == 1 && IsCrossing(plan.steps()[0]); }

}  // namespace

Candidate CandidateMaker::Finish(const TensorMove& move) {
  Candidate candidate{.loads = list_.Take(move.count)};
  for (const LinkLoad& load : candidate.loads) {
    if (load.level == links_.copy_level()) break;  // the last level
    if (load.place % 2 == kSent) candidate.sent = SaturatingAdd(candidate.sent, load.bytes);
  }
  budget_.Charge(kLoadWork, std::ssize(candidate.loads));
  return candidate;
}

int64_t CandidateMaker::CopiesNs(const Crossing& crossing, const Sharding& from,
                                 const Sharding& to) const {
  return BareCopiesNs(MeasureCrossing(crossing, from, to, links_.topology()).time,
                      links_.topology());
}

void CandidateMaker::AddCopies(int64_t ns, absl::Span<const int32_t> ranks, int direction) {
  for (const int32_t rank : ranks) list_.Add(links_.copy_level(), rank, direction, ns);
}

absl::StatusOr<std::vector<Candidate>> CandidateMaker::Make(const TensorMove& move, Plan alone,
                                                            const Sources& sources) {
  std::vector<Candidate> candidates;
  if (!budget_.Charge(LoadWork(alone))) return budget_.Refusal("planning");
  AddLoads(alone, links_, &list_);
  candidates.push_back(Finish(move));
  candidates[0].starts = StartsOf(alone, links_.topology(), &kinds_);
  const bool is_direct = IsDirect(alone);
  candidates[0].plan = std::move(alone);
  if (sources.alone || !MayCrossDirectly(move)) return candidates;

  const int64_t messages = Crossing::CountMessages(move.from, move.to);
  if (messages > Crossing::kMaxMessages) return candidates;
  const int64_t ranks = move.from.mesh().NumRanks() + move.to.mesh().NumRanks();
  if (!is_direct) {
    if (!budget_.Charge(kMessageWork, messages) || !budget_.Charge(2 * kRankWork, ranks)) {
      return budget_.Refusal("planning");
    }
    const Crossing crossing = Crossing::Of(move.from, move.to, links_.topology());
    const int64_t copies_ns = CopiesNs(crossing, move.from, move.to);
    AddCopies(copies_ns, HoldersOf(move.from, links_), kSent);
    AddCopies(copies_ns, HoldersOf(move.to, links_), kReceived);
    for (const CrossingMessage& message : crossing.messages()) {
      const int32_t sender = links_.IndexOf(message.sender);
      const int32_t receiver = links_.IndexOf(message.receiver);
      const int level = links_.LevelBetween(sender, receiver);
      const int64_t bytes = SaturatingBytes(move.from.dtype(), message.elements);
      list_.Add(level, sender, kSent, bytes);
      list_.Add(level, receiver, kReceived, bytes);
    }
    candidates.push_back(Finish(move));
  }
  if (messages > 0) {
    Sources fewer = sources;
    fewer.most = std::clamp<int64_t>(kMostReplicaMessages / messages, 2, sources.most);
    AddReplicas(move, fewer, &candidates);
  }
  if (budget_.exhausted()) return budget_.Refusal("planning");
  return candidates;
}

void CandidateMaker::AddReplicas(const TensorMove& move, const Sources& sources,
                                 std::vector<Candidate>* candidates) {
  const Replicas replicas(move.from);
  if (replicas.count() < 2) return;
  const absl::StatusOr<Sharding> source = replicas.Only(0);
  if (!source.ok()) return;
  const DeviceMesh& mesh = move.from.mesh();
  if (!budget_.Charge(kRankWork, mesh.NumRanks() + move.to.mesh().NumRanks()) ||
      !budget_.Charge(kMessageWork, Crossing::CountMessages(*source, move.to))) {
    return;
  }
  // A message of the first replica, also to itself. In another replica, the rank that differs only
  // in the replicated mesh dims sends it.
  struct Message {
    int32_t sender = 0;  // an index into `senders`
    int32_t receiver = 0;
    int64_t bytes = 0;
  };
  std::vector<Coordinate> senders;
  std::vector<int32_t> sender_of(links_.num_ranks(), -1);
  std::vector<Message> messages;
  int64_t copies_ns = 0;  // of the crossing, estimated as those of the first replica
  const auto add = [&](int64_t sender, int64_t receiver, int64_t elements) {
    int32_t& index = sender_of[links_.IndexOf(sender)];
    if (index < 0) {
      index = static_cast<int32_t>(senders.size());
      senders.push_back(*mesh.CoordinateOf(sender));
    }
    messages.push_back(
        {index, links_.IndexOf(receiver), SaturatingBytes(move.from.dtype(), elements)});
  };
  {
    const Crossing crossing = Crossing::Of(*source, move.to, links_.topology());
    copies_ns = CopiesNs(crossing, *source, move.to);
    for (const CrossingMessage& m : crossing.messages()) add(m.sender, m.receiver, m.elements);
    for (const int64_t rank : crossing.ranks()) {
      if (const auto kept = crossing.KeptBy(rank)) add(rank, rank, kept->NumElements());
    }
  }
  const Topology& topology = links_.topology();
  const int64_t slice_bytes = SaturatingBytes(source->dtype(), source->MaxLocalElements());
  const int64_t slice_ns = CopyNs(topology, slice_bytes) - CopyNs(topology, 0);
  const std::vector<int32_t> receivers = HoldersOf(move.to, links_);
  const int64_t tried = std::min(sources.most, replicas.count());
  std::vector<int32_t> index_of(senders.size());
  for (int64_t i = 0; i < tried; ++i) {
    if (!budget_.Charge(1, std::ssize(messages) + std::ssize(receivers)) ||
        !budget_.Charge(kRankWork, std::ssize(senders))) {
      return;
    }
    const int64_t replica =
        (MulDivFloor(i, replicas.count(), tried) + sources.turn) % replicas.count();
    for (size_t s = 0; s < senders.size(); ++s) {
      replicas.Choose(replica, &senders[s]);
      index_of[s] = links_.IndexOf(mesh.RankAt(senders[s]));
    }
    AddCopies(SaturatingAdd(slice_ns, copies_ns), index_of, kSent);
    AddCopies(copies_ns, receivers, kReceived);
    for (const Message& message : messages) {
      const int32_t sender = index_of[message.sender];
      if (sender == message.receiver) continue;
      const int level = links_.LevelBetween(sender, message.receiver);
      list_.Add(level, sender, kSent, message.bytes);
      list_.Add(level, message.receiver, kReceived, message.bytes);
    }
    candidates->push_back(Finish(move));
    candidates->back().replica = replica;
  }
}

void CandidateMaker::SetPlan(const TensorMove& move, Plan plan, Candidate* candidate) {
  if (!budget_.Charge(LoadWork(plan))) return;
  AddLoads(plan, links_, &list_);
  candidate->loads = list_.Take(move.count);
  candidate->plan = std::move(plan);
}

absl::StatusOr<Plan> CandidateMaker::PlanOf(const TensorMove& move, const Candidate& candidate) {
  if (candidate.plan) return *candidate.plan;
  if (candidate.replica < 0) return CrossDirectly(move.from, move.to, options_, budget_);
  MESHIFT_ASSIGN_OR_RETURN(const Sharding source, Replicas(move.from).Only(candidate.replica));
  return CrossDirectly(move.from, move.to, options_, budget_, &source);
}

}  // namespace meshift
