// Solves the assignment problem exactly: each row gets its own column, with the largest total
// weight.
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

// Returns the column of each row. weights[row * n + column] may have any values; sums cannot
// overflow. If several assignments are best, it returns one with the most rows r in column r.
// Deterministic. O(n^3) time (the Hungarian method: Kuhn 1955, Munkres 1957), O(n) memory beside
// `weights`. Charges its work to `budget`, unless null; returns an empty vector once the budget is
// exhausted.
// REQUIRES: 0 <= n <= 2^20, weights.size() == n * n.
std::vector<int64_t> MaxAssignment(int64_t n, absl::Span<const int64_t> weights,
                                   WorkBudget* budget = nullptr);

}  // namespace meshift

#endif  // MESHIFT_BASE_ASSIGNMENT_H_
