// Makes and keeps the communicators of a mesh's groups. A group of all ranks without GroupOptions
// gets the root communicator itself. Each other is split from the root when a plan first needs it,
// and lives as long as the cache.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto cache, GroupCache::Create(engine, mesh));
//   for (const ProgramGroup& group : program.groups) {
//     MESHIFT_ASSIGN_OR_RETURN(Communicator * c, cache->Get(program.meshes[group.mesh], group));
//   }
//
// All ranks of the root must take part in a split, so the decision to split must not depend on the
// groups that one rank has cached. It depends on the partition: all groups over one set of mesh
// dims, with their GroupOptions. When a plan first needs a partition, every rank splits its own
// group; later, none does.
// Some ranks take part without a new communicator (Engine::SplitNoColor): those that have their
// group from another partition, and those in no group because the mesh has only some of the root's
// ranks.
//
// Safe for concurrent use, but all ranks of a root must need partitions in the same order.
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
  // Makes the root, a communicator of the mesh's ranks. The root is the engine's world if the mesh
  // has all its ranks, unless splits are free (Engine::SplitsFreely). Otherwise it is split from
  // the world, and a mesh of one rank has none. All ranks of the mesh must call this. `engine` must
  // outlive the cache. INVALID_ARGUMENT: the engine's rank is not in the mesh, or a rank of the
  // mesh is not in the engine's world; else errors as those of Engine::SplitList.
  static absl::StatusOr<std::unique_ptr<GroupCache>> Create(Engine* engine, const DeviceMesh& mesh);
  // The counterpart of Create() on ranks of the world that are not in `mesh`, for engines in which
  // all ranks take part in splits (Engine::SplitNoColor).
  static absl::Status SplitWithoutGroup(Engine* engine, const DeviceMesh& mesh);

  // The communicator of `group`, a group over group.mesh_dims of `mesh`; null if the group has no
  // ranks. Lives as long as the cache. The first request for a partition waits as Engine::Split
  // does; a repeated request waits only for other threads in Get(). After an error the partition is
  // not cached. INVALID_ARGUMENT: the group has one rank, or CheckMesh fails. INTERNAL: the group
  // is missing from a partition that was split. Else errors as those of Engine::SplitList and
  // Engine::SplitNoColor.
  absl::StatusOr<Communicator*> Get(const DeviceMesh& mesh, const ProgramGroup& group,
                                    const GroupOptions& options = {});
  // OK if all ranks of `mesh` are in `root`; INVALID_ARGUMENT names one that is not.
  static absl::Status CheckMesh(const DeviceMesh& root, const DeviceMesh& mesh);

  // Aborts all communicators, also those made later. Aborts the engine's world only if it is the
  // root and Get() has returned it, or once Get() does. May be called twice; does not wait for
  // Get().
  void AbortAll();
  // OK, or an error of a communicator that Get() has returned. From any thread; does not wait for
  // Get().
  absl::Status Health() const;
  GroupCacheStats stats() const;
  const DeviceMesh& mesh() const { return mesh_; }

 private:
  using CacheKey = std::pair<RankList, std::string>;  // ranks, and GroupOptions::ToString()
  struct Request {
    DeviceMesh mesh;
    DimSet mesh_dims;
    std::string options;
    friend bool operator==(const Request&, const Request&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Request& r) {
      return H::combine(std::move(h), r.mesh, r.mesh_dims, r.options);
    }
  };

  GroupCache(Engine* engine, DeviceMesh mesh) : engine_(engine), mesh_(std::move(mesh)) {}
  absl::StatusOr<Communicator*> Find(const DeviceMesh& mesh, const ProgramGroup& group,
                                     const GroupOptions& options) MESHIFT_REQUIRES(making_);

  Engine* const engine_;
  const DeviceMesh mesh_;
  Communicator* root_ = nullptr;
  std::shared_ptr<Communicator> own_root_;  // null if the root is the engine's world

  // Held while an engine makes a group, which may take long. `mutex_` is taken inside it, and only
  // for short sections.
  Mutex making_;
  mutable Mutex mutex_;
  bool aborted_ MESHIFT_GUARDED_BY(mutex_) = false;
  bool root_used_ MESHIFT_GUARDED_BY(mutex_) = false;
  GroupCacheStats stats_ MESHIFT_GUARDED_BY(mutex_);
  // Communicators by request, and by ranks; and the keys of the partitions that are split.
  absl::flat_hash_map<Request, Communicator*> by_request_ MESHIFT_GUARDED_BY(mutex_);
  absl::flat_hash_map<CacheKey, std::shared_ptr<Communicator>> groups_ MESHIFT_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> partitions_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_EXECUTOR_GROUP_CACHE_H_
