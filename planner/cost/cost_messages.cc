// Collectives made of messages: all_to_all, permute, exchange.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/cost/cost_cuts.h"
#include "planner/cost/moved_dim.h"
#include "planner/graph/geometry.h"

namespace meshift {

using cost_internal::MovingCuts;

namespace {

// Groups of more ranks have a file of their own (cost_many_ranks.cc).
constexpr int64_t kFewRanks = 256;
// Work of a rank that is looked at, and of a piece that is listed.
constexpr int64_t kRankWork = 2;
constexpr int64_t kPieceWork = 4;

// The most that a rank has, each over all ranks that were looked at.
template <typename Items>
struct Worst {
  Items sent = 0;
  Items received = 0;
  Items kept = 0;
  int64_t messages = 0;
};

// Calls fn() at every combination of coordinates of `dims`, until it returns false; whether it
// never did. `go_to(d, c)` makes c the coordinate of mesh dim d.
template <typename GoTo, typename Fn>
bool ForEachCoordinate(const Problem& problem, absl::Span<const int> dims, const GoTo& go_to,
                       const Fn& fn) {
  std::array<int64_t, kMaxStateDims> at = {};
  for (const int d : dims) go_to(d, 0);
  while (true) {
    if (!problem.Charge(kRankWork) || !fn()) return false;
    size_t i = dims.size();
    while (i > 0 && ++at[dims[i - 1]] == problem.size(dims[i - 1])) {
      --i;
      at[dims[i]] = 0;
      go_to(dims[i], 0);
    }
    if (i == 0) return true;
    go_to(dims[i - 1], at[dims[i - 1]]);
  }
}

}  // namespace

// The worst rank's messages of an all_to_all, a permute or an exchange.
//
// Along one tensor dim a rank's interval depends on the coordinates of that dim's cuts alone, so a
// box's volume is a product over tensor dims, and so is a sum over all receivers whose coordinates
// vary freely. Only the rank itself is enumerated: its coordinates on the moving dims, and the
// lengths that the parent box can have.
void CostModel::MeasureMessages(StepOp op, const CutLists& cuts_before, const CutLists& cuts_after,
                                int64_t item_bytes, Traffic* traffic) const {
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    if (problem_.extent(k) == 0) return;
  }
  const MovingCuts cuts(problem_, cuts_before, cuts_after);
  if (cuts.ranks > kFewRanks && !cuts.ragged) {
    return MeasureManyMessages(op, cuts_before, cuts_after, item_bytes, traffic);
  }
  // Times the items along tensor dims that nothing moves.
  int64_t still = item_bytes;
  absl::InlinedVector<absl::InlinedVector<MovedDim, 2>, 4> moved;  // by tensor dim and extent
  const bool packs = op != StepOp::kPermute;
  bool long_before = false;  // messages have more than one index along some dim before k
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    const CutLists::List& list_before = cuts_before.of[k];
    const CutLists::List& list_after = cuts_after.of[k];
    const int common = cuts.parent.of[k].size;
    const Extents extents = ExtentsAfter(problem_, k, cuts.parent);
    if (list_before.size == common && list_after.size == common) {
      still *= extents.front();
      long_before |= extents.front() > 1;
      continue;
    }
    moved.emplace_back();
    bool is_long = false;
    // All of their pieces are listed.
    int64_t pieces = 1;
    for (int i = common; i < list_before.size; ++i) {
      pieces = SaturatingMul(pieces, problem_.size(list_before[i]));
    }
    int64_t pieces_after = 1;
    for (int i = common; i < list_after.size; ++i) {
      pieces_after = SaturatingMul(pieces_after, problem_.size(list_after[i]));
    }
    if (!problem_.Charge(SaturatingMul(kPieceWork, SaturatingAdd(pieces, pieces_after)),
                         std::ssize(extents))) {
      return;
    }
    for (int64_t extent : extents) {
      const MovedDim& dim =
          moved.back().emplace_back(problem_, list_before, list_after, common, cuts.before, extent);
      is_long |= dim.longest() > 1;
      traffic->send_packs |= packs && long_before && dim.splits_old();
      traffic->receive_packs |= packs && long_before && dim.splits_new();
    }
    long_before |= is_long;
  }
  MovedDim::Dims only_before;  // sorted by size, then mesh order
  MovedDim::Dims only_after;
  for (const int d : cuts.dims) {
    if (!HasDim(cuts.after, d)) only_before.push_back(d);
    if (!HasDim(cuts.before, d)) only_after.push_back(d);
  }
  for (MovedDim::Dims* dims : {&only_before, &only_after}) {
    std::stable_sort(dims->begin(), dims->end(),
                     [&](int x, int y) { return problem_.size(x) < problem_.size(y); });
  }

  // Elements of all receivers together fit into 64 bits unless the tensor is huge; never are they
  // more than 2^31 ranks times 2^63.
  int64_t elements = problem_.mesh().NumRanks();
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    elements = SaturatingMul(elements, problem_.extent(k));
  }
  const bool fits = SaturatingMul(elements, item_bytes) < INT64_MAX;
  const auto bytes = [still](__int128 items) {
    const __int128 product = items * still;
    return product > INT64_MAX ? INT64_MAX : static_cast<int64_t>(product);
  };
  std::array<int64_t, kMaxStateDims> at = {};
  absl::InlinedVector<const MovedDim*, 4> chosen(moved.size());
  absl::InlinedVector<MovedDim::Place, 4> places(moved.size());  // of the rank at `at`
  const auto go_to = [&](int d, int64_t coordinate) {
    const int64_t by = coordinate - at[d];
    at[d] = coordinate;
    for (size_t i = 0; i < chosen.size(); ++i) places[i].Move(chosen[i]->StrideOf(d), by);
  };
  // Every combination of the parent's lengths, at every combination of coordinates.
  const auto for_each_rank = [&](const auto& visit) {
    absl::InlinedVector<size_t, 4> index(moved.size(), 0);
    while (true) {
      for (size_t i = 0; i < moved.size(); ++i) chosen[i] = &moved[i][index[i]];
      if (!ForEachCoordinate(problem_, cuts.dims, go_to, visit)) return;
      size_t i = moved.size();
      while (i > 0 && ++index[i - 1] == moved[i - 1].size()) index[--i] = 0;
      if (i == 0) return;
    }
  };
  if (op == StepOp::kPermute) {
    // One box out, one box in; nothing where the rank keeps its own.
    for_each_rank([&] {
      bool stays = true;
      int64_t volume = 1;
      for (size_t k = 0; k < chosen.size(); ++k) {
        volume *= chosen[k]->At(places[k]).before;
        for (size_t i = 0; i < chosen[k]->before().size(); ++i) {
          stays &= at[chosen[k]->before()[i]] == at[chosen[k]->after()[i]];
        }
      }
      for (size_t i = 0; i < only_after.size(); ++i) {
        stays &= at[only_after[i]] == at[only_before[i]];
      }
      if (stays || volume == 0) return true;
      traffic->bytes_sent = std::max(traffic->bytes_sent, bytes(volume));
      traffic->bytes_received = traffic->bytes_sent;
      traffic->messages = 1;
      return true;
    });
    return;
  }
  const auto measure = [&](auto zero) {
    using Items = decltype(zero);
    Worst<Items> worst;
    // No rank can have more: where that is found, the rest need not be looked at.
    Worst<Items> most{static_cast<Items>(cuts.copies), 1, 1, 0};
    int64_t most_sent_messages = cuts.copies;
    int64_t most_received_messages = 1;
    for (const auto& dims : moved) {
      const auto times_most = [&dims](auto* product, const auto& of) {
        int64_t largest = 0;
        for (const MovedDim& dim : dims) largest = std::max(largest, of(dim));
        *product *= largest;
      };
      times_most(&most.sent, [](const MovedDim& dim) { return dim.most_sent(); });
      times_most(&most.received, [](const MovedDim& dim) { return dim.most_after(); });
      times_most(&most.kept, [](const MovedDim& dim) { return dim.longest(); });
      times_most(&most_sent_messages, [](const MovedDim& dim) { return dim.most_sent_messages(); });
      times_most(&most_received_messages,
                 [](const MovedDim& dim) { return dim.most_received_messages(); });
    }
    most.messages = std::max(most_sent_messages, most_received_messages);
    for_each_rank([&] {
      Items sent = cuts.copies;
      Items received = 1;
      Items own = 1;
      int64_t sent_messages = cuts.copies;
      int64_t received_messages = 1;
      for (size_t i = 0; i < chosen.size(); ++i) {
        const MovedDim::View view = chosen[i]->At(places[i]);
        sent *= view.sent;
        sent_messages *= view.sent_messages;
        received *= view.after;
        received_messages *= view.received_messages;
        own *= view.own;
      }
      worst.sent = std::max(worst.sent, sent - own);
      worst.received = std::max(worst.received, received - own);
      worst.kept = std::max(worst.kept, own);
      worst.messages =
          std::max(worst.messages, std::max(sent_messages, received_messages) - (own > 0 ? 1 : 0));
      return worst.sent < most.sent || worst.received < most.received || worst.kept < most.kept ||
             worst.messages < most.messages;
    });
    traffic->bytes_sent = bytes(worst.sent);
    traffic->bytes_received = bytes(worst.received);
    traffic->bytes_kept = bytes(worst.kept);
    traffic->messages = worst.messages;
  };
  fits ? measure(int64_t{0}) : measure(__int128{0});
}

}  // namespace meshift
