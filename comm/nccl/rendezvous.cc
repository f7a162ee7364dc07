#include "comm/nccl/rendezvous.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/nccl/device.h"
#include "comm/nccl/environment.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/bootstrap.h"
#include "meshift/planner_options.h"

namespace meshift {
namespace {

// The first byte of a rank's record. Then follow, if it is ready, the ncclUniqueId (rank 0 only)
// and the reason why its environment breaks batch invariance (empty: it does not); else the error.
constexpr char kReady = '+';
constexpr char kMissing = '-';

// NCCL's all-reduce adds all elements in one order (one tree, on a communicator of one channel) if
// the environments of all ranks ask for it.
EngineCapabilities Agree(const std::vector<std::string>& broken) {
  EngineCapabilities capabilities = EngineCapabilities::Nccl();
  for (size_t rank = 0; rank < broken.size(); ++rank) {
    if (broken[rank].empty()) continue;
    capabilities.native_why = fmt::format("rank {}: {}", rank, broken[rank]);
    return capabilities;
  }
  capabilities.native_invariance = NativeInvariance::kAllReduce;
  capabilities.native_why = "by tree, as the environment of every rank says, on one channel";
  return capabilities;
}

}  // namespace

absl::StatusOr<NcclRendezvous> Rendezvous(Bootstrap* bootstrap, const absl::Status& here,
                                          const NcclLibrary* nccl, CudaDevice* device,
                                          const Environment& environment) {
  const JobRank& job = bootstrap->job();
  NcclRendezvous rendezvous;
  char* const id = rendezvous.id.internal;
  constexpr size_t kIdBytes = sizeof(rendezvous.id.internal);
  absl::Status status = here;
  if (status.ok() && job.rank == 0) {
    const CudaDevice::Scope scope(*device);
    status = nccl->Check(nccl->GetUniqueId(&rendezvous.id), "ncclGetUniqueId");
  }
  std::string mine(1, status.ok() ? kReady : kMissing);
  if (!status.ok()) {
    mine += Message(status);
  } else {
    if (job.rank == 0) mine.append(id, kIdBytes);
    mine += WhatBreaks(CheckNcclEnvironment(NcclProfile::kBatchInvariant,
                                            NcclVersion::FromCode(nccl->version()), environment));
  }
  absl::StatusOr<std::vector<std::string>> all = bootstrap->Exchange(mine);
  if (!status.ok()) return status;
  if (!all.ok()) return all.status();
  for (size_t rank = 0; rank < all->size(); ++rank) {
    std::string& told = (*all)[rank];
    const bool ready = !told.empty() && told[0] == kReady;
    told.erase(0, 1);
    if (!ready) return FailedPrecondition("rank {} has no NCCL engine: {}", rank, told);
  }
  std::string& first = (*all)[0];
  if (first.size() < kIdBytes) {
    return Internal("rank 0 sent {} bytes instead of an id", first.size());
  }
  std::memcpy(id, first.data(), kIdBytes);
  first.erase(0, kIdBytes);
  rendezvous.capabilities = Agree(*all);
  return rendezvous;
}

}  // namespace meshift
