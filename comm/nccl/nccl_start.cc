// Implements NcclAbsence and StartNcclEngine of meshift/nccl_engine.h in a build with CUDA.
// nccl_start_absent.cc replaces it in a build without.
#include "meshift/nccl_engine.h"

namespace meshift {

std::string NcclAbsence() { return ""; }

absl::StatusOr<std::unique_ptr<Engine>> StartNcclEngine(Bootstrap* bootstrap,
                                                        const Timeouts& timeouts) {
  NcclOptions options;
  options.timeout = timeouts.running;
  options.setup_timeout = timeouts.setup;
  return NcclEngine::Create(bootstrap, options);
}

}  // namespace meshift
