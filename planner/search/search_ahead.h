// What is left of a path, looked at two collectives ahead. Internal to the search.
//
//   SearchAhead ahead(problem, model, space, bound_ns);
//   ahead.Of(state, left_ns).least_ns;      // no path to the target is faster
//
// Where groups are large, a message to every member takes longer than a collective to start, and
// what paths differ in is how they bring pieces together, not how many bytes they bring. So the
// states before a gather to the target are listed, each with the time of that gather; and what is
// left of a path is looked at by what its last collective is.
//
// The problem, the model and the space must outlive it. Not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_SEARCH_AHEAD_H_
#define MESHIFT_PLANNER_SEARCH_SEARCH_AHEAD_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/plan/plan.h"
#include "planner/search/full_joins.h"
#include "planner/search/search_space.h"
#include "planner/search/step_bounds.h"

namespace meshift {

class SearchAhead {
 public:
  // Whether messages count for more than collectives, and there are few states to list.
  static bool Pays(const Problem& problem, const CostModel& model, const SearchSpace& space);

  // REQUIRES: Pays(). Changes what space.bounds() started from. Of paths that take longer than
  // `bound_ns` nothing will be asked.
  SearchAhead(const Problem& problem, const CostModel& model, SearchSpace& space, int64_t bound_ns);

  // A step, the gather behind it, if there is a state between, and what finishes.
  struct Way {
    StepOp op = StepOp::kSlice;
    const View* middle = nullptr;  // null: none
    const View* last = nullptr;    // null: no such way is known
    int64_t ns = INT64_MAX;        // no such way is faster
  };
  struct Rest {
    int64_t least_ns = 0;
    Way way = {};         // the most promising
    int64_t left_ns = 0;  // as asked for: more need not be known closer
  };
  // A state that is partial as the target is. Not all may be on the way.
  struct Spot {
    State state;
    Lists lists = {};
    DimMask cut = 0;
    int64_t items = 0;      // of the largest box
    bool is_near = false;   // whether exchanges from anywhere lead to it
    int64_t rest_ns = 0;    // of a collective that brings what it lacks of the target
    int64_t least_ns = -1;  // what Of() says; -1: nobody asked yet
  };
  // Whether they are listed: there are not too many. Those that no path of `bound_ns` goes through
  // need not be, once it was asked.
  bool ListsSpots(int64_t bound_ns) {
    if (!found_spots_) FindSpots(bound_ns);
    return lists_spots_;
  }
  absl::Span<Spot> spots() { return absl::MakeSpan(spots_); }
  // Whether all pieces are alike, and nest, so that it takes no time in proportion to ranks to
  // measure a step.
  bool all_even() const { return all_even_; }
  // What is left of a path. More than `left_ns` need not be known closer. Stays where it is until
  // the next call. Nothing is known where something is left to add.
  const Rest& Of(const State& state, int64_t left_ns) {
    const auto [it, is_new] = rests_.try_emplace(state.code());
    Rest& rest = it->second;
    const bool is_closer = left_ns > rest.left_ns && rest.least_ns > rest.left_ns;
    if (is_new || is_closer) rest = Look(space_.Look(state), left_ns);
    return rest;
  }
  // Whether a path may go on from there, and take no longer, by anything but one collective that
  // finishes.
  bool MayGoOn(const View& view, int64_t left_ns);

 private:
  // A state from which gathers and local steps lead to the target.
  struct Goal {
    View view;
    int number = 0;               // among those that take as long
    const View* last = nullptr;   // from which local steps do; not behind a gather: the view itself
    bool is_finished = false;     // it is itself
    int64_t ns = 0;               // of these gathers and local steps, at least
    int64_t gather_ns = 0;        // likewise, where there is one gather
    int64_t items = 0;            // of the largest box
    bool is_even = false;         // all boxes are alike, and not empty
    int64_t together_ns = -1;     // LeastTogetherNs(); -1: not known yet
    FullJoins::Joins joins = {};  // that lead here from where every mesh dim cuts; likewise, empty
  };
  struct Step {
    StepOp op = StepOp::kSlice;
    int64_t ns = INT64_MAX;
  };
  // The fastest step from the state that bounds_ started from, at least; none: INT64_MAX.
  Step LeastStep(const View& from, const View& to, const StepBounds::Product& product) const;
  bool Knows(const View& view) const;
  Rest Look(const View& view, int64_t left_ns);
  // No path to the goal takes less from where the largest box is so large.
  int64_t GrowthNs(int64_t items, const Goal& goal) const {
    return TransferNs(std::max<int64_t>(goal.items - items, 0));
  }
  void FindGoals(int64_t bound_ns);
  int64_t LeastNsTo(const View& view, int64_t items, const StepBounds::Product& product,
                    int64_t limit_ns, Goal* goal);
  // Whether every mesh dim cuts, and pieces are alike.
  bool IsFull(const View& view) const { return all_even_ && view.replicated == 0; }
  int64_t LeastTogetherNs(int64_t bytes) const;
  bool IsEven(const View& view);
  void FindSpots(int64_t bound_ns);
  struct Part;
  void AddSpots(int list, DimMask pool, const Part& part, const Lists& source, int64_t bound_ns);
  bool BeginsWith(const Lists& lists, const Lists& beginning) const;
  // No copy of bytes, nor their way to a worst rank, takes less.
  int64_t LeastBytesNs(int64_t bytes) const {
    const int64_t copy_ns = model_.CopyNs(bytes) - model_.CopyNs(0);
    return std::max<int64_t>(std::min(copy_ns, model_.TransferNs(bytes)) - 1, 0);
  }
  // Of a collective that some rank gets so much by, if anything.
  int64_t CollectiveNs(int64_t items) const {
    return items == 0 ? 0 : SaturatingAdd(space_.least_collective_ns(), TransferNs(items));
  }
  int64_t TransferNs(int64_t items) const {
    return model_.TransferNs(SaturatingMul(items, item_bytes_));
  }

  const Problem& problem_;
  const CostModel& model_;
  SearchSpace& space_;
  StepBounds bounds_;
  int64_t item_bytes_ = 0;
  int64_t least_step_ns_ = 0;
  int64_t least_size_ = 0;   // of a mesh dim
  bool all_even_ = false;    // whatever cuts a tensor dim; and mesh dims are powers of two
  int64_t whole_bytes_ = 0;  // of the tensor; 0: too many, or boxes are not alike
  std::vector<Goal> goals_;
  std::vector<int> order_;  // of goals_, by time
  bool found_spots_ = false;
  bool lists_spots_ = false;
  std::vector<Spot> spots_;
  std::optional<FullJoins> joins_;             // once they are asked for
  absl::flat_hash_map<uint64_t, Rest> rests_;  // by code of the state
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_SEARCH_AHEAD_H_
