#include "planner/search/heuristic.h"

#include <algorithm>
#include <cstdint>

#include "base/checked_math.h"

namespace meshift {
namespace {

// In ns, where no group is allowed. The sum of two does not overflow.
constexpr int64_t kNever = INT64_MAX / 4;

}  // namespace

Heuristic::Heuristic(const Problem& problem, const CostModel& model, Successors& successors)
    : problem_(problem),
      model_(model),
      successors_(successors),
      layouts_(successors.layouts()),
      domains_(problem, model, layouts_) {
  // A cast copies at least half as many bytes as its wider value has.
  const int64_t bytes = problem.MaxBytes(problem.target());
  least_finish_ns_ = model.CopyNs(problem.num_stages() > 1 ? bytes / 2 : bytes);
  for (int k = 0; k < problem.tensor_rank(); ++k) elements_ *= problem.extent(k);
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (problem.StaysPartial(d)) elements_ = SaturatingMul(elements_, problem.size(d));
    if (problem.target().IsReplicate(d)) holders_ *= problem.size(d);
  }
  CoverDims();
}

void Heuristic::CoverDims() {
  const auto end = DimMask{1} << problem_.num_dims();
  const std::optional<DimSets>& allowed = model_.groups();
  // By mask: the least start and hops of an allowed group over these mesh dims or a superset.
  std::vector<int64_t> one(end, kNever);
  for (DimMask dims = end; dims-- > 0;) {
    if (dims != 0 && (!allowed || allowed->test(dims))) {
      one[dims] = SaturatingAdd(model_.LeastCollectiveNs(), model_.Times(dims).LeastLatencyNs());
    }
    for (DimMask bit = 1; bit < end; bit <<= 1) {
      if ((dims & bit) == 0) one[dims] = std::min(one[dims], one[dims | bit]);
    }
  }
  starts_ns_ = one;
  for (DimMask dims = 1; dims < end; ++dims) {
    ForEachSubset(dims, [&](DimMask part) {
      if (part == dims) return;
      starts_ns_[dims] =
          std::min(starts_ns_[dims], SaturatingAdd(one[part], starts_ns_[dims & ~part]));
    });
  }
}

int64_t Heuristic::AverageItems(const State& state, DimMask reducible) const {
  int64_t copies = -holders_;
  if (reducible != 0) {
    copies += 1 - (layouts_.bounds().GroupSize(reducible) - 1);
  } else {
    int64_t held = 1;
    for (int d = 0; d < problem_.num_dims(); ++d)
      held *= state.IsReplicate(d) ? problem_.size(d) : 1;
    copies += held;
  }
  if (copies >= 0) return 0;
  const __int128 items = static_cast<__int128>(elements_) * -copies / problem_.mesh().NumRanks();
  return static_cast<int64_t>(std::min<__int128>(items, INT64_MAX));
}

int64_t Heuristic::LeastNs(const State& state, DimMask reducible, const CutTable::Samples& wanted,
                           DimMask across, int64_t enough_ns) {
  if (state == problem_.target()) return 0;
  if (successors_.IsFinished(state)) return std::min(least_finish_ns_, starts_ns_[0]);
  if (successors_.masks_target()) return starts_ns_[reducible];
  // C(A) - alpha.
  const int64_t others_ns = starts_ns_[across | reducible] - model_.LeastCollectiveNs();
  int64_t items = AverageItems(state, reducible);
  if (reducible == 0) items = std::max(items, layouts_.bounds().MissingOfTarget(wanted));
  const int64_t bytes = SaturatingMul(items, problem_.least_item_bytes());
  const int64_t own_ns =
      reducible != 0 ? model_.LeastReductionNs(bytes) : model_.LeastCollectiveNs(bytes);
  const int64_t ns = SaturatingAdd(others_ns, own_ns);
  if (domains_.empty() || ns > enough_ns) return ns;
  const int64_t links_ns = model_.LeastNs(domains_.LeastNs(state, reducible));
  return SaturatingAdd(others_ns, std::max(own_ns, links_ns));
}

}  // namespace meshift
