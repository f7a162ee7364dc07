// NcclAbsence and StartNcclEngine in a build with CUDA. nccl_start_absent.cc has the others.
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
