#include "planner/inter_mesh/cross_mesh.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/status.h"
#include "placement/cast.h"
#include "placement/op_table.h"
#include "placement/unit_dims.h"
#include "planner/cost/cost.h"
#include "planner/cost/cross_cost.h"
#include "planner/cost/lower_bound.h"
#include "planner/cost/path_cost.h"
#include "planner/graph/state.h"
#include "planner/groups/plan_groups.h"
#include "planner/inter_mesh/cross_ends.h"
#include "planner/inter_mesh/mesh_pair.h"
#include "planner/inter_mesh/near_ends.h"
#include "planner/intra_mesh/assemble.h"
#include "planner/intra_mesh/reduction_choice.h"
#include "planner/limits/memory_search.h"
#include "planner/plan/crossing.h"
#include "planner/plan/memory_limit.h"
#include "planner/plan/workspace.h"
#include "planner/search/search.h"
#include "planner/search/value_rule.h"

namespace meshift {
namespace {

// Ranks and messages of the crossings that are priced. Beyond this, the cheapest pair so far is
// returned; pairs are priced in the order of their lower bounds. Pairs of meshes of some hundred
// ranks stay far below.
constexpr int64_t kMaxWork = int64_t{1} << 18;
// Work of all searches to and from near ends: those over ragged cuts can take long.
constexpr int64_t kMaxNearWork = int64_t{1} << 22;
// Work of all searches between owners and ends other than the first, which can take long, too.
constexpr int64_t kMaxOwnedWork = int64_t{1} << 26;
// Units of the planner's budget (base/work_budget.h): per rank or piece in a lower bound, per rank
// of a crossing, per message of a crossing.
constexpr int64_t kBoundWork = 6;
constexpr int64_t kRankWork = 24;
constexpr int64_t kMessageWork = 24;

// The steps on one mesh. Not movable: the model refers to the problem.
struct Half {
  Half(Problem p, const PlannerOptions& options, const CostOptions& cost)
      : problem(std::move(p)), model(problem, options.topology, cost) {}
  Problem problem;
  const CostModel model;
  ReductionChoice choice;
  std::optional<Path> path;  // nullopt: no path keeps to the limits
  bool is_least = true;      // goal kMemory: no path needs less workspace
  PathCost cost;
  // Bytes. Includes the value that crosses, unless that is the caller's tensor.
  int64_t workspace = 0;
};

// kSource: from the caller's source to the crossing. kTarget: from the crossing to the caller's
// target.
enum class Side : uint8_t { kSource, kTarget };

// Makes the crossing add all contributions of the partial value `before`, in order.
void SetReduction(const Sharding& before, int64_t reduce_block, Step* step) {
  step->reduce_order = ReduceOrder::kAscending;
  if (reduce_block > 0) step->reduce_block = reduce_block;
  step->accumulate_dtype = AccumulateDType(before.dtype());
  for (int d = 0; d < before.mesh().NumDims(); ++d) {
    if (!before.placement(d).IsPartial() || before.mesh().dim(d).size == 1) continue;
    const ReduceOp op = before.placement(d).op();
    if (op == ReduceOp::kAvg) {
      step->divisor = step->divisor.value_or(1) * before.mesh().dim(d).size;
    }
    // A sum of averages is an average.
    if (step->reduce_op != ReduceOp::kAvg) step->reduce_op = op;
  }
}

// Whether the search keeps to a limit of memory, or looks for the least.
bool IsLimited(const CrossLimits& limits) {
  return limits.goal == CrossGoal::kMemory || limits.workspace.has_value();
}

// Whether the limits forbid the group of all partial mesh dims. The contributions of a reduction in
// that group then cross and are added in order. That sum is batch-invariant, too: it depends on
// placements and groups, and not on sizes.
bool LacksReducingGroup(const Sharding& from, const PlanGroups& groups) {
  if (!groups.IsBounded()) return false;
  DimMask partial = 0;
  int bit = 0;
  for (int d = 0; d < from.mesh().NumDims(); ++d) {
    if (from.mesh().dim(d).size == 1) continue;
    if (from.placement(d).IsPartial()) partial |= DimMask{1} << bit;
    ++bit;
  }
  return partial != 0 && !groups.Allowed()[groups.NumberOf(0, partial)];
}

bool Reduces(const Path& path) {
  return std::any_of(path.moves.begin(), path.moves.end(),
                     [](const Move& move) { return IsReduction(move.op); });
}

// Ignores options.max_memory and options.groups; `limits` applies instead. `max_bytes`: the most of
// a value, unless options.max_value says so.
absl::StatusOr<std::unique_ptr<Half>> PlanHalf(Side side, const Sharding& from, const Sharding& to,
                                               std::optional<DType> reduce_dtype, int64_t max_bytes,
                                               const PlannerOptions& options,
                                               const PlanGroups& groups, const CrossLimits& limits,
                                               WorkBudget& budget) {
  // The crossing adds what the first half leaves partial; the second half begins without P.
  MESHIFT_ASSIGN_OR_RETURN(Problem problem,
                           Problem::Create(from, to, reduce_dtype, /*ends_at_crossing=*/true));
  problem.SetBudget(&budget);
  MESHIFT_ASSIGN_OR_RETURN(ReductionChoice choice, ChooseReductions(problem, options));
  choice.rules.masks_cuts = false;  // no reduction after the crossing
  // Larger values take more memory, and searching for them with each pair of ends takes too long.
  if (!options.max_value) {
    choice.rules.max_value = IsLimited(limits) ? problem.MaxValueBytes() : max_bytes;
  }
  CostOptions cost = CostOptionsOf(options, choice);
  cost.from_source = side == Side::kSource;
  cost.to_target = side == Side::kTarget;
  cost.max_workspace = limits.goal == CrossGoal::kMemory ? 0 : limits.workspace;
  if (limits.allowed != nullptr) {
    cost.groups = groups.DimsOf(side == Side::kSource ? 0 : 1, *limits.allowed);
  }
  auto half = std::make_unique<Half>(std::move(problem), options, cost);
  half->choice = std::move(choice);
  if (limits.goal == CrossGoal::kMemory) {
    std::optional<LeastPath> least =
        FindLeastWorkspace(half->problem, half->model, half->choice.rules);
    if (least) {
      half->is_least = least->is_least;
      half->path = std::move(least->path);
    }
  } else {
    std::optional<LimitedPath> found =
        FindWithin(half->problem, half->model, half->choice.rules, limits.bound_ns);
    if (found && !found->path) return half;
    if (found) half->path = std::move(found->path);
  }
  if (!half->path && (limits.allowed != nullptr || limits.bound_ns < INT64_MAX)) return half;
  if (!half->path) return Internal("no plan from {} to {}", from.ToString(), to.ToString());
  half->cost = CostOf(half->problem, half->model, *half->path);
  half->workspace = WorkspaceOf(half->problem, half->model, *half->path);
  return half;
}

class InterMeshPlanner {
 public:
  InterMeshPlanner(const Sharding& from, const Sharding& to, const PlannerOptions& options,
                   const PlanGroups& groups, const CrossLimits& limits, WorkBudget& budget)
      : from_(from),
        to_(to),
        asked_(options),
        options_(options),
        groups_(groups),
        limits_(limits),
        budget_(budget),
        meshes_(from.mesh(), to.mesh(), options.topology) {
    if (options.reproducibility == Reproducibility::kBatchInvariant &&
        LacksReducingGroup(from, groups)) {
      options_.reproducibility = Reproducibility::kOrdered;
    }
  }

  // RESOURCE_EXHAUSTED: no pair that was priced keeps to the limits. UNIMPLEMENTED: the same, and
  // some pair has too many messages. Otherwise errors of FindPairs().
  absl::StatusOr<Plan> Run();
  // The cheapest plans; each label once.
  absl::StatusOr<std::vector<Plan>> List(size_t most, LabelFn label);
  // Whether all pairs that might be better were priced.
  bool is_done() const { return is_done_; }

 private:
  struct Pair {
    const Half* first;
    const Half* second;
    int64_t least;  // lower bound of the goal: ns, or bytes of workspace
    bool is_priced = false;
  };
  // The value of the goal: ns, or bytes of workspace.
  int64_t Amount(const PathCost& cost, int64_t workspace) const {
    return limits_.goal == CrossGoal::kCost ? cost.ns : workspace;
  }
  // The bytes of workspace that a pair's crossing needs.
  static int64_t CrossingWorkspace(const Pair& pair, const Traffic& traffic);
  // The bytes of a copy that the crossing works on, if it is the only step and not in place; else
  // 0.
  int64_t CopiedBytes(const Pair& pair, const Crossing& crossing) const;
  // PlanHalf() to or from `end`. `own`: null, or a budget that this kind of ends shares. Returns
  // null when that is exhausted. `bound_ns`: as CrossLimits::bound_ns.
  absl::StatusOr<std::unique_ptr<Half>> PlanTo(Side side, const Sharding& end, WorkBudget* own,
                                               int64_t bound_ns);
  // A half that ends at the crossing.
  struct First {
    const Half* half;
    DistinctBoxes boxes;
  };
  // The halves whose value has `dtype` at the crossing. Each pair of them is in pairs_.
  struct Halves {
    DType dtype;
    std::vector<First> firsts = {};
    std::vector<const Half*> seconds = {};
    absl::Status refusal = absl::OkStatus();  // the first error of a half
  };
  // These find a half, and add its pairs. A pair that takes longer than `within_ns` may be missing.
  void AddFirst(const Sharding& source, bool partial, WorkBudget* own, int64_t within_ns,
                Halves* halves);
  void AddSecond(const Sharding& target, WorkBudget* own, int64_t within_ns, Halves* halves);
  void AddPair(const First& first, const Half& second);
  // The ends of cross_ends.h.
  void AddPlainEnds(Halves* halves);
  // The ends of near_ends.h. `is_bounded`: not those that cannot give the quickest pair.
  void AddNearEnds(bool is_bounded, Halves* halves);
  // Prices the pair with the least lower bound, if it may be better than best_. Returns the best
  // time so far, or INT64_MAX.
  int64_t PriceNext();
  // Finds the pairs and sorts them by their lower bounds. Unless `is_listing`, leaves out near ends
  // that cannot give the best pair, and sets best_.
  absl::Status FindPairs(bool is_listing);
  // Whether receivers may add contributions: in order, so that replicas are equal, and so that the
  // promise holds for all reductions.
  bool MayCrossPartial(DType dtype) const {
    if (!plain_ || !options_.ordered_reductions || dtype != reduce_dtype_) return false;
    return plain_->exact || plain_->ordered ||
           options_.reproducibility <= Reproducibility::kReplicas;
  }
  // A pair, and its crossing and cost.
  struct Priced {
    Pair pair;
    PathCost cost;
    int64_t workspace;
    Crossing crossing;
    Traffic traffic;
  };
  // nullopt if the pair breaks a limit, has too many messages, or the budget is exhausted.
  std::optional<Priced> Price(const Pair& pair);
  // Prices the pair, and makes it the best if it is.
  void Consider(Pair* pair);
  Plan Assemble(const Priced& priced) const;
  // Whether the value at the crossing, which is the half's `end`, breaks options_.max_value.
  bool IsTooLarge(const Half& half, const Sharding& end, DType dtype) const;
  absl::Status NoneWithinMaxValue() const;
  // The error of a half; INTERNAL means that none keeps the rules, here options_.max_value.
  absl::Status RefusalOf(const absl::Status& status) const {
    return options_.max_value && absl::IsInternal(status) ? NoneWithinMaxValue() : status;
  }
  int64_t LargestBytes(const Sharding& sharding, DType dtype) const {
    return SaturatingBytes(dtype, sharding.MaxLocalElements());
  }

  const Sharding& from_;
  const Sharding& to_;
  const PlannerOptions& asked_;
  PlannerOptions options_;  // asked_, or with a stronger promise
  const PlanGroups& groups_;
  const CrossLimits limits_;
  WorkBudget& budget_;
  WorkBudget near_budget_{kMaxNearWork};
  WorkBudget owned_budget_{kMaxOwnedWork};
  const MeshPair meshes_;
  DType reduce_dtype_ = DType::kF32;  // the source's if the plan has no reduction
  int64_t max_bytes_ = 0;             // the most of the value that crosses
  std::vector<std::unique_ptr<Half>> halves_;
  bool is_done_ = true;
  std::vector<Pair> pairs_;
  std::optional<Priced> best_;
  int64_t work_ = 0;            // ranks and messages of the priced crossings
  int64_t fewest_ = INT64_MAX;  // the fewest messages of a crossing that has too many
  // The choice of the simplest source. All sources reduce in the same way: bits must not depend on
  // cost.
  std::optional<ReductionChoice> plain_;
};

absl::StatusOr<std::unique_ptr<Half>> InterMeshPlanner::PlanTo(Side side, const Sharding& end,
                                                               WorkBudget* own, int64_t bound_ns) {
  CrossLimits limits = limits_;
  limits.bound_ns = std::min(limits.bound_ns, bound_ns);
  const auto plan = [&](WorkBudget& budget) {
    return side == Side::kSource ? PlanHalf(side, from_, end, reduce_dtype_, max_bytes_, options_,
                                            groups_, limits, budget)
                                 : PlanHalf(side, end, to_, std::nullopt, max_bytes_, options_,
                                            groups_, limits, budget);
  };
  if (own == nullptr) return plan(budget_);
  const int64_t before = own->done();
  absl::StatusOr<std::unique_ptr<Half>> half = std::unique_ptr<Half>();
  if (!own->exhausted()) {
    half = plan(*own);
    budget_.Charge(own->done() - before);
  }
  if (own->exhausted()) half = std::unique_ptr<Half>();
  if (half.ok() && *half == nullptr) is_done_ = false;
  if (half.ok() && *half != nullptr) (*half)->problem.SetBudget(&budget_);
  return half;
}

void InterMeshPlanner::AddFirst(const Sharding& source, bool partial, WorkBudget* own,
                                int64_t within_ns, Halves* halves) {
  if (LargestBytes(source, halves->dtype) > max_bytes_ ||
      !budget_.Charge(kBoundWork, from_.mesh().NumRanks())) {
    return;
  }
  absl::StatusOr<std::unique_ptr<Half>> half = PlanTo(Side::kSource, source, own, within_ns);
  if (!half.ok()) {
    halves->refusal.Update(RefusalOf(half.status()));
    return;
  }
  if (*half == nullptr) return;
  const ReductionChoice& choice = (*half)->choice;
  if (!plain_) plain_ = choice;
  is_done_ &= (*half)->is_least;
  if ((!partial && choice.ordered != plain_->ordered) || !(*half)->path) return;
  if (IsTooLarge(**half, source, halves->dtype)) {
    halves->refusal.Update(NoneWithinMaxValue());
    return;
  }
  halves->firsts.push_back({half->get(), DistinctBoxes(source)});
  halves_.push_back(*std::move(half));
  for (const Half* second : halves->seconds) AddPair(halves->firsts.back(), *second);
}

void InterMeshPlanner::AddSecond(const Sharding& target, WorkBudget* own, int64_t within_ns,
                                 Halves* halves) {
  if (LargestBytes(target, halves->dtype) > max_bytes_ || budget_.exhausted()) return;
  int64_t rest_ns = 0;  // at least, before the half
  if (within_ns < INT64_MAX) {
    rest_ns = within_ns;
    for (const First& first : halves->firsts) {
      if (!budget_.Charge(kBoundWork, meshes_.num_shared() + 1)) return;
      const int64_t crossing_ns = meshes_.LeastNs(first.half->problem.to(), first.boxes, target);
      rest_ns = std::min(rest_ns, SaturatingAdd(crossing_ns, first.half->cost.ns));
    }
    if (rest_ns >= within_ns) return;
  }
  absl::StatusOr<std::unique_ptr<Half>> half =
      PlanTo(Side::kTarget, target, own, within_ns - rest_ns);
  if (!half.ok()) {
    halves->refusal.Update(RefusalOf(half.status()));
    return;
  }
  if (*half == nullptr) return;
  is_done_ &= (*half)->is_least;
  if (!(*half)->path || Reduces(*(*half)->path)) return;
  if (IsTooLarge(**half, target, halves->dtype)) {
    halves->refusal.Update(NoneWithinMaxValue());
    return;
  }
  halves->seconds.push_back(half->get());
  halves_.push_back(*std::move(half));
  for (const First& first : halves->firsts) AddPair(first, *halves->seconds.back());
}

void InterMeshPlanner::AddPair(const First& first, const Half& second) {
  if (!budget_.Charge(kBoundWork, meshes_.num_shared() + 1)) return;
  const int64_t crossing_ns =
      meshes_.LeastNs(first.half->problem.to(), first.boxes, second.problem.from());
  Pair pair{.first = first.half, .second = &second, .least = 0};
  const PathCost cost = first.half->cost + second.cost + PathCost{.ns = crossing_ns};
  pair.least = Amount(cost, std::max({first.half->workspace, second.workspace,
                                      CrossingWorkspace(pair, /*traffic=*/{})}));
  pairs_.push_back(pair);
}

void InterMeshPlanner::AddPlainEnds(Halves* halves) {
  // The first end of each list, the simplest, may take all work.
  WorkBudget* own = nullptr;
  WorkBudget* const owned_sources = UnitDims::Of({&from_}).empty() ? nullptr : &owned_budget_;
  for (const Sharding& source : CrossSources(from_, halves->dtype)) {
    AddFirst(source, /*partial=*/false, own, INT64_MAX, halves);
    own = owned_sources;
  }
  if (MayCrossPartial(halves->dtype)) {
    for (const Sharding& source : PartialSources(from_, halves->dtype, plain_->rules.at_once)) {
      AddFirst(source, /*partial=*/true, owned_sources, INT64_MAX, halves);
    }
  }
  if (halves->firsts.empty()) return;
  own = nullptr;
  WorkBudget* const owned_targets = UnitDims::Of({&to_}).empty() ? nullptr : &owned_budget_;
  for (const Sharding& target : CrossTargets(to_, halves->dtype)) {
    AddSecond(target, own, INT64_MAX, halves);
    own = owned_targets;
  }
}

void InterMeshPlanner::AddNearEnds(bool is_bounded, Halves* halves) {
  std::vector<Sharding> known;
  for (const First& first : halves->firsts) known.push_back(first.half->problem.to());
  for (const Half* second : halves->seconds) known.push_back(second->problem.from());
  for (const Sharding& end : NearEndsOfBoth(from_, to_, halves->dtype, options_.topology)) {
    if (std::find(known.begin(), known.end(), end) != known.end()) continue;
    const int64_t within_ns = is_bounded ? PriceNext() : INT64_MAX;
    if (end.mesh() == from_.mesh()) {
      AddFirst(end, /*partial=*/false, &near_budget_, within_ns, halves);
    } else {
      AddSecond(end, &near_budget_, within_ns, halves);
    }
  }
}

int64_t InterMeshPlanner::PriceNext() {
  if (best_ && work_ > kMaxWork) return best_->cost.ns;
  Pair* next = nullptr;
  for (Pair& pair : pairs_) {
    if (!pair.is_priced && (next == nullptr || pair.least < next->least)) next = &pair;
  }
  if (next != nullptr && (!best_ || next->least < best_->cost.ns)) Consider(next);
  return best_ ? best_->cost.ns : INT64_MAX;
}

void InterMeshPlanner::Consider(Pair* pair) {
  const auto rank = [this](const Priced& priced) {
    return std::tuple(Amount(priced.cost, priced.workspace), priced.cost);
  };
  pair->is_priced = true;
  std::optional<Priced> priced = Price(*pair);
  if (priced && (!best_ || rank(*priced) < rank(*best_))) best_ = std::move(priced);
}

// The value at the crossing is the source or the target itself where its half has no steps.
bool InterMeshPlanner::IsTooLarge(const Half& half, const Sharding& end, DType dtype) const {
  return options_.max_value && !half.path->moves.empty() &&
         LargestBytes(end, dtype) > *options_.max_value;
}

absl::Status InterMeshPlanner::NoneWithinMaxValue() const {
  return FailedPrecondition("no plan to the other mesh keeps to max_value = {}",
                            *options_.max_value);
}

int64_t InterMeshPlanner::CrossingWorkspace(const Pair& pair, const Traffic& traffic) {
  const auto held = [](const Half& half, const State& state) {
    return half.path->moves.empty() ? 0 : AlignedPiece(half.problem.MaxBytes(state));
  };
  const int64_t values = SaturatingAdd(held(*pair.first, pair.first->problem.target()),
                                       held(*pair.second, pair.second->problem.source()));
  return SaturatingAdd(values, SaturatingAdd(AlignedPiece(traffic.send_pack_bytes),
                                             AlignedPiece(traffic.receive_pack_bytes)));
}

int64_t InterMeshPlanner::CopiedBytes(const Pair& pair, const Crossing& crossing) const {
  if (!pair.first->path->moves.empty() || !pair.second->path->moves.empty()) return 0;
  const int64_t copied = TensorMemory(from_, to_, options_.buffers).copied;
  const StepOp op = crossing.messages().empty() ? StepOp::kRelabel : StepOp::kExchange;
  return copied > 0 && WorksOnCopy(op, from_, to_) ? copied : 0;
}

absl::Status InterMeshPlanner::FindPairs(bool is_listing) {
  MESHIFT_RETURN_IF_ERROR(CheckCast(from_.dtype(), to_.dtype()));
  reduce_dtype_ = from_.dtype();
  int64_t larger = std::max(LargestBytes(from_, from_.dtype()), LargestBytes(to_, to_.dtype()));
  if (ContributionsOf(from_) > 1) {
    reduce_dtype_ = options_.reduce_dtype.value_or(DefaultReduceDType(from_.dtype(), to_.dtype()));
    for (const auto& [a, b] :
         {std::pair(from_.dtype(), reduce_dtype_), std::pair(reduce_dtype_, to_.dtype())}) {
      MESHIFT_RETURN_IF_ERROR(CheckCast(a, b));
    }
    for (int d = 0; d < from_.mesh().NumDims(); ++d) {
      if (!from_.placement(d).IsPartial() || from_.mesh().dim(d).size == 1) continue;
      MESHIFT_RETURN_IF_ERROR(CheckReduce(from_.placement(d).op(), reduce_dtype_));
    }
    larger = std::max(larger, LargestBytes(from_, reduce_dtype_));
  }
  // Searches within a memory limit hold no value beyond their ends (PlanHalf).
  max_bytes_ =
      IsLimited(limits_) ? larger : std::max(larger, ValueLimit(larger, options_.max_value));
  Halves reduced{reduce_dtype_};
  Halves cast{to_.dtype()};
  AddPlainEnds(&reduced);
  if (cast.dtype != reduced.dtype) AddPlainEnds(&cast);
  const bool is_bounded = !is_listing && limits_.goal == CrossGoal::kCost;
  AddNearEnds(is_bounded, &reduced);
  if (cast.dtype != reduced.dtype) AddNearEnds(is_bounded, &cast);
  if (pairs_.empty()) MESHIFT_RETURN_IF_ERROR(reduced.refusal);
  if (pairs_.empty() && limits_.allowed != nullptr) return absl::ResourceExhaustedError("");
  if (pairs_.empty()) return Internal("no plan from {} to {}", from_.ToString(), to_.ToString());
  std::stable_sort(pairs_.begin(), pairs_.end(),
                   [](const Pair& a, const Pair& b) { return a.least < b.least; });
  return absl::OkStatus();
}

std::optional<InterMeshPlanner::Priced> InterMeshPlanner::Price(const Pair& pair) {
  const Sharding& before = pair.first->problem.to();
  const Sharding& after = pair.second->problem.from();
  if (!budget_.Charge(kRankWork, from_.mesh().NumRanks() + to_.mesh().NumRanks())) {
    return std::nullopt;
  }
  const int64_t messages = Crossing::CountMessages(before, after);
  if (messages > Crossing::kMaxMessages) {
    fewest_ = std::min(fewest_, messages);
    is_done_ = false;
    return std::nullopt;
  }
  if (!budget_.Charge(kMessageWork, messages)) return std::nullopt;
  Crossing crossing = Crossing::Of(before, after, options_.topology);
  const bool uses_group = !crossing.messages().empty();
  if (uses_group && limits_.allowed != nullptr && !(*limits_.allowed)[groups_.crossing()]) {
    return std::nullopt;
  }
  work_ += meshes_.union_size() + static_cast<int64_t>(crossing.messages().size());
  const Traffic traffic = MeasureCrossing(crossing, before, after, options_.topology);
  int64_t total = 0;
  for (const CrossingMessage& message : crossing.messages()) {
    total = SaturatingAdd(total, SaturatingBytes(before.dtype(), message.elements));
  }
  const PathCost cost = pair.first->cost + CostOf(traffic, total) + pair.second->cost;
  const int64_t crossing_bytes =
      SaturatingAdd(CrossingWorkspace(pair, traffic), CopiedBytes(pair, crossing));
  const int64_t workspace =
      std::max({pair.first->workspace, pair.second->workspace, crossing_bytes});
  if (limits_.workspace && workspace > *limits_.workspace) return std::nullopt;
  return Priced{pair, cost, workspace, std::move(crossing), traffic};
}

absl::StatusOr<Plan> InterMeshPlanner::Run() {
  MESHIFT_RETURN_IF_ERROR(FindPairs(/*is_listing=*/false));
  for (Pair& pair : pairs_) {
    if (budget_.exhausted()) break;
    if (pair.is_priced) continue;
    if (best_ && pair.least > Amount(best_->cost, best_->workspace)) break;
    if (best_ && work_ > kMaxWork) {
      is_done_ = false;
      break;
    }
    Consider(&pair);
  }
  if (best_) return Assemble(*best_);
  if (fewest_ == INT64_MAX) return absl::ResourceExhaustedError("");
  return Unimplemented("from {} to {} at least {} messages cross; at most {} are planned",
                       from_.ToString(), to_.ToString(), fewest_, Crossing::kMaxMessages);
}

absl::StatusOr<std::vector<Plan>> InterMeshPlanner::List(size_t most, LabelFn label) {
  MESHIFT_RETURN_IF_ERROR(FindPairs(/*is_listing=*/true));
  struct Listed {
    PathCost cost;
    std::string label;
    Plan plan;
  };
  std::vector<Listed> all;  // sorted by cost
  for (const Pair& pair : pairs_) {
    if ((all.size() == most && pair.least > all.back().cost.ns) || work_ > kMaxWork) break;
    if (budget_.exhausted()) break;
    const std::optional<Priced> priced = Price(pair);
    if (!priced || (all.size() == most && !(priced->cost < all.back().cost))) continue;
    Listed listed{priced->cost, "", Assemble(*priced)};
    listed.label = label(listed.plan);
    const auto same = std::find_if(all.begin(), all.end(),
                                   [&](const Listed& one) { return one.label == listed.label; });
    if (same != all.end()) {
      if (!(listed.cost < same->cost)) continue;
      all.erase(same);
    }
    const auto at = std::find_if(all.begin(), all.end(),
                                 [&](const Listed& one) { return listed.cost < one.cost; });
    all.insert(at, std::move(listed));
    if (all.size() > most) all.pop_back();
  }
  std::vector<Plan> plans;
  for (Listed& one : all) plans.push_back(std::move(one.plan));
  return plans;
}

Plan InterMeshPlanner::Assemble(const Priced& priced) const {
  const auto& [pair, cost, workspace, crossing, traffic] = priced;
  PlanAssembly plan({from_.mesh(), to_.mesh()}, from_, to_, asked_, groups_);
  plan.AddPath(pair.first->problem, pair.first->model, *pair.first->path, pair.first->choice,
               /*mesh=*/0);
  const Sharding& before = pair.first->problem.to();
  const bool ends = pair.second->path->moves.empty();
  Step step = CrossingStep(crossing, traffic, before, ends ? to_ : pair.second->problem.from(),
                           meshes_.union_size(), options_.reduce_block);
  std::string why = pair.first->choice.why;
  if (crossing.contributions() > 1) {
    why = plain_->why;
    if (why.empty()) {
      why = "contributions are combined in ascending order by every rank that receives them";
    }
  }
  plan.AddStep(std::move(step), traffic.send_pack_bytes, traffic.receive_pack_bytes);
  plan.AddPath(pair.second->problem, pair.second->model, *pair.second->path, pair.second->choice,
               /*mesh=*/1);
  if (options_.reproducibility != asked_.reproducibility && plain_->ordered) {
    why += ": the group that would reduce them does not exist";
  }
  const int bits =
      std::min({BitWidth(from_.dtype()), BitWidth(reduce_dtype_), BitWidth(to_.dtype())});
  return std::move(plan).Seal(LeastCost(from_, to_, pair.first->model, pair.second->model, bits),
                              why);
}

}  // namespace

Step CrossingStep(const Crossing& crossing, const Traffic& traffic, const Sharding& before,
                  const Sharding& after, int64_t num_ranks, int64_t reduce_block) {
  const auto bytes = [&](const Sharding& sharding) {
    return SaturatingBytes(before.dtype(), sharding.MaxLocalElements());
  };
  Step step{.op = StepOp::kRelabel,
            .mesh = 1,
            .sizes = traffic.sizes,
            .after = after,
            .bytes_in = bytes(before),
            .bytes_out = bytes(after),
            .bytes_sent = traffic.bytes_sent,
            .est_ns = traffic.est_ns};
  if (!crossing.messages().empty()) {
    step.op = StepOp::kExchange;
    step.group_size = num_ranks;
    step.groups = 1;
    step.wire_dtype = before.dtype();
  }
  if (crossing.contributions() > 1) SetReduction(before, reduce_block, &step);
  return step;
}

absl::StatusOr<std::vector<Plan>> ListCrossPlans(const Sharding& from, const Sharding& to,
                                                 const PlannerOptions& options,
                                                 const PlanGroups& groups, size_t most,
                                                 LabelFn label, WorkBudget& budget) {
  return InterMeshPlanner(from, to, options, groups, {}, budget).List(most, label);
}

absl::StatusOr<Plan> FindCrossPlan(const Sharding& from, const Sharding& to,
                                   const PlannerOptions& options, const PlanGroups& groups,
                                   const CrossLimits& limits, WorkBudget& budget, bool* is_done) {
  if (budget.exhausted()) return budget.Refusal("planning");
  InterMeshPlanner planner(from, to, options, groups, limits, budget);
  absl::StatusOr<Plan> plan = planner.Run();
  if (is_done != nullptr) *is_done = planner.is_done();
  return plan;
}

}  // namespace meshift
