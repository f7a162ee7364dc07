// The communicators of one root: each group is split from it when a plan first needs it, and kept.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto cache, GroupCache::Create(engine, mesh));
//   for (const ProgramGroup& group : program.groups) {
//     MESHIFT_ASSIGN_OR_RETURN(Communicator * c, cache->Get(program.meshes[group.mesh], group));
//   }
//
// Splitting concerns all ranks of the root, so *whether* to split must not depend on what one rank
// has. It is decided by the partition, which the plan alone gives: the first time that a partition
// is needed every rank splits its own group of it, afterwards none does. A rank whose group is
// known from another partition, or that is in none because the mesh is a part of the root, takes
// part without a new communicator (Engine::SkipSplit).
//
// Safe for concurrent use; but all ranks of a root must need partitions in the same order.
#ifndef MESHIFT_COMM_EXECUTOR_GROUP_CACHE_H_
#define MESHIFT_COMM_EXECUTOR_GROUP_CACHE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "comm/program/program.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"

namespace meshift {

class GroupCache {
 public:
  // Makes the root: a communicator of the mesh's ranks, or the engine's world where these are all
  // its ranks and another would cost something (Engine::SplitsFreely); none for a mesh of one rank.
  // All ranks of the mesh call this. `engine` must outlive the cache. INVALID_ARGUMENT: the
  // engine's rank, or a rank of the mesh, is not in the other.
  static absl::StatusOr<std::unique_ptr<GroupCache>> Create(Engine* engine, const DeviceMesh& mesh);
  // What ranks of the world that are not in `mesh` call, on engines whose splits concern them too
  // (Engine::SkipSplit).
  static absl::Status StayOut(Engine* engine, const DeviceMesh& mesh);

  // The communicator of `group`, which is over group.mesh_dims of `mesh`, a mesh of ranks of the
  // root; null where the group has no ranks. The cache owns it. O(1) where it was asked for before.
  absl::StatusOr<Communicator*> Get(const DeviceMesh& mesh, const ProgramGroup& group,
                                    const GroupOptions& options = {});
  // OK where all ranks of `mesh` are the root's; INVALID_ARGUMENT names one that is not.
  static absl::Status CheckMesh(const DeviceMesh& root, const DeviceMesh& mesh);

  // Aborts all communicators; the root too, where it was handed out or is the cache's own. Those
  // that are made afterwards are aborted too. May be called twice; does not wait for Get().
  void AbortAll();
  // OK, or the first error of a communicator. Any thread; does not wait for Get().
  absl::Status Health() const;
  GroupCacheStats stats() const;
  const DeviceMesh& mesh() const { return mesh_; }

 private:
  using CacheKey = std::pair<RankList, std::string>;  // the options' text
  struct Asked {
    DeviceMesh mesh;
    DimSet mesh_dims;
    std::string options;
    friend bool operator==(const Asked&, const Asked&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Asked& a) {
      return H::combine(std::move(h), a.mesh, a.mesh_dims, a.options);
    }
  };

  GroupCache(Engine* engine, DeviceMesh mesh) : engine_(engine), mesh_(std::move(mesh)) {}
  absl::StatusOr<Communicator*> Find(const DeviceMesh& mesh, const ProgramGroup& group,
                                     const GroupOptions& options) MESHIFT_REQUIRES(making_);

  Engine* const engine_;
  const DeviceMesh mesh_;
  Communicator* root_ = nullptr;
  std::shared_ptr<Communicator> own_root_;  // null where the root is the engine's world

  // Held for as long as an engine may take to make a group; `mutex_`, taken inside it, never.
  Mutex making_;
  mutable Mutex mutex_;
  bool aborted_ MESHIFT_GUARDED_BY(mutex_) = false;
  bool root_used_ MESHIFT_GUARDED_BY(mutex_) = false;
  GroupCacheStats stats_ MESHIFT_GUARDED_BY(mutex_);
  // By what was asked for; by ranks; and the keys of the partitions that are split.
  absl::flat_hash_map<Asked, Communicator*> asked_ MESHIFT_GUARDED_BY(mutex_);
  absl::flat_hash_map<CacheKey, std::shared_ptr<Communicator>> groups_ MESHIFT_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> partitions_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_EXECUTOR_GROUP_CACHE_H_
