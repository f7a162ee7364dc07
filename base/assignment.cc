#include "base/assignment.h"

#include <cassert>
#include <cstddef>
#include <limits>
#include <vector>

namespace meshift {

// Rows are added one by one. Dual prices keep the reduced costs of the added rows >= 0, and 0 for
// assigned pairs, so that Dijkstra's algorithm finds the shortest augmenting path for the new row.
std::vector<int64_t> MaxAssignment(int64_t n, absl::Span<const int64_t> weights,
                                   WorkBudget* budget) {
  assert(static_cast<int64_t>(weights.size()) == n * n);
  // Costs below 2^84. The tie-break in favour of row == column is, over all rows, smaller than one
  // unit of weight. Sums over all rows are below 2^107.
  using Cost = __int128;
  const auto cost = [&](int64_t row, int64_t column) {
    return -static_cast<Cost>(weights[row * n + column]) * (n + 1) - (row == column ? 1 : 0);
  };
  constexpr Cost kFar = static_cast<Cost>(std::numeric_limits<int64_t>::max()) << 62;
  constexpr int64_t kNone = -1;
  constexpr int64_t kColumnsPerWork = 3;  // examined per unit of work
  std::vector<Cost> row_price(n, 0);
  std::vector<Cost> column_price(n, 0);
  std::vector<int64_t> row_of(n, kNone);
  std::vector<Cost> distance(n);
  std::vector<int64_t> previous(n);  // the column before on the path; kNone: the new row
  std::vector<bool> done(n);
  for (int64_t added = 0; added < n; ++added) {
    distance.assign(n, kFar);
    done.assign(n, false);
    int64_t row = added;
    int64_t via = kNone;
    Cost so_far = 0;
    while (true) {
      if (budget != nullptr && !budget->Charge(n / kColumnsPerWork + 1)) return {};
      int64_t nearest = kNone;
      for (int64_t column = 0; column < n; ++column) {
        if (done[column]) continue;
        const Cost reach = so_far + cost(row, column) - row_price[row] - column_price[column];
        if (reach < distance[column]) {
          distance[column] = reach;
          previous[column] = via;
        }
        if (nearest == kNone || distance[column] < distance[nearest]) nearest = column;
      }
      so_far = distance[nearest];
      done[nearest] = true;
      via = nearest;
      if (row_of[nearest] == kNone) break;
      row = row_of[nearest];
    }
    // Update the prices first: they need row_of from before the augmentation.
    row_price[added] += so_far;
    for (int64_t column = 0; column < n; ++column) {
      if (!done[column] || column == via) continue;
      row_price[row_of[column]] += so_far - distance[column];
      column_price[column] -= so_far - distance[column];
    }
    for (int64_t column = via; column != kNone; column = previous[column]) {
      row_of[column] = previous[column] == kNone ? added : row_of[previous[column]];
    }
  }
  std::vector<int64_t> column_of(n);
  for (int64_t column = 0; column < n; ++column) column_of[row_of[column]] = column;
  return column_of;
}

}  // namespace meshift
