// Replaces nccl_start.cc in a build without CUDA: StartNcclEngine returns UNIMPLEMENTED, and
// NcclAbsence the reason.
#include <cuda_absence.h>

#include "base/status.h"
#include "meshift/nccl_engine.h"

namespace meshift {

std::string NcclAbsence() { return kCudaAbsence; }

absl::StatusOr<std::unique_ptr<Engine>> StartNcclEngine(Bootstrap*, const Timeouts&) {
  return Unimplemented("the NCCL engine is not in this build: {}", NcclAbsence());
}

}  // namespace meshift
