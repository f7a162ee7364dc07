// How the ranks of an NCCL engine meet before they have a communicator: each says that it is ready,
// or what it lacks.
//
//   auto meeting = Meet(bootstrap, here, nccl, device, environment).value();
//   nccl->CommInitRankConfig(&comm, size, meeting.id, rank, &config);
#ifndef MESHIFT_COMM_NCCL_MEETING_H_
#define MESHIFT_COMM_NCCL_MEETING_H_

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/nccl/device.h"
#include "comm/nccl/environment.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/bootstrap.h"
#include "meshift/planner_options.h"

namespace meshift {

// What all ranks know of each other once they have met.
struct NcclMeeting {
  ncclUniqueId id = {};
  EngineCapabilities capabilities = EngineCapabilities::Nccl();
};

// Collective over the ranks of `bootstrap`. `here`: an error if this rank cannot take part, which
// it returns; else `nccl` and `device` are there. `environment`: null for the process's own.
// FAILED_PRECONDITION names a rank that cannot, and why.
absl::StatusOr<NcclMeeting> Meet(Bootstrap* bootstrap, const absl::Status& here,
                                 const NcclLibrary* nccl, CudaDevice* device,
                                 const Environment& environment);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_MEETING_H_
