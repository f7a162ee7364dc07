#include "comm/group_cache.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/status_macros.h"
#include "comm/partition.h"

namespace meshift {
namespace {

std::vector<int64_t> SortedRanks(const DeviceMesh& mesh) {
  std::vector<int64_t> ranks = mesh.Ranks();
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GroupCache>> GroupCache::Create(Engine* engine,
                                                               const DeviceMesh& mesh) {
  if (!mesh.PositionOf(engine->rank())) {
    return InvalidArgument("rank {} is not in mesh {}", engine->rank(), mesh.ToString());
  }
  auto cache = std::unique_ptr<GroupCache>(new GroupCache(engine, mesh));
  const int64_t n = mesh.NumRanks();
  const std::vector<int64_t> ranks =
      mesh.IsRowMajor() && n == engine->world_size() ? std::vector<int64_t>() : SortedRanks(mesh);
  if (!ranks.empty() && ranks.back() >= engine->world_size()) {
    return InvalidArgument("rank {} of mesh {} is not in the engine's world of {}", ranks.back(),
                           mesh.ToString(), engine->world_size());
  }
  if (n == engine->world_size()) {
    cache->root_ = engine->world();
  } else if (n > 1) {
    MESHIFT_ASSIGN_OR_RETURN(cache->own_root_, engine->Split(*engine->world(), ranks, 0, {}));
    cache->root_ = cache->own_root_.get();
  }
  return cache;
}

absl::Status GroupCache::CheckMesh(const DeviceMesh& mesh) const {
  if (mesh == mesh_) return absl::OkStatus();
  if (mesh.NumRanks() == mesh_.NumRanks()) {
    if (mesh.IsRowMajor() && mesh_.IsRowMajor()) return absl::OkStatus();
    if (SortedRanks(mesh) == SortedRanks(mesh_)) return absl::OkStatus();
  }
  return InvalidArgument("mesh {} has other ranks than mesh {}, for which groups are made",
                         mesh.ToString(), mesh_.ToString());
}

absl::StatusOr<Communicator*> GroupCache::Get(const DeviceMesh& mesh, const ProgramGroup& group,
                                              const GroupOptions& options) {
  const MutexLock lock(mutex_);
  Asked asked{mesh, group.mesh_dims, options.ToString()};
  if (const auto it = asked_.find(asked); it != asked_.end()) {
    ++stats_.reused;
    return it->second;
  }
  MESHIFT_ASSIGN_OR_RETURN(Communicator * found, Find(mesh, group, options));
  asked_.emplace(std::move(asked), found);
  return found;
}

absl::StatusOr<Communicator*> GroupCache::Find(const DeviceMesh& mesh, const ProgramGroup& group,
                                               const GroupOptions& options) {
  if (group.ranks.size() < 2) {
    return InvalidArgument("a group of {} ranks needs no communicator", group.ranks.size());
  }
  MESHIFT_RETURN_IF_ERROR(CheckMesh(mesh));
  if (static_cast<int64_t>(group.ranks.size()) == mesh_.NumRanks() && options == GroupOptions()) {
    ++stats_.reused;
    root_used_ = true;
    return root_;
  }
  CacheKey key{group.ranks, options.ToString()};
  std::string partition = PartitionKey(mesh, group.mesh_dims) + " " + key.second;
  if (!partitions_.contains(partition)) {
    MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> made,
                             engine_->Split(*root_, group.ranks, group.number, options));
    partitions_.insert(std::move(partition));
    const auto [it, is_new] = groups_.try_emplace(std::move(key), std::move(made));
    ++(is_new ? stats_.created : stats_.dropped);
    return it->second.get();
  }
  const auto it = groups_.find(key);
  if (it == groups_.end()) {
    return Internal("the partition of group {} over {} dims of {} is split, the group is not there",
                    group.number, group.mesh_dims.size(), mesh.ToString());
  }
  ++stats_.reused;
  return it->second.get();
}

void GroupCache::AbortAll() {
  const MutexLock lock(mutex_);
  for (const auto& [key, communicator] : groups_) communicator->Abort();
  if (own_root_ != nullptr || (root_used_ && root_ != nullptr)) root_->Abort();
}

GroupCacheStats GroupCache::stats() const {
  const MutexLock lock(mutex_);
  GroupCacheStats stats = stats_;
  stats.size = static_cast<int64_t>(groups_.size());
  return stats;
}

}  // namespace meshift
