#include "planner/together/links.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/checked_math.h"

namespace meshift {

void DistinctMeshes::Add(const DeviceMesh& mesh) {
  // Neighbours mostly have equal meshes.
  for (size_t i = list_.size(); i-- > 0 && i + 2 >= list_.size();) {
    if (list_[i] == mesh) return;
  }
  if (known_.insert(mesh).second) list_.push_back(mesh);
}

int64_t Links::Work(absl::Span<const DeviceMesh> meshes, const Topology& topology) {
  constexpr int64_t kLinkWork = 8;
  int64_t ranks = 0;
  for (const DeviceMesh& mesh : meshes) ranks = SaturatingAdd(ranks, mesh.NumRanks());
  return SaturatingMul(SaturatingMul(kLinkWork, topology.NumLevels() + 1), ranks);
}

Links::Links(absl::Span<const DeviceMesh> meshes, const Topology& topology) : topology_(topology) {
  for (const DeviceMesh& mesh : meshes) {
    const std::vector<int64_t> ranks = mesh.Ranks();
    ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  }
  std::sort(ranks_.begin(), ranks_.end());
  ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
  domains_.assign(num_levels(), std::vector<int32_t>(ranks_.size(), 0));
  for (int level = 0; level + 1 < num_levels(); ++level) {
    std::vector<int32_t>& domains = domains_[level];
    for (size_t i = 1; i < ranks_.size(); ++i) {
      const bool same =
          topology.DomainOf(level, ranks_[i]) == topology.DomainOf(level, ranks_[i - 1]);
      domains[i] = domains[i - 1] + (same ? 0 : 1);
    }
  }
}

int32_t Links::IndexOf(int64_t rank) const {
  return static_cast<int32_t>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) -
                              ranks_.begin());
}

LoadList::LoadList(const Links& links)
    : links_(links), bytes_(int64_t{2} * links.num_ranks() * (links.copy_level() + 1), 0) {}

void LoadList::Add(int level, int32_t index, int direction, int64_t bytes) {
  if (bytes == 0) return;
  const int64_t at = int64_t{2} * links_.num_ranks() * level + 2 * index + direction;
  if (bytes_[at] == 0) touched_.push_back(at);
  bytes_[at] = SaturatingAdd(bytes_[at], bytes);
}

std::vector<LinkLoad> LoadList::Take(int64_t count) {
  std::sort(touched_.begin(), touched_.end());
  const int64_t places = int64_t{2} * links_.num_ranks();
  std::vector<LinkLoad> loads;
  loads.reserve(touched_.size());
  for (const int64_t at : touched_) {
    loads.push_back({.level = static_cast<int32_t>(at / places),
                     .place = static_cast<int32_t>(at % places),
                     .bytes = SaturatingMul(std::exchange(bytes_[at], 0), count)});
  }
  touched_.clear();
  return loads;
}

}  // namespace meshift
