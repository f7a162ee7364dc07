#include "planner/search/heuristic.h"

#include <algorithm>
#include <climits>
#include <cstdint>

#include "base/checked_math.h"

namespace meshift {
namespace {

constexpr int kNoGroups = INT_MAX;
constexpr int64_t kNever = INT64_MAX / 4;

}  // namespace

Heuristic::Heuristic(const Problem& problem, const CostModel& model, Successors& successors)
    : problem_(problem),
      model_(model),
      successors_(successors),
      layouts_(successors.layouts()),
      hop_ns_(model.LeastHopNs()) {
  // A cast reads the wider value, or writes it.
  const int64_t bytes = problem.MaxBytes(problem.target());
  least_finish_ns_ = model.CopyNs(problem.num_stages() > 1 ? bytes / 2 : bytes);
  for (int k = 0; k < problem.tensor_rank(); ++k) elements_ *= problem.extent(k);
  for (int d = 0; d < problem.num_dims(); ++d) {
    if (problem.StaysPartial(d)) elements_ = SaturatingMul(elements_, problem.size(d));
    if (problem.target().IsReplicate(d)) holders_ *= problem.size(d);
  }
  if (model.groups()) CountGroups();
  if (!successors.masks_target() && LinkBound::Knows(problem, model, layouts_)) {
    links_ = std::make_unique<LinkBound>(problem, model, layouts_);
    if (!links_->MaySayMore()) links_ = nullptr;
  }
}

void Heuristic::CountGroups() {
  const auto end = DimMask{1} << problem_.num_dims();
  groups_.assign(end, kNoGroups);
  for (DimMask dims = end; dims-- > 0;) {
    if (dims == 0 || model_.groups()->test(dims)) groups_[dims] = dims == 0 ? 0 : 1;
    // A part of what a group has.
    for (DimMask bit = 1; bit < end && groups_[dims] == kNoGroups; bit <<= 1) {
      if ((dims & bit) == 0 && groups_[dims | bit] == 1) groups_[dims] = 1;
    }
  }
  for (DimMask dims = 1; dims < end; ++dims) {
    for (DimMask part = (dims - 1) & dims; part != 0; part = (part - 1) & dims) {
      if (groups_[part] != 1 || groups_[dims & ~part] == kNoGroups) continue;
      groups_[dims] = std::min(groups_[dims], 1 + groups_[dims & ~part]);
    }
  }
}

int64_t Heuristic::StartsNs(DimMask across) const {
  const int starts = groups_.empty() ? 1 : std::max(1, groups_[across]);
  if (starts == kNoGroups) return kNever;
  const int hops = std::max(starts, layouts_.bounds().Hops(across));
  return SaturatingAdd(SaturatingMul(starts, model_.LeastCollectiveNs()),
                       SaturatingMul(hops, hop_ns_));
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
  if (successors_.IsFinished(state)) return std::min(least_finish_ns_, StartsNs(0));
  if (successors_.masks_target()) return StartsNs(reducible);
  // Of all that is not the first collective's start and bytes.
  const int64_t others_ns = StartsNs(across | reducible) - model_.LeastCollectiveNs();
  const int64_t average = AverageItems(state, reducible);
  if (reducible != 0) {
    const int64_t bytes = SaturatingMul(average, problem_.least_item_bytes());
    return SaturatingAdd(others_ns, model_.LeastReductionNs(bytes));
  }
  const int64_t items = std::max(average, layouts_.bounds().MissingOfTarget(wanted));
  int64_t links_ns = model_.TransferNs(SaturatingMul(items, problem_.least_item_bytes()));
  const int64_t ns = SaturatingAdd(others_ns, model_.LeastNs(links_ns));
  if (links_ == nullptr || ns > enough_ns) return ns;
  links_ns = std::max(links_ns, links_->LeastNs(state));
  return SaturatingAdd(others_ns, model_.LeastNs(links_ns));
}

}  // namespace meshift
