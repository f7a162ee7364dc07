// The NCCL engine for programs that are built with and without CUDA: the same interface, which says
// what is missing. No CUDA or NCCL header.
//
//   if (const std::string absence = NcclAbsence(); !absence.empty()) ...
//   MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, StartNcclEngine(bootstrap));
#ifndef MESHIFT_COMM_NCCL_NCCL_START_H_
#define MESHIFT_COMM_NCCL_NCCL_START_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/engine.h"
#include "comm/engine/timeouts.h"

namespace meshift {

// Why this build has no NCCL engine; empty: it has. (Whether the machine has a GPU shows when one
// is started.)
std::string NcclAbsence();
// NcclEngine::Create with these time-outs; UNIMPLEMENTED where this build has none.
absl::StatusOr<std::unique_ptr<Engine>> StartNcclEngine(Bootstrap* bootstrap,
                                                        const Timeouts& timeouts = {});

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_NCCL_START_H_
