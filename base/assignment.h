// The assignment problem, exactly: each row gets a column of its own, with the largest total.
//
//   MaxAssignment(2, {5, 9,      // rows
//                     1, 8});    // {0, 1}: 5 + 8 is more than 9 + 1
#ifndef MESHIFT_BASE_ASSIGNMENT_H_
#define MESHIFT_BASE_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/work_budget.h"

namespace meshift {

// The column of each row. weights[row * n + column]: any values, their sums too. Of several best
// ones, one in which the most rows have the column of their own number. Deterministic. O(n^3) time
// (shortest augmenting paths: Kuhn 1955, Munkres 1957), O(n) memory.
// Charges its work to `budget`, if that is given; empty where that is exhausted.
// REQUIRES: 0 <= n <= 2^20, weights.size() == n * n.
std::vector<int64_t> MaxAssignment(int64_t n, absl::Span<const int64_t> weights,
                                   WorkBudget* budget = nullptr);

}  // namespace meshift

#endif  // MESHIFT_BASE_ASSIGNMENT_H_
