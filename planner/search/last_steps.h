// What is left of a path, by what its last collective is. Internal to the search.
//
//   LastSteps last_steps(problem, model, space);
//   last_steps.LeastNs(state);      // no path from there to the target is faster
//
// Where bytes count, most of a path's time is that of its last collective: what this one copies,
// pads and packs is what paths differ in. So all states are listed that one may lead out of, with
// the time of the fastest; before it, what they are larger by was brought. To list them takes
// longer than to go on from a state, and pays where a search goes on from many.
//
// The problem, the model and the space must outlive it. Not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_LAST_STEPS_H_
#define MESHIFT_PLANNER_SEARCH_LAST_STEPS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/search_space.h"
#include "planner/search/step_bounds.h"

namespace meshift {

class LastSteps {
 public:
  // Whether there is something to know: nothing is cast, nor masked for the target; and states are
  // not too many to be listed.
  static bool Knows(const Problem& problem, const SearchSpace& space);

  // REQUIRES: Knows(), and not space.towards_target(). Changes what space.bounds() started from.
  LastSteps(const Problem& problem, const CostModel& model, SearchSpace& space);

  // Of all steps from the state on, if nothing is left to add; else 0.
  int64_t LeastNs(const State& state);

 private:
  // Of the fastest collective to a state that local steps finish, and these. None: INT64_MAX.
  int64_t LeastFinishNs(const View& view);
  int64_t Look(const View& view);

  const Problem& problem_;
  const CostModel& model_;
  SearchSpace& space_;
  StepBounds bounds_;
  // Out of a state whose largest box has so many items, no last collective is faster.
  struct Last {
    int64_t items = 0;
    int64_t ns = 0;
  };
  std::vector<Last> last_;  // from few items to many; each is faster than those before it
  absl::flat_hash_map<uint64_t, int64_t> known_;  // LeastNs(), by code of the state
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_LAST_STEPS_H_
