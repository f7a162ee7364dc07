#include "planner/search/full_joins.h"

#include <algorithm>
#include <bit>

#include "base/checked_math.h"
#include "planner/search/cut_table.h"

namespace meshift {
namespace {

// A bit for each sum of a bit of one and a bit of the other.
uint64_t Sums(uint64_t a, uint64_t b) {
  uint64_t sums = 0;
  for (; a != 0; a &= a - 1) sums |= b << std::countr_zero(a);
  return sums;
}

// Likewise, of how far bits of one are before a bit of the other, or 0.
uint64_t Excess(uint64_t a, uint64_t b) {
  uint64_t excess = 0;
  for (; b != 0; b &= b - 1) {
    const int less = std::countr_zero(b);
    excess |= a >> less | ((a & ((uint64_t{1} << less) - 1)) != 0 ? 1 : 0);
  }
  return excess;
}

}  // namespace

// Of steps by some mesh dims the fastest, by how often they double.
class FullJoins::List {
 public:
  explicit List(const CostModel& model) : model_(model) {}

  // `doublings`: a bit for each number of them.
  void Add(DimMask dims, uint64_t doublings) {
    if (std::has_single_bit(dims)) doublings &= ~uint64_t{1};
    const int64_t start_ns = model_.StartNs(dims);
    for (uint64_t left = doublings; left != 0; left &= left - 1) {
      int64_t& least = start_ns_[std::countr_zero(left)];
      const bool is_new = (made_ >> std::countr_zero(left) & 1) == 0;
      least = is_new ? start_ns : std::min(least, start_ns);
    }
    made_ |= doublings;
  }

  Joins joins() const {
    Joins joins;
    joins.reserve(std::popcount(made_));
    for (uint64_t left = made_; left != 0; left &= left - 1) {
      const int made = std::countr_zero(left);
      int64_t ns = start_ns_[made];
      if (made > 0) {
        const int64_t messages = (int64_t{1} << made) - 1;
        ns += model_.CopyNs(0) + SaturatingMul(messages, model_.MessageNs());
      }
      joins.push_back({made, ns});
    }
    return joins;
  }

 private:
  const CostModel& model_;
  uint64_t made_ = 0;                 // a bit for each number of doublings
  std::array<int64_t, 64> start_ns_;  // the least, by such a number
};

FullJoins::FullJoins(const Problem& problem, const CostModel& model, const StepBounds& bounds,
                     SearchSpace& space)
    : model_(model), bounds_(bounds), space_(space) {
  const auto end = DimMask{1} << problem.num_dims();
  cuts_of_.assign(end, 1);
  List joins(model_);
  for (DimMask dims = 1; dims < end; ++dims) {
    const uint64_t others = cuts_of_[dims & (dims - 1)];
    cuts_of_[dims] = others | others << Log2Ceil(problem.size(std::countr_zero(dims)));
    const uint64_t along_one = Excess(cuts_of_[dims], cuts_of_[dims]);
    uint64_t doublings = along_one;
    // Of all tensor dims one at least has its pieces made shorter.
    for (int i = 2; i < space_.num_lists(); ++i) doublings = Sums(doublings, along_one);
    joins.Add(dims, doublings & (2 * std::bit_floor(cuts_of_[dims]) - 1));
  }
  any_ = joins.joins();
}

void FullJoins::JoinUpTo(int doublings) {
  for (; num_joined_ <= doublings; ++num_joined_) {
    int64_t& least = joined_ns_[num_joined_];
    least = INT64_MAX;
    for (const Join& join : any_) {
      const int left = num_joined_ - join.doublings;
      if (left > 0 && join.doublings == 0) continue;
      least = std::min(least, left > 0 ? SaturatingAdd(join.ns, joined_ns_[left]) : join.ns);
    }
  }
}

FullJoins::Joins FullJoins::To(const Lists& lists) {
  const CutTable& table = space_.table();
  List joins(model_);
  space_.ForEachPrefix(lists, [&](const Lists& kept) {
    DimMask dims = 0;
    for (int i = 0; i < space_.num_lists(); ++i) {
      dims |= table.dims(lists[i]) & ~table.dims(kept[i]);
    }
    if (dims == 0) return;
    uint64_t doublings = 1;
    for (int i = 0; i < space_.num_lists(); ++i) {
      const DimMask changed = table.dims(lists[i]) & ~table.dims(kept[i]);
      const int cuts = Log2Ceil(bounds_.GroupSize(changed));
      doublings = Sums(doublings, Excess(uint64_t{1} << cuts, cuts_of_[dims]));
    }
    joins.Add(dims, doublings);
  });
  return joins.joins();
}

int64_t FullJoins::LeastNs(const Lists& from, const Lists& to, const Joins& last) {
  CutTable& table = space_.table();
  int doublings = 0;
  for (int i = 0; i < space_.num_lists(); ++i) {
    const int k = bounds_.tensor_dim(i);
    doublings += Log2Ceil(CeilDiv(table.Along(to[i], k).longest, table.Along(from[i], k).longest));
  }
  JoinUpTo(doublings);
  int64_t least = INT64_MAX;
  for (const Join& join : last) {
    const int left = std::max(doublings - join.doublings, 0);
    least = std::min(least, SaturatingAdd(join.ns, joined_ns_[left]));
  }
  return least;
}

}  // namespace meshift
