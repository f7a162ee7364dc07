// Computes lower bounds of the items that steps out of one state move, and of their times in ns.
//
//   StepBounds bounds(problem, model, table);
//   bounds.Start(view.lists);                         // bounds steps out of this state
//   const StepBounds::Product& product = bounds.Compare(next_lists);
//   bounds.MissingOfTarget(product.wanted);           // items that some rank still needs
//   bounds.LeastNs(op, stage, product.from | product.to, product);    // ns
//
// A box is a product over tensor dims. So are its intersections with another box and with the
// target's. Each factor of the product compares one tensor dim's cuts before with its cuts after,
// and is cached. So a list that layouts.h extends by one cut costs a few multiplications. Counts by
// rank are those of the table's sample ranks, which never exceed those of the worst rank.
//
// Counts are in items (elements, or pairs of f4e2m1). Start() must come before all calls about
// steps. The arguments must outlive the bounds. Internal to the planner; not thread-safe.
#ifndef MESHIFT_PLANNER_SEARCH_STEP_BOUNDS_H_
#define MESHIFT_PLANNER_SEARCH_STEP_BOUNDS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
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

  // Facts that hold for a step, one bit each. A fact that is not set may hold too. Pieces are
  // closed if they are longer than 1 along a tensor dim: parts that are cut from them along an
  // inner tensor dim are then not contiguous.
  enum Fact : uint32_t {
    kLong = 1,           // messages are longer than 1 along a tensor dim
    kClosedBefore = 2,   // pieces before the step are closed
    kClosedAfter = 4,    // pieces after the step are closed
    kSendPacks = 8,      // messages are not contiguous in the sent buffer
    kReceivePacks = 16,  // messages are not contiguous in the received buffer
    kGatherPacks = 32,   // pieces of a gather are not contiguous
    kScatterPacks = 64,  // pieces of a scatter are not contiguous
    kGatherPads = 128,   // pieces of a gather have unequal lengths
    kScatterPads = 256,  // pieces of a scatter have unequal lengths
  };
  // One tensor dim: a list of cuts after the step, compared with the list before.
  struct Factor {
    List before = -1;  // -1: not computed
    const CutTable::Pieces* after;
    Samples kept;     // items in the pieces before and after
    int64_t message;  // upper bound of the length that a piece before and one after share
    uint64_t code;    // the part of a State's code for the list after
    DimMask from;     // mesh dims of the cuts after the common prefix: of the list before
    DimMask to;       // of the list after
    DimMask across;   // CutTable::Across of the list after
    uint32_t facts;   // Facts that the factor adds
    // Facts that it adds if an outer tensor dim gives kLong, kClosedBefore, kClosedAfter.
    uint32_t facts_if_long;
    uint32_t facts_if_closed;
    uint32_t facts_if_closed_after;
  };
  // The product over several tensor dims.
  struct Product {
    Samples wanted;   // items of the sample's target box that it holds after the step
    Samples after;    // items that it holds after the step
    Samples kept;     // items among them that it held before
    int64_t longest;  // items of the largest box after the step
    int64_t message;  // upper bound of the items of a message
    uint64_t code;
    DimMask from;
    DimMask to;
    DimMask across;
    uint32_t facts;
  };

  StepBounds(const Problem& problem, const CostModel& model, CutTable& table);

  // Lists are numbered by candidate dim of the problem.
  int num_lists() const { return num_lists_; }
  int tensor_dim(int list) const { return tensor_dims_[list]; }
  int64_t GroupSize(DimMask dims) const { return group_sizes_[dims]; }

  // From now on the bounds are those of steps out of the state with these lists.
  void Start(const Lists& before);
  // The factor of list i. Valid until the next call.
  const Factor& Of(int i, List after) {
    const size_t at = static_cast<size_t>(after) * num_lists_ + i;
    if (at >= factors_.size()) factors_.resize(2 * (at + 1));
    Factor& factor = factors_[at];
    if (factor.before != before_[i]) {
      factor.before = before_[i];
      Fill(i, after, &factor);
    }
    return factor;
  }
  // The product over the tensor dims that are never cut.
  const Product& empty() const { return products_[0]; }
  // `result`: `product` times the factor of list i.
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
  // The product over all tensor dims. Valid until the next call, which is cheaper if its first
  // lists are the same.
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

  // The samples' items in the target; and the most that some sample does not hold of them.
  const Samples& target() const { return target_; }
  int64_t MissingOfTarget(const Samples& wanted) const {
    int64_t missing = 0;
    for (int s = 0; s < num_samples_; ++s) missing = std::max(missing, target_[s] - wanted[s]);
    return missing;
  }
  // A lower bound of the items that the worst rank receives in a step that reduces nothing.
  int64_t Moved(const Product& product) const {
    int64_t moved = 0;
    for (int s = 0; s < num_samples_; ++s) {
      moved = std::max(moved, product.after[s] - product.kept[s]);
    }
    return moved;
  }
  // Moved() plus the items of the target that some rank still misses after the step.
  int64_t MovedAndMissing(const Product& product) const {
    return SaturatingAdd(Moved(product), MissingOfTarget(product.wanted));
  }
  // Items along the tensor dims from list i on: in the samples' target boxes; in the first sample's
  // box of the state of Start(); in the whole tensor.
  const Samples& TargetFrom(int i) const { return target_from_[i]; }
  int64_t BeforeFrom(int i) const { return before_from_[i]; }
  int64_t ExtentFrom(int i) const { return extent_from_[i]; }
  // A lower bound in ns of the time of a step out of the state of Start() over `dims`, at `stage`.
  // REQUIRES: `product` is that of the step.
  int64_t LeastNs(StepOp op, int stage, DimMask dims, const Product& product) const;

 private:
  // LeastNs() of all_gather, permute, all_to_all and exchange; and of reduce_scatter.
  int64_t LeastMoveNs(StepOp op, int stage, const Product& product) const;
  int64_t LeastScatterNs(int stage, const Product& product) const;
  void Fill(int i, List after, Factor* factor);

  const Problem& problem_;
  const CostModel& model_;
  CutTable& table_;
  const int num_samples_;
  int num_lists_ = 0;
  std::array<int, kMaxTensorRank> tensor_dims_ = {};       // by list
  std::array<uint32_t, kMaxTensorRank> uncut_facts_ = {};  // by list: of the uncut dims before
  std::array<Samples, kMaxTensorRank + 1> target_from_;
  std::array<int64_t, kMaxTensorRank + 1> before_from_;
  std::array<int64_t, kMaxTensorRank + 1> extent_from_;
  Samples target_;
  bool ragged_ = false;
  std::array<int64_t, 1 << kMaxStateDims> group_sizes_;
  Lists before_ = {};
  // The lists of the last Compare(), and by list the product over the tensor dims before it.
  Lists compared_;
  int num_compared_ = 0;
  std::array<Product, kMaxTensorRank + 1> products_;
  std::array<const CutTable::Pieces*, kMaxTensorRank> before_pieces_;  // by list
  int64_t block_before_ = 0;                                           // items of the largest box
  Samples before_items_;
  bool started_ = false;
  absl::InlinedVector<Factor, 48> factors_;  // by list after, then index of the tensor dim
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_SEARCH_STEP_BOUNDS_H_
