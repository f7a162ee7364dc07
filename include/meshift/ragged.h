// SizeExchange: gathers the sizes of a ragged shard when each rank knows only its own number of
// rows.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto exchange, SizeExchange::Create(mesh, engine));    // once
//   MESHIFT_ASSIGN_OR_RETURN(Placement::Sizes sizes, exchange->Gather(/*mesh_dim=*/0, tokens));
//   const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
//   MESHIFT_ASSIGN_OR_RETURN(
//       Sharding from, Sharding::Create(mesh, {DType::kBF16, {rows, 4096}},
//                                       {Placement::RaggedShard(0, sizes),
//                                       Placement::Replicate()}));
//
// A Sharding describes the whole mesh. So all ranks of the mesh exchange their sizes in one
// all-gather of 16 bytes per rank. Ranks with the same coordinate on the mesh dim must pass the
// same number. Every call is collective and waits for the other ranks. Not thread-safe.
#ifndef MESHIFT_RAGGED_H_
#define MESHIFT_RAGGED_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

class GroupCache;  // comm/executor/group_cache.h

// On NCCL, if the mesh has all ranks, it uses the engine's world communicator, which no other
// thread may use meanwhile.
class SizeExchange {
 public:
  ~SizeExchange();
  // Collective over the mesh's ranks. On NCCL, if the mesh has two or more ranks but not all, each
  // rank outside it must call engine->SplitNoColor(*engine->world()) meanwhile. `engine` must
  // outlive the result. INVALID_ARGUMENT: this rank is not in the mesh, or a rank of the mesh is
  // not in the engine's world. Otherwise errors of the engine.
  static absl::StatusOr<std::unique_ptr<SizeExchange>> Create(const DeviceMesh& mesh,
                                                              Engine* engine);

  // Returns the rows of every coordinate of `mesh_dim`, equal on all ranks; `rows` is this rank's
  // own number. Collective over the mesh's ranks, and waits for them. INVALID_ARGUMENT, equal on
  // all ranks: they pass different mesh dims, or one that is not in the mesh; rows below 0 (by
  // which a rank can make the call fail for all); rows that differ from those of a rank with the
  // same coordinate; or 2^63 rows or more in all. The message names ranks at fault, unless all pass
  // the same invalid dim or the total is too large. Otherwise errors of the engine.
  absl::StatusOr<Placement::Sizes> Gather(int mesh_dim, int64_t rows);

 private:
  // The message of one rank.
  struct Word {
    int64_t mesh_dim = 0;
    int64_t rows = 0;
  };

  SizeExchange(DeviceMesh mesh, Engine* engine);
  // Enqueues the exchange on the stream.
  absl::Status Queue(const Word& own, std::vector<Word>* by_member);
  // `words` by position in the mesh.
  absl::StatusOr<Placement::Sizes> SizesOf(const std::vector<Word>& words) const;

  const DeviceMesh mesh_;
  Engine* const engine_;
  std::unique_ptr<GroupCache> groups_;
  Communicator* root_ = nullptr;  // null: a mesh of one rank
  std::vector<int64_t> ranks_;    // the root's members
  std::unique_ptr<Buffer> own_;
  std::unique_ptr<Buffer> all_;
  std::unique_ptr<Stream> stream_;  // destroyed first: waits for work on the buffers
};

}  // namespace meshift

#endif  // MESHIFT_RAGGED_H_
