// Brings the tensors of all ranks but 0 to rank 0, by the engine's own messages.
//
//   auto gather = TensorGather::Prepare(engine, plan.to().mesh(), targets);
//   MESHIFT_RETURN_IF_ERROR(context->Agree(gather.status()));
//   MESHIFT_RETURN_IF_ERROR(gather->Run(&targets));
//
// The tensors of all ranks but 0, back to back by position in the mesh, are one row of bytes. A
// round moves the next `round_bytes` of the row, and a barrier ends it. So no rank needs more
// staging memory than that, and no call of the engine waits longer than one round takes. The
// tensors are in host memory; only the staging memory is the engine's. Not thread-safe.
#ifndef MESHIFT_CLI_GATHER_H_
#define MESHIFT_CLI_GATHER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/local_tensors.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"

namespace meshift::cli {

class TensorGather {
 public:
  static constexpr int64_t kRoundBytes = int64_t{16} << 20;

  // Allocates staging memory for tensors of these sizes; does not wait for other ranks. REQUIRES:
  // the arguments are equal on all ranks, apart from the tensors that a rank holds; `round_bytes`
  // is 1 or more; the engine outlives this. Errors are those of CreateStream and Allocate.
  static absl::StatusOr<TensorGather> Prepare(Engine& engine, const DeviceMesh& mesh,
                                              const LocalTensors& tensors,
                                              int64_t round_bytes = kRoundBytes);
  // Reads this rank's tensor; on rank 0 it writes all others'. Collective over all ranks of the
  // engine's world, also those outside the mesh. Blocks until the last round has ended. REQUIRES:
  // Prepare() is OK on all ranks; `tensors` has the sizes given to Prepare(), and holds this rank's
  // tensor, on rank 0 those of all ranks. Errors are those of the engine; after one, the tensors
  // that rank 0 received may be incomplete.
  absl::Status Run(LocalTensors* tensors);

  int64_t staging_bytes() const { return staging_ == nullptr ? 0 : staging_->size_bytes(); }

 private:
  // A chunk of one rank's tensor, in bytes.
  struct Chunk {
    int64_t position = 0;
    int64_t rank = 0;
    int64_t first = 0;  // byte of the tensor
    int64_t bytes = 0;
  };

  explicit TensorGather(Engine& engine) : engine_(&engine) {}
  bool is_leader() const { return engine_->rank() == 0; }
  // Whether this rank sends or receives the chunk.
  bool IsMine(const Chunk& chunk) const { return is_leader() || chunk.rank == engine_->rank(); }
  absl::Status Round(absl::Span<const Chunk> round, LocalTensors* tensors);

  Engine* engine_;
  // The chunks that rank 0 receives in each round, equal on all ranks; at most one per rank.
  std::vector<std::vector<Chunk>> rounds_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Buffer> staging_;
};

}  // namespace meshift::cli

#endif  // MESHIFT_CLI_GATHER_H_
