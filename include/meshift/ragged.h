// Ragged sizes that no rank knows alone: each says how many rows it has, and all learn the sizes of
// a ragged shard.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto exchange, SizeExchange::Create(mesh, engine));    // once
//   MESHIFT_ASSIGN_OR_RETURN(Placement::Sizes sizes, exchange->Gather(/*mesh_dim=*/0, tokens));
//   const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
//   MESHIFT_ASSIGN_OR_RETURN(
//       Sharding from, Sharding::Create(mesh, {DType::kBF16, {rows, 4096}},
//                                       {Placement::RaggedShard(0, sizes),
//                                       Placement::Replicate()}));
//
// A sharding is one for the whole mesh. So all its ranks tell each other, in one small all-gather,
// and those with the same coordinate on the mesh dim have to agree.
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

// Not for use from several threads, nor while another thread uses the engine's world, which is the
// communicator where the mesh has all ranks.
class SizeExchange {
 public:
  ~SizeExchange();
  // Collective over the mesh's ranks. `engine` must outlive it. Errors: those of
  // a group that cannot be made, and of memory that there is not.
  static absl::StatusOr<std::unique_ptr<SizeExchange>> Create(const DeviceMesh& mesh,
                                                              Engine* engine);

  // The rows of every coordinate of `mesh_dim`, of which this rank's has `rows`; equal on all
  // ranks. Collective over the mesh's ranks, and waits for them. INVALID_ARGUMENT, alike on all
  // ranks, names the ranks that disagree or are wrong: another mesh dim, or none of the mesh; rows
  // below 0 (with which a rank can make the call fail for all); other rows than a rank with the
  // same coordinate; 2^63 or more in all. Else an error of the engine.
  absl::StatusOr<Placement::Sizes> Gather(int mesh_dim, int64_t rows);

 private:
  // What a rank tells the others.
  struct Word {
    int64_t mesh_dim = 0;
    int64_t rows = 0;
  };

  SizeExchange(DeviceMesh mesh, Engine* engine);
  // Puts the exchange on the stream.
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
