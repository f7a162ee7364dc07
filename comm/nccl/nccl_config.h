// Translates NcclOptions for NCCL: checks them, makes the configuration of communicators, and
// computes how many collectives may run at once.
//
//   MESHIFT_RETURN_IF_ERROR(CheckOptions(options));
//   ncclConfig_t config = ConfigOf(options, num_sms);
//
// All but CheckOptions need checked options. Makes no call of NCCL. Internal to comm/nccl.
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

// INVALID_ARGUMENT names an invalid option. Checks the time-outs, cta_share, min_ctas, max_ctas and
// max_in_flight; NCCL and the device check the others.
absl::Status CheckOptions(const NcclOptions& options);

// The configuration of communicators on a device with `num_sms` multiprocessors. `options` must
// outlive it (netName points into it).
ncclConfig_t ConfigOf(const NcclOptions& options, int num_sms);

// How many collectives may run at once so that their thread blocks fit on cta_share of the device;
// 1 to 16, also if one alone does not fit. At most options.max_in_flight, if that is set. Counts
// NCCL's variables in `environment`, which override the configuration.
int MaxInFlight(const NcclOptions& options, int num_sms, const Environment& environment);

// The name of a group in NCCL's tools: "meshift:tp[0-7]", "meshift[0,2,4]". `ranks` ascend. A list
// of more than 8 ranks with gaps is shortened, so two groups may have one name.
std::string CommNameOf(const std::string& name, absl::Span<const int64_t> ranks);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_NCCL_CONFIG_H_
