#include "comm/executor/group_cache.h"

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meshift/status.h"
#include "planner/plan/partition.h"

namespace meshift {
namespace {

RankList AllRanks(const DeviceMesh& mesh) {
  std::vector<int> dims(mesh.NumDims());
  std::iota(dims.begin(), dims.end(), 0);
  return mesh.GroupListOf(dims, mesh.RankAt(0));
}

// "dp,tp"
std::string NameOf(const DeviceMesh& mesh, const DimSet& dims) {
  std::string name;
  for (const int dim : dims) {
    if (!name.empty()) name += ',';
    name += mesh.dims()[dim].name;
  }
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GroupCache>> GroupCache::Create(Engine* engine,
                                                               const DeviceMesh& mesh) {
  if (!mesh.PositionOf(engine->rank())) {
    return InvalidArgument("rank {} is not in mesh {}", engine->rank(), mesh.ToString());
  }
  auto cache = std::unique_ptr<GroupCache>(new GroupCache(engine, mesh));
  const int64_t n = mesh.NumRanks();
  if (mesh.MaxRank() >= engine->world_size()) {
    return InvalidArgument("rank {} of mesh {} is not in the engine's world of {} ranks",
                           mesh.MaxRank(), mesh.ToString(), engine->world_size());
  }
  if (n == engine->world_size() && !engine->SplitsFreely()) {
    cache->root_ = engine->world();
  } else if (n > 1) {
    MESHIFT_ASSIGN_OR_RETURN(
        cache->own_root_, engine->SplitList(*engine->world(), AllRanks(mesh), 0, {.name = "mesh"}));
    cache->root_ = cache->own_root_.get();
  }
  return cache;
}

absl::Status GroupCache::SplitWithoutGroup(Engine* engine, const DeviceMesh& mesh) {
  return mesh.NumRanks() > 1 ? engine->SplitNoColor(*engine->world()) : absl::OkStatus();
}

absl::Status GroupCache::CheckMesh(const DeviceMesh& root, const DeviceMesh& mesh) {
  if (mesh == root) return absl::OkStatus();
  if (mesh.IsRowMajor() && root.IsRowMajor() && mesh.NumRanks() <= root.NumRanks()) {
    return absl::OkStatus();
  }
  for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
    if (root.PositionOf(mesh.RankAt(p))) continue;
    return InvalidArgument("rank {} of mesh {} is not in the redistributor's mesh {}",
                           mesh.RankAt(p), mesh.ToString(), root.ToString());
  }
  return absl::OkStatus();
}

absl::StatusOr<Communicator*> GroupCache::Get(const DeviceMesh& mesh, const ProgramGroup& group,
                                              const GroupOptions& options) {
  const MutexLock making(making_);
  Request request{mesh, group.mesh_dims, options.ToString()};
  {
    const MutexLock lock(mutex_);
    if (const auto it = by_request_.find(request); it != by_request_.end()) {
      if (it->second != nullptr) ++stats_.reused;
      return it->second;
    }
  }
  MESHIFT_ASSIGN_OR_RETURN(Communicator * found, Find(mesh, group, options));
  const MutexLock lock(mutex_);
  by_request_.emplace(std::move(request), found);
  return found;
}

absl::StatusOr<Communicator*> GroupCache::Find(const DeviceMesh& mesh, const ProgramGroup& group,
                                               const GroupOptions& options) {
  const bool is_out = group.ranks.empty();
  if (group.ranks.size() == 1) {
    return InvalidArgument("rank {} is alone in its group, which needs no communicator",
                           group.ranks[0]);
  }
  MESHIFT_RETURN_IF_ERROR(CheckMesh(mesh_, mesh));
  CacheKey key{group.ranks, options.ToString()};
  std::string partition = PartitionKey(mesh, group.mesh_dims) + " " + key.second;
  Communicator* known = nullptr;
  {
    const MutexLock lock(mutex_);
    if (static_cast<int64_t>(group.ranks.size()) == mesh_.NumRanks() && options == GroupOptions()) {
      ++stats_.reused;
      root_used_ = true;
      if (aborted_) root_->Abort();
      return root_;
    }
    if (const auto it = groups_.find(key); it != groups_.end()) known = it->second.get();
    if (partitions_.contains(partition)) {
      if (is_out) return nullptr;
      ++stats_.reused;
      if (known != nullptr) return known;
      return Internal(
          "group {} over {} dims of {} is missing, although its partition was split before",
          group.number, group.mesh_dims.size(), mesh.ToString());
    }
  }
  if (known != nullptr || is_out) {
    // All members of a cached group have it cached, so all of them take this branch.
    MESHIFT_RETURN_IF_ERROR(engine_->SplitNoColor(*root_));
    const MutexLock lock(mutex_);
    partitions_.insert(std::move(partition));
    if (!is_out) ++stats_.reused;
    return known;
  }
  GroupOptions named = options;
  named.name = NameOf(mesh, group.mesh_dims);
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> made,
                           engine_->SplitList(*root_, group.ranks, group.number, named));
  const MutexLock lock(mutex_);
  if (aborted_) made->Abort();
  partitions_.insert(std::move(partition));
  ++stats_.created;
  return groups_.emplace(std::move(key), std::move(made)).first->second.get();
}

void GroupCache::AbortAll() {
  const MutexLock lock(mutex_);
  aborted_ = true;
  for (const auto& [key, communicator] : groups_) communicator->Abort();
  if (own_root_ != nullptr || (root_used_ && root_ != nullptr)) root_->Abort();
}

absl::Status GroupCache::Health() const {
  const MutexLock lock(mutex_);
  for (const auto& [key, communicator] : groups_) {
    MESHIFT_RETURN_IF_ERROR(communicator->Health());
  }
  return root_used_ ? root_->Health() : absl::OkStatus();
}

GroupCacheStats GroupCache::stats() const {
  const MutexLock lock(mutex_);
  GroupCacheStats stats = stats_;
  stats.size = static_cast<int64_t>(groups_.size());
  return stats;
}

}  // namespace meshift
