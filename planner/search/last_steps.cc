#include "planner/search/last_steps.h"

#include <algorithm>
#include <iterator>

#include "base/checked_math.h"

namespace meshift {

namespace {

// More states are not listed: it would take longer than what it saves.
constexpr int64_t kMaxStates = int64_t{1} << 20;
// Work of a state that is listed.
constexpr int64_t kListWork = 64;

// Ways to have mesh dims cut tensor dims, each one or none, in any order; saturates.
int64_t NumWaysToCut(int mesh_dims, int tensor_dims) {
  int64_t all = 0;
  int64_t ways = 1;  // of `used` mesh dims
  for (int used = 0; used <= mesh_dims; ++used) {
    all = SaturatingAdd(all, ways);
    // The next one goes between those that cut already, or to an end of a tensor dim's list. Each
    // way is made once for every mesh dim in it.
    ways = SaturatingMul(ways, int64_t{mesh_dims - used} * (tensor_dims + used)) / (used + 1);
  }
  return all;
}

}  // namespace

bool LastSteps::Knows(const Problem& problem, const SearchSpace& space) {
  return problem.num_stages() == 1 && !space.masks_target() && space.num_lists() > 0 &&
         NumWaysToCut(problem.num_dims(), space.num_lists()) <= kMaxStates;
}

LastSteps::LastSteps(const Problem& problem, const CostModel& model, SearchSpace& space)
    : problem_(problem), model_(model), space_(space), bounds_(problem, model, space.table()) {
  const View& target = space.target();
  const DimMask pool = ((DimMask{1} << problem.num_dims()) - 1) & ~target.partial;
  space.bounds().Start(target.lists);
  space.ForEachExtension({}, pool, {.moves = false},
                         [&](const Lists& lists, DimMask left, const StepBounds::Product& product) {
                           const State state = State::FromCode(target.partial_code | product.code,
                                                               target.state.stage());
                           if (!problem.Charge(kListWork)) return;
                           if (!space.Admits(state, product.longest)) return;
                           View view;
                           view.state = state;
                           view.lists = lists;
                           view.partial_code = target.partial_code;
                           view.partial = target.partial;
                           view.replicated = left;
                           view.cut = pool & ~left;
                           const int64_t ns = LeastFinishNs(view);
                           if (ns < INT64_MAX) last_.push_back({product.longest, ns});
                         });
  std::sort(last_.begin(), last_.end(), [](const Last& a, const Last& b) {
    return a.items != b.items ? a.items < b.items : a.ns < b.ns;
  });
  // What comes out of more items, and is no faster, bounds nothing.
  size_t kept = 0;
  for (const Last& last : last_) {
    if (kept == 0 || last.ns < last_[kept - 1].ns) last_[kept++] = last;
  }
  last_.resize(kept);
}

int64_t LastSteps::LeastFinishNs(const View& view) {
  bounds_.Start(view.lists);
  int64_t least = INT64_MAX;
  for (const View& last : space_.finished()) {
    if (last.state == view.state || last.partial_code != view.partial_code) continue;
    const StepBounds::Product& product = bounds_.Compare(last.lists);
    if (product.from == 0) continue;  // a slice
    int64_t ns = bounds_.LeastMoveNs(StepOp::kExchange, last.state.stage(), product);
    if (product.to == 0) {
      ns = std::min(ns, bounds_.LeastMoveNs(StepOp::kAllGather, last.state.stage(), product));
    } else if (space_.IsPermutation(view.lists, last.lists)) {
      ns = std::min(ns, bounds_.LeastMoveNs(StepOp::kPermute, last.state.stage(), product));
    }
    if (last.state != problem_.target()) ns = SaturatingAdd(ns, space_.least_finish_ns());
    least = std::min(least, ns);
  }
  return least;
}

// The last collective leads out of the state itself, or out of another one: a step leads there
// first, and the rank that has the largest box there got what that is larger by.
int64_t LastSteps::Look(const View& view) {
  if (view.reducible != 0 || view.partial_code != space_.target().partial_code) return 0;
  if (view.state == problem_.target()) return 0;
  const int64_t items = space_.MaxItems(view.lists);
  int64_t least = INT64_MAX;
  if (!problem_.Charge(1, std::ssize(last_))) return 0;
  for (const Last& last : last_) {
    const int64_t brought = SaturatingMul(std::max<int64_t>(last.items - items, 0),
                                          problem_.item_bytes(view.state.stage()));
    least = std::min(least, SaturatingAdd(last.ns, model_.TransferNs(brought)));
  }
  int64_t step = space_.least_collective_ns();
  if (view.replicated != 0) step = std::min(step, model_.CopyNs(0));
  least = std::min(SaturatingAdd(step, least), LeastFinishNs(view));
  return space_.IsFinished(view.state) ? std::min(least, space_.least_finish_ns()) : least;
}

int64_t LastSteps::LeastNs(const State& state) {
  const auto [it, is_new] = known_.try_emplace(state.code());
  if (is_new) it->second = Look(space_.Look(state));
  return it->second;
}

}  // namespace meshift
