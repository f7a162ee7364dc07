// The links of several meshes: one per rank, level of the topology and direction.
//
//   const Links links(moves, topology);
//   LoadList list(links);
//   list.Add(/*level=*/1, links.IndexOf(9), kSent, 4096);
//   list.Take(/*count=*/3);                  // {{1, 2 * links.IndexOf(9) + kSent, 12288}}
//
// Ranks are numbered in ascending order. Links is immutable; a LoadList is for one thread at a
// time. Internal to planner/together.
#ifndef MESHIFT_PLANNER_TOGETHER_LINKS_H_
#define MESHIFT_PLANNER_TOGETHER_LINKS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "meshift/device_mesh.h"
#include "meshift/topology.h"

namespace meshift {

inline constexpr int kSent = 0;
inline constexpr int kReceived = 1;

// Bytes on one link. `place`: 2 * index of the rank + kSent or kReceived. At Links::copy_level():
// local copies of the rank, before (kSent) or after (kReceived) its data cross; `bytes` is their
// time in ns.
struct LinkLoad {
  int32_t level = 0;
  int32_t place = 0;
  int64_t bytes = 0;
};

// Meshes without repetition, in the order in which they are added.
class DistinctMeshes {
 public:
  void Add(const DeviceMesh& mesh);
  const std::vector<DeviceMesh>& list() const { return list_; }

 private:
  std::vector<DeviceMesh> list_;
  absl::flat_hash_set<DeviceMesh> known_;
};

class Links {
 public:
  // The links of all ranks of the meshes. Keeps a reference to `topology`. REQUIRES: the meshes
  // have fewer than 2^30 ranks together.
  Links(absl::Span<const DeviceMesh> meshes, const Topology& topology);

  // The work of making them, in units of WorkBudget (base/work_budget.h).
  static int64_t Work(absl::Span<const DeviceMesh> meshes, const Topology& topology);

  const Topology& topology() const { return topology_; }
  int num_levels() const { return topology_.NumLevels(); }
  int copy_level() const { return num_levels(); }
  absl::Span<const int64_t> ranks() const { return ranks_; }
  int32_t num_ranks() const { return static_cast<int32_t>(ranks_.size()); }
  // REQUIRES: the rank is in one of the meshes.
  int32_t IndexOf(int64_t rank) const;
  // The domains of a level, numbered in the order of their ranks. The last level has one.
  int32_t DomainOf(int level, int32_t index) const { return domains_[level][index]; }
  int32_t NumDomains(int level) const { return domains_[level].back() + 1; }
  // The lowest level at which both ranks share a domain.
  int LevelBetween(int32_t a, int32_t b) const {
    int level = 0;
    while (domains_[level][a] != domains_[level][b]) ++level;
    return level;
  }

 private:
  const Topology& topology_;
  std::vector<int64_t> ranks_;                 // ascending
  std::vector<std::vector<int32_t>> domains_;  // by level, then rank
};

// Adds up bytes by link.
class LoadList {
 public:
  explicit LoadList(const Links& links);  // keeps a reference

  // `index`: of a rank. Saturates.
  void Add(int level, int32_t index, int direction, int64_t bytes);
  // Returns the loads times `count`, which saturate, by level and then place, and forgets them.
  std::vector<LinkLoad> Take(int64_t count);

 private:
  const Links& links_;
  std::vector<int64_t> bytes_;    // by level, then place
  std::vector<int64_t> touched_;  // indices of bytes_
};

}  // namespace meshift

#endif  // MESHIFT_PLANNER_TOGETHER_LINKS_H_
