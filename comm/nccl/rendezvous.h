// The rendezvous of an NCCL engine's ranks, before they have a communicator: each rank reports that
// it is ready, or why it cannot take part; rank 0 distributes the ncclUniqueId; and the ranks agree
// whether NCCL's all-reduce is batch-invariant.
//
//   auto rendezvous = Rendezvous(bootstrap, here, nccl, device, environment).value();
//   nccl->CommInitRankConfig(&comm, size, rendezvous.id, rank, &config);
//
// Makes no communicator. Waits as long as Bootstrap::Exchange(). Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_RENDEZVOUS_H_
#define MESHIFT_COMM_NCCL_RENDEZVOUS_H_

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/nccl/device.h"
#include "comm/nccl/environment.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/bootstrap.h"
#include "meshift/planner_options.h"

namespace meshift {

// The result of the rendezvous, equal on all ranks.
struct NcclRendezvous {
  ncclUniqueId id = {};
  EngineCapabilities capabilities = EngineCapabilities::Nccl();
};

// Collective over the ranks of `bootstrap`. `here`: an error if this rank cannot take part;
// Rendezvous reports it to the others and returns it. If it is OK, `nccl` and `device` must not be
// null. `environment`, with those of the other ranks, decides whether NCCL's all-reduce is
// batch-invariant. FAILED_PRECONDITION names another rank that cannot take part, and why. INTERNAL:
// rank 0 sent no id. Other errors are those of Bootstrap::Exchange(), and on rank 0 of
// ncclGetUniqueId.
absl::StatusOr<NcclRendezvous> Rendezvous(Bootstrap* bootstrap, const absl::Status& here,
                                          const NcclLibrary* nccl, CudaDevice* device,
                                          const Environment& environment);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_RENDEZVOUS_H_
