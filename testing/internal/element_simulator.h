// Simulates one step between two shardings element by element: the elements that each rank can
// have, and the bytes that the plan format counts. Knows no boxes, so it can check a verifier that
// does. A rank that an At leaves out has no elements. Rooted ops are the names of other ops.
//
//   ElementSimulator step(before, after, StepOp::kAllGather, /*mesh_dims=*/{0});
//   const bool can = step.Run();          // whether every rank can have its part of `after`
//   const PlanFields plan = step.MakePlan();
#ifndef MESHIFT_TESTING_INTERNAL_ELEMENT_SIMULATOR_H_
#define MESHIFT_TESTING_INTERNAL_ELEMENT_SIMULATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "meshift/plan.h"
#include "meshift/sharding.h"

namespace meshift {

class ElementSimulator {
 public:
  // Values are f32, and partial mesh dims are sums.
  ElementSimulator(Sharding before, Sharding after, StepOp op, DimSet mesh_dims);

  // Whether each rank can have its part of `after`, with each contribution once; also counts bytes.
  // False too if a rooted op is not the step's name, or if an At of several coordinates changes and
  // no slice keeps some of them.
  bool Run();

  // Whether the step is written as the plan format says: mesh_dims are those that move, and the
  // placements before and after are those of the op. Does not look at elements.
  bool HasForm() const;

  // The plan of this step, with all figures counted here. `exact`: uneven blocks are exact, not
  // padded. REQUIRES: Run() was called.
  PlanFields MakePlan(bool exact = false) const;

 private:
  using Elements = std::vector<int64_t>;             // row-major indices, ascending
  using Contributions = std::vector<int>;            // count of each source rank's part
  using Holding = std::map<int64_t, Contributions>;  // one rank's values

  bool NameFits() const;
  bool ManyOwnersMayChange() const;
  bool Moves(int d) const;
  template <typename MayDiffer>
  bool Differ(int64_t p, int64_t q, const MayDiffer& may_differ) const;
  std::vector<int64_t> GroupOf(int64_t p) const;
  bool Holds(int64_t p, int64_t e) const;
  Contributions OwnOf(int64_t p) const;
  void Send(int64_t from, int64_t to);
  std::optional<Contributions> ValueOf(int64_t p, int64_t e);
  bool IsComplete(const std::vector<Holding>& result) const;
  int64_t SourceOfPermute(int64_t p) const;
  bool AllEven() const;
  bool IsPacked(const std::vector<Elements>& pieces, const std::vector<Elements>& parents) const;
  bool AreExactBlocksPacked(const Sharding& cut, const Sharding& parent) const;
  bool MessagesAreRuns(const std::vector<Elements>& boxes, bool of_senders) const;

  Sharding from_;  // as given
  Sharding to_;
  Sharding before_;  // with At for cuts that leave one owner
  Sharding after_;
  StepOp op_;
  DimSet mesh_dims_;
  int64_t n_;
  int64_t group_size_ = 1;
  std::vector<Coordinate> at_;
  std::vector<Elements> old_;
  std::vector<Elements> new_;
  std::map<int64_t, int64_t> sent_;
  std::map<int64_t, int64_t> received_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_ELEMENT_SIMULATOR_H_
