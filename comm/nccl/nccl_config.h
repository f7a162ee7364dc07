// What NcclOptions mean to NCCL: the configuration of communicators, and how many collectives may
// run at once. Not a public header.
#ifndef MESHIFT_COMM_NCCL_NCCL_CONFIG_H_
#define MESHIFT_COMM_NCCL_NCCL_CONFIG_H_

#include <nccl.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/nccl/environment.h"
#include "meshift/nccl_engine.h"

namespace meshift {

// INVALID_ARGUMENT names an option that cannot be.
absl::Status CheckOptions(const NcclOptions& options);

// Of communicators on a device of `num_sms` multiprocessors. Points into `options`.
ncclConfig_t ConfigOf(const NcclOptions& options, int num_sms);

// How many collectives may run at once, so that all fit on the device. NCCL's variables go before
// the configuration.
int MaxInFlight(const NcclOptions& options, int num_sms, const Environment& environment);

// What NCCL's tools show of a group: "meshift:tp[0-7]", "meshift[0,2,4]".
std::string CommNameOf(const std::string& name, absl::Span<const int64_t> ranks);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_NCCL_CONFIG_H_
