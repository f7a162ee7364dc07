// Collectives made of messages among so many ranks that no list of them is made.
//
// The worst rank is found by branch and bound: boxes of coordinates are halved, first where pieces
// change their lengths, and left aside where no rank in them can have more than some rank that was
// looked at. Bounds are products over tensor dims (MovedBounds). As a rule a few boxes do: almost
// all ranks are alike but for what they keep, and keep nothing.
#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "base/checked_math.h"
#include "planner/cost/cost.h"
#include "planner/cost/cost_cuts.h"
#include "planner/cost/moved_bounds.h"
#include "planner/graph/geometry.h"

namespace meshift {

using cost_internal::MovingCuts;

namespace {

using Coordinates = MovedBounds::Coordinates;

// Ranks by their coordinates on the mesh dims that move, the ends included.
struct Ranks {
  Coordinates first = {};
  Coordinates last = {};
};

void SortUnique(absl::InlinedVector<int64_t, 16>* list) {
  std::sort(list->begin(), list->end());
  list->erase(std::unique(list->begin(), list->end()), list->end());
}

// Work of a box of ranks that is bounded.
constexpr int64_t kBoxWork = 16;

// Ranks that are looked at before any box.
constexpr int64_t kMaxBusy = 200;

// One choice of the lengths that the parent's box can have: along each tensor dim that moves.
using Choice = absl::InlinedVector<const MovedBounds*, 4>;

// The worst of the ranks that were looked at.
template <typename Items>
class WorstRank {
 public:
  WorstRank(const Problem& problem, const MovingCuts& cuts, const MovedBounds::Runs& runs)
      : problem_(problem), cuts_(cuts), runs_(runs) {}

  // Raises what follows to the most of any rank. Some with `busy` coordinates are looked at first.
  void LookAt(const Choice& choice, const MovedBounds::Runs& busy) {
    choice_ = &choice;
    Items longest = 1;
    for (const MovedBounds* dim : choice) longest *= dim->longest();
    kept_ = std::max(kept_, longest);
    Ranks all;
    for (const int d : cuts_.dims) all.last[d] = problem_.size(d) - 1;
    LookAt(all.first);
    LookAt(all.last);
    busy_left_ = kMaxBusy;
    Coordinates at = {};
    LookAtBusy(busy, 0, &at);
    LookAt(all);
  }

  Items sent() const { return sent_; }
  Items received() const { return received_; }
  Items kept() const { return kept_; }
  int64_t messages() const { return messages_; }

 private:
  // No rank of some has more.
  struct Most {
    Items sent;
    Items received;
    int64_t messages;
  };
  Most MostOf(const Ranks& ranks, bool one_run) const {
    if (!problem_.Charge(kBoxWork)) return {0, 0, 0};
    Items sent = cuts_.copies;
    Items own = 1;
    Items sent_and_kept = 1;  // along tensor dims of which a rank keeps what each receiver takes
    Items after = 1;
    Items own_of_all = 1;
    int64_t sent_messages = cuts_.copies;
    int64_t received_messages = 1;
    for (const MovedBounds* dim : *choice_) {
      const MovedBounds::Bounds bounds = dim->Over(ranks.first, ranks.last, one_run);
      sent_messages *= bounds.sent_messages;
      received_messages *= bounds.received_messages;
      after *= bounds.after;
      own_of_all *= bounds.own;
      if (dim->KeepsWhatItSends()) {
        sent_and_kept *= bounds.sent;
      } else {
        sent *= bounds.sent;
        own *= bounds.own;
      }
    }
    // Who sends nothing keeps nothing either; of who sends something that is known.
    return {
        (sent - own) * sent_and_kept, after - own_of_all,
        std::max(sent_messages - (own > 0 ? 1 : 0), received_messages - (own_of_all > 0 ? 1 : 0))};
  }

  void LookAt(const Coordinates& rank) {
    const Most most = MostOf({rank, rank}, /*one_run=*/true);
    sent_ = std::max(sent_, most.sent);
    received_ = std::max(received_, most.received);
    messages_ = std::max(messages_, most.messages);
  }

  void LookAtBusy(const MovedBounds::Runs& busy, size_t i, Coordinates* at) {
    if (i == cuts_.dims.size()) {
      --busy_left_;
      return LookAt(*at);
    }
    for (const int64_t coordinate : busy[cuts_.dims[i]]) {
      (*at)[cuts_.dims[i]] = coordinate;
      if (busy_left_ == 0) return;
      LookAtBusy(busy, i + 1, at);
    }
  }

  void LookAtCorners(const Ranks& ranks, size_t i, Coordinates* at) {
    if (i == cuts_.dims.size()) return LookAt(*at);
    const int d = cuts_.dims[i];
    (*at)[d] = ranks.first[d];
    LookAtCorners(ranks, i + 1, at);
    if (ranks.first[d] == ranks.last[d]) return;
    (*at)[d] = ranks.last[d];
    LookAtCorners(ranks, i + 1, at);
  }

  // REQUIRES: the first and the last were looked at; of one run, all corners.
  void LookAt(const Ranks& ranks, bool was_one_run = false) {
    // Between two runs, or else where pieces come furthest from each other.
    int split = -1;
    int64_t at = 0;
    int64_t most_runs = 0;
    int64_t longest = -1;
    for (const int d : cuts_.dims) {
      const auto& runs = runs_[d];
      const int64_t first = ranks.first[d];
      const int64_t last = ranks.last[d];
      if (first == last) continue;
      const auto begin = std::upper_bound(runs.begin(), runs.end(), first);
      const auto end = std::upper_bound(runs.begin(), runs.end(), last);
      if (end - begin > most_runs) {
        most_runs = end - begin;
        split = d;
        at = begin[most_runs / 2];
      }
      if (most_runs > 0) continue;
      for (const MovedBounds* dim : *choice_) {
        const int64_t reach = dim->Reach(d, first, last);
        if (reach <= longest) continue;
        longest = reach;
        split = d;
        at = first + (last - first + 1) / 2;
      }
    }
    if (split < 0) return;
    const Most most = MostOf(ranks, most_runs == 0);
    if (most.sent <= sent_ && most.received <= received_ && most.messages <= messages_) return;
    if (most_runs == 0 && !was_one_run) {
      Coordinates corner = {};
      LookAtCorners(ranks, 0, &corner);
      if (most.sent <= sent_ && most.received <= received_ && most.messages <= messages_) return;
    }
    Ranks low = ranks;
    Ranks high = ranks;
    low.last[split] = at - 1;
    high.first[split] = at;
    LookAt(low.last);
    LookAt(high.first);
    LookAt(high, most_runs == 0);
    LookAt(low, most_runs == 0);
  }

  const Problem& problem_;
  const MovingCuts& cuts_;
  const MovedBounds::Runs& runs_;
  const Choice* choice_ = nullptr;
  int64_t busy_left_ = 0;  // ranks to look at
  Items sent_ = 0;
  Items received_ = 0;
  Items kept_ = 0;
  int64_t messages_ = 0;
};

// One box out, one box in; nothing where the rank keeps its own. No piece with a coordinate other
// than 0 is longer than the one that has 1 there and 0 elsewhere, so that such a rank has the
// largest that moves.
int64_t LargestThatMoves(const Problem& problem, const CutLists& cuts_before,
                         const CutLists& cuts_after, const MovingCuts& cuts, const Choice& choice) {
  DimMask others = cuts.before ^ cuts.after;  // boxes stay where these have another's coordinate
  for (int k = 0; k < problem.tensor_rank(); ++k) {
    for (int i = cuts.parent.of[k].size; i < cuts_before.of[k].size; ++i) {
      const int d = cuts_before.of[k][i];
      const int e = cuts_after.of[k][i];
      if (d != e) others |= DimMask{1} << d | DimMask{1} << e;
    }
  }
  int64_t largest = 0;
  for (const int d : cuts.dims) {
    if (!HasDim(others, d)) continue;
    Coordinates at = {};
    at[d] = 1;
    int64_t volume = 1;
    for (const MovedBounds* dim : choice) volume *= dim->Before(at);
    largest = std::max(largest, volume);
  }
  return largest;
}

}  // namespace

void CostModel::MeasureManyMessages(StepOp op, const CutLists& cuts_before,
                                    const CutLists& cuts_after, int64_t item_bytes,
                                    Traffic* traffic) const {
  const MovingCuts cuts(problem_, cuts_before, cuts_after);
  // Times the items along tensor dims that nothing moves.
  int64_t still = item_bytes;
  absl::InlinedVector<absl::InlinedVector<MovedBounds, 2>, 4> moved;  // by tensor dim and extent
  MovedBounds::Runs runs;
  bool is_long = false;  // messages have more than one index along some dim before k
  __int128 elements = problem_.mesh().NumRanks();
  for (int k = 0; k < problem_.tensor_rank(); ++k) {
    const int common = cuts.parent.of[k].size;
    const Extents extents = ExtentsAfter(problem_, k, cuts.parent);
    if (cuts_before.of[k].size == common && cuts_after.of[k].size == common) {
      still *= extents.front();
      is_long |= extents.front() > 1;
      continue;
    }
    moved.emplace_back();
    for (const int64_t extent : extents) {
      const MovedBounds& dim = moved.back().emplace_back(
          problem_, cuts_before.of[k], cuts_after.of[k], common, cuts.before, extent);
      dim.AddRuns(&runs);
      traffic->send_packs |= is_long && dim.splits_old();
      traffic->receive_packs |= is_long && dim.splits_new();
    }
    is_long |= moved.back().front().longest() > 1;
    elements *= extents.front();
  }
  for (const int d : cuts.dims) SortUnique(&runs[d]);
  const auto bytes = [still](__int128 items) {
    const __int128 product = items * still;
    return product > INT64_MAX ? INT64_MAX : static_cast<int64_t>(product);
  };
  // Every combination of the parent's lengths, the longest first.
  const auto for_each_choice = [&moved](const auto& visit) {
    Choice choice(moved.size());
    absl::InlinedVector<size_t, 4> index(moved.size(), 0);
    while (true) {
      for (size_t i = 0; i < moved.size(); ++i) choice[i] = &moved[i][index[i]];
      visit(choice);
      size_t i = moved.size();
      while (i > 0 && ++index[i - 1] == moved[i - 1].size()) index[--i] = 0;
      if (i == 0) return;
    }
  };
  if (op == StepOp::kPermute) {
    traffic->send_packs = false;
    traffic->receive_packs = false;
    for_each_choice([&](const Choice& choice) {
      const int64_t sent = bytes(LargestThatMoves(problem_, cuts_before, cuts_after, cuts, choice));
      traffic->bytes_sent = std::max(traffic->bytes_sent, sent);
    });
    traffic->bytes_received = traffic->bytes_sent;
    traffic->messages = traffic->bytes_sent > 0 ? 1 : 0;
    return;
  }
  const auto measure = [&](auto zero) {
    WorstRank<decltype(zero)> worst(problem_, cuts, runs);
    for_each_choice([&](const Choice& choice) {
      MovedBounds::Runs busy;
      for (const MovedBounds* dim : choice) dim->AddBusy(&busy);
      for (const int d : cuts.dims) {
        busy[d].push_back(problem_.size(d) - 1);
        SortUnique(&busy[d]);
      }
      worst.LookAt(choice, busy);
    });
    traffic->bytes_sent = bytes(worst.sent());
    traffic->bytes_received = bytes(worst.received());
    traffic->bytes_kept = bytes(worst.kept());
    traffic->messages = worst.messages();
  };
  // What all receivers have together fits into 64 bits unless the tensor is huge.
  elements <= INT64_MAX ? measure(int64_t{0}) : measure(__int128{0});
}

}  // namespace meshift
