// RelabelRanks of meshift/union_mesh.h: an assignment problem whose weights are the bytes that each
// rank already holds of each part (base/assignment.h). The header has the limits.
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/assignment.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/union_mesh.h"

namespace meshift {
namespace {

// Adds to held[position * n + i] the bytes of the target part at `position` that are held by the
// rank now at position i of the target.
absl::Status AddHeld(const RelabelledTensor& tensor, std::vector<int64_t>* held) {
  const DeviceMesh& mesh = tensor.to.mesh();
  const int64_t n = mesh.NumRanks();
  std::vector<std::optional<Box>> holds;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t rank = mesh.RankAt(i);
    const bool has = tensor.from.mesh().PositionOf(rank).has_value();
    holds.push_back(has ? std::optional(tensor.from.LocalBox(rank)) : std::nullopt);
  }
  for (int64_t position = 0; position < n; ++position) {
    const Box part = tensor.to.BoxAt(mesh.CoordinateAt(position));
    for (int64_t i = 0; i < n; ++i) {
      if (!holds[i]) continue;
      const int64_t bytes = Bytes(tensor.from.dtype(), Intersect(part, *holds[i]).NumElements());
      int64_t& sum = (*held)[position * n + i];
      int64_t all = 0;
      if (!CheckedMul(tensor.count, bytes, &all) || !CheckedAdd(sum, all, &sum)) {
        return InvalidArgument("rank {} holds more than 2^63 - 1 bytes", mesh.RankAt(i));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceMesh> RelabelRanks(absl::Span<const RelabelledTensor> tensors,
                                        WorkBudget* budget) {
  if (tensors.empty()) return InvalidArgument("no tensors are given");
  const DeviceMesh& mesh = tensors.front().to.mesh();
  const int64_t n = mesh.NumRanks();
  if (n > kMaxRelabelledRanks) {
    return InvalidArgument("the target mesh has {} ranks; at most {} can be reordered", n,
                           kMaxRelabelledRanks);
  }
  constexpr int64_t kPairWork = 2;  // work of comparing two parts
  constexpr const char* kWhat = "putting ranks in order";
  if (budget != nullptr && !budget->Charge(kPairWork * n * n, std::ssize(tensors))) {
    return budget->Refusal(kWhat);
  }
  std::vector<int64_t> held(n * n, 0);
  for (const RelabelledTensor& tensor : tensors) {
    if (tensor.from.shape() != tensor.to.shape()) {
      return InvalidArgument("source {} and target {} differ in shape",
                             tensor.from.tensor().ToString(), tensor.to.tensor().ToString());
    }
    if (!(tensor.to.mesh() == mesh)) {
      return InvalidArgument("targets are on different meshes, {} and {}", mesh.ToString(),
                             tensor.to.mesh().ToString());
    }
    MESHIFT_RETURN_IF_ERROR(AddHeld(tensor, &held));
  }
  std::vector<int64_t> ranks;
  for (const int64_t i : MaxAssignment(n, held, budget)) ranks.push_back(mesh.RankAt(i));
  if (ranks.empty()) return budget->Refusal(kWhat);
  return DeviceMesh::Create({mesh.dims().begin(), mesh.dims().end()}, std::move(ranks));
}

}  // namespace meshift
