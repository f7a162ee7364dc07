// What the steps out of one state move at least, from a factor per tensor dim.
//
//   StepBounds bounds(problem, model, table);
//   bounds.Start(view.lists);                                  // of steps out of this state
//   const StepBounds::Product& product = bounds.Compare(next_lists);
//   bounds.MissingOfTarget(product.wanted, INT64_MAX);         // items that some rank then lacks
//   bounds.LeastMoveNs(StepOp::kAllToAll, stage, product);     // no such step is faster
//
// A box is a product over tensor dims, and so is what it has in common with another, and with the
// target's. Factors belong to a list of cuts before and one after, and are kept: lists that are put
// together one cut at a time (layouts.h) cost a few multiplications each. Everything is of the
// samples of the table, whose worst is no worse than the worst rank.
//
// The problem, the model and the table must outlive the bounds. Not safe for concurrent use.
#ifndef MESHIFT_PLANNER_SEARCH_STEP_BOUNDS_H_
#define MESHIFT_PLANNER_SEARCH_STEP_BOUNDS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/checked_math.h"
#include "meshift/plan.h"
#include "planner/cost/cost.h"
#include "planner/graph/state.h"
#include "planner/search/cut_table.h"

namespace meshift {

// A State's lists of cuts, by candidate dim of the problem (which are all that are ever cut).
using Lists = std::array<CutTable::List, kMaxTensorRank>;

class StepBounds {
 public:
  using List = CutTable::List;
  using Samples = CutTable::Samples;

  // What is known for sure of a step, a bit each.
  enum Fact : uint32_t {
    kLong = 1,           // messages are longer than 1 along a tensor dim
    kClosedBefore = 2,   // pieces before the step are longer than 1 along one
    kClosedAfter = 4,    // pieces after it
    kSendPacks = 8,      // messages are not runs of what is sent
    kReceivePacks = 16,  // of what is received into
    kGatherPacks = 32,   // pieces of a gather do not lie one behind the other
    kScatterPacks = 64,
    kGatherPads = 128,  // and are not all alike
    kScatterPads = 256,
  };
  // A list of cuts after the step, beside the one before.
  struct Factor {
    const CutTable::Pieces* after;
    Samples kept;     // of the piece after, what is in the piece before
    int64_t message;  // no part that pieces have in common is longer
    uint64_t code;    // of the list after in a State
    DimMask from;     // cuts before, and after, behind the common beginning
    DimMask to;
    DimMask across;                  // CutTable::Across, of the list after
    uint32_t facts;                  // Facts that the factor adds; and those that it adds where
    uint32_t facts_if_long;          // messages are longer than 1 along a tensor dim before, or
    uint32_t facts_if_closed;        // where pieces before the step are, or
    uint32_t facts_if_closed_after;  // after it
  };
  // Of several tensor dims.
  struct Product {
    Samples wanted;
    Samples after;
    Samples kept;
    int64_t longest;
    int64_t message;
    uint64_t code;
    DimMask from;
    DimMask to;
    DimMask across;
    uint32_t facts;
  };

  StepBounds(const Problem& problem, const CostModel& model, CutTable& table);

  int num_lists() const { return num_lists_; }
  int tensor_dim(int list) const { return tensor_dims_[list]; }
  int64_t GroupSize(DimMask dims) const { return group_sizes_[dims]; }

  // What follows is of steps out of the state with these lists.
  void Start(const Lists& before);
  const Factor& Of(int i, List after) {
    const size_t at = static_cast<size_t>(after) * num_lists_ + i;
    if (at >= num_factors_) Grow(at);
    Factor& factor = factors_[at];
    if (factors_of_[at] != before_[i]) {
      factors_of_[at] = before_[i];
      Fill(i, after, &factor);
    }
    return factor;
  }
  // Of no tensor dim yet but those that are never cut.
  const Product& empty() const { return products_[0]; }
  void Multiply(const Product& product, int i, const Factor& factor, Product* result) const {
    for (int s = 0; s < num_samples_; ++s) {
      result->wanted[s] = product.wanted[s] * factor.after->wanted[s];
      result->after[s] = product.after[s] * factor.after->length[s];
      result->kept[s] = product.kept[s] * factor.kept[s];
    }
    result->longest = product.longest * factor.after->longest;
    result->message = product.message * factor.message;
    result->code = product.code | factor.code;
    result->from = product.from | factor.from;
    result->to = product.to | factor.to;
    result->across = product.across | factor.across;
    const uint32_t facts = product.facts | uncut_facts_[i];
    const auto where = [facts](uint32_t fact) { return (facts & fact) != 0 ? ~uint32_t{0} : 0; };
    result->facts = facts | factor.facts | (factor.facts_if_long & where(kLong)) |
                    (factor.facts_if_closed & where(kClosedBefore)) |
                    (factor.facts_if_closed_after & where(kClosedAfter));
  }
  // Of all tensor dims; stays as it is until the next call, which is cheaper for lists that begin
  // like these.
  const Product& Compare(const Lists& after) {
    int i = 0;
    while (i < num_compared_ && compared_[i] == after[i]) ++i;
    for (; i < num_lists_; ++i) {
      compared_[i] = after[i];
      Multiply(products_[i], i, Of(i, after[i]), &products_[i + 1]);
    }
    num_compared_ = num_lists_;
    return products_[num_lists_];
  }

  // The samples' items in the target, and those that some rank lacks of them.
  const Samples& target() const { return target_; }
  int64_t MissingOfTarget(const Samples& wanted) const {
    int64_t missing = 0;
    for (int s = 0; s < num_samples_; ++s) missing = std::max(missing, target_[s] - wanted[s]);
    return missing;
  }
  // Items that some rank gets by the step.
  int64_t Moved(const Product& product) const {
    int64_t moved = 0;
    for (int s = 0; s < num_samples_; ++s) {
      moved = std::max(moved, product.after[s] - product.kept[s]);
    }
    return moved;
  }
  // Those that some rank gets, and some lacks of the target behind the step.
  int64_t MovedAndMissing(const Product& product) const {
    return SaturatingAdd(Moved(product), MissingOfTarget(product.wanted));
  }
  // Of the samples' items in the target, the factor along the tensor dims from list i on.
  const Samples& TargetFrom(int i) const { return target_from_[i]; }
  // Likewise, of the first sample's items in the state of Start(), and of the whole tensor.
  int64_t BeforeFrom(int i) const { return before_from_[i]; }
  int64_t ExtentFrom(int i) const { return extent_from_[i]; }
  // Of a step out of the state of Start() over these mesh dims, at `stage`: no such step is faster.
  int64_t LeastNs(StepOp op, int stage, DimMask dims, const Product& product) const;

 private:
  // Of messages, gathers and permutations; and of a reduce_scatter, which adds cuts.
  int64_t LeastMoveNs(StepOp op, int stage, const Product& product) const;
  int64_t LeastScatterNs(int stage, const Product& product) const;
  void Fill(int i, List after, Factor* factor);
  void Grow(size_t at);

  const Problem& problem_;
  const CostModel& model_;
  CutTable& table_;
  const int num_samples_;
  int num_lists_ = 0;
  std::array<int, kMaxTensorRank> tensor_dims_ = {};       // by list
  std::array<uint32_t, kMaxTensorRank> uncut_facts_ = {};  // by list, of dims before, never cut
  std::array<Samples, kMaxTensorRank + 1> target_from_;
  std::array<int64_t, kMaxTensorRank + 1> before_from_;
  std::array<int64_t, kMaxTensorRank + 1> extent_from_;
  Samples target_;
  bool ragged_ = false;
  std::array<int64_t, 1 << kMaxStateDims> group_sizes_;
  Lists before_ = {};
  // Of the lists that Compare() was called with, the products of the tensor dims before each.
  Lists compared_;
  int num_compared_ = 0;
  std::array<Product, kMaxTensorRank + 1> products_;
  std::array<const CutTable::Pieces*, kMaxTensorRank> before_pieces_;  // by list
  int64_t block_before_ = 0;                                           // items of the largest box
  Samples before_items_;
  bool started_ = false;
  // By list, then number of the tensor dim: factors, and the list before that each is of (-1:
  // none).
  static constexpr size_t kFirst = 48;
  std::array<Factor, kFirst> first_factors_;
  std::array<List, kFirst> first_of_;
  std::unique_ptr<Factor[]> more_factors_;
  std::unique_ptr<List[]> more_of_;
  Factor* factors_ = first_factors_.data();
  List* factors_of_ = first_of_.data();
  size_t num_factors_ = kFirst;
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_STEP_BOUNDS_H_
