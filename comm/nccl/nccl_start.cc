#include "comm/nccl/nccl_start.h"

#include "comm/nccl/nccl_engine.h"

namespace meshift {

std::string NcclAbsence() { return ""; }

absl::StatusOr<std::unique_ptr<Engine>> StartNcclEngine(Bootstrap* bootstrap) {
  return NcclEngine::Create(bootstrap);
}

}  // namespace meshift
