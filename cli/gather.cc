#include "cli/gather.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/local_tensors.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift::cli {

absl::StatusOr<TensorGather> TensorGather::Prepare(Engine& engine, const DeviceMesh& mesh,
                                                   const LocalTensors& tensors,
                                                   int64_t round_bytes) {
  TensorGather gather(engine);
  int64_t room = 0;  // bytes that the last round can still take
  int64_t here = 0;  // bytes of the round that this rank sends or receives
  int64_t most = 0;  // the largest `here`
  for (int64_t p = 0; p < mesh.NumRanks(); ++p) {
    const int64_t rank = mesh.RankAt(p);
    if (rank == 0) continue;
    const auto size = static_cast<int64_t>(tensors.SizeAt(p));
    for (int64_t first = 0; first < size;) {
      if (room == 0) {
        gather.rounds_.emplace_back();
        room = round_bytes;
        here = 0;
      }
      const Chunk chunk{p, rank, first, std::min(room, size - first)};
      gather.rounds_.back().push_back(chunk);
      first += chunk.bytes;
      room -= chunk.bytes;
      if (gather.IsMine(chunk)) here += chunk.bytes;
      most = std::max(most, here);
    }
  }
  if (gather.rounds_.empty()) return gather;
  MESHIFT_ASSIGN_OR_RETURN(gather.stream_, engine.CreateStream());
  if (most > 0) {
    MESHIFT_ASSIGN_OR_RETURN(gather.staging_, engine.Allocate(most));
  }
  return gather;
}

absl::Status TensorGather::Run(LocalTensors* tensors) {
  for (const std::vector<Chunk>& round : rounds_) {
    MESHIFT_RETURN_IF_ERROR(Round(round, tensors));
  }
  return absl::OkStatus();
}

absl::Status TensorGather::Round(absl::Span<const Chunk> round, LocalTensors* tensors) {
  const auto bytes_of = [&](const Chunk& chunk) {
    return tensors->at(chunk.position).subspan(chunk.first, chunk.bytes).data();
  };
  std::vector<PeerMessage> messages;
  auto* at = staging_ == nullptr ? nullptr : static_cast<std::byte*>(staging_->data());
  for (const Chunk& chunk : round) {
    if (!IsMine(chunk)) continue;
    messages.push_back({is_leader() ? static_cast<int>(chunk.rank) : 0, at, chunk.bytes});
    if (!is_leader()) {
      MESHIFT_RETURN_IF_ERROR(engine_->CopyIn(bytes_of(chunk), at, chunk.bytes, *stream_));
    }
    at += chunk.bytes;
  }
  Communicator& world = *engine_->world();
  const std::vector<PeerMessage> none;
  MESHIFT_RETURN_IF_ERROR(world.SendRecv(is_leader() ? none : messages,
                                         is_leader() ? messages : none, DType::kU8, *stream_));
  MESHIFT_RETURN_IF_ERROR(world.Barrier(*stream_));
  for (size_t i = 0; is_leader() && i < round.size(); ++i) {
    MESHIFT_RETURN_IF_ERROR(
        engine_->CopyOut(messages[i].data, bytes_of(round[i]), round[i].bytes, *stream_));
  }
  return engine_->Synchronize(*stream_);
}

}  // namespace meshift::cli
