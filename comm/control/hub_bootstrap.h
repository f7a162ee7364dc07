// The parts that every bootstrap over a hub is made of, however its ranks learn where that is.
//
//   MESHIFT_ASSIGN_OR_RETURN(OpenHub hub, OpenHub::Open(job, key, "10.0.0.7", /*port=*/0));
//   ... tell the others hub.address ...
//   return hub.Enter(job, timeout, "");
#ifndef MESHIFT_COMM_CONTROL_HUB_BOOTSTRAP_H_
#define MESHIFT_COMM_CONTROL_HUB_BOOTSTRAP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/control/hub.h"
#include "comm/control/meet.h"
#include "comm/control/secret.h"
#include "meshift/bootstrap.h"

namespace meshift {

inline constexpr char kLoopback[] = "127.0.0.1";

// INVALID_ARGUMENT: a number out of range.
absl::Status CheckJob(const JobRank& job);
// All ranks are known to be on one host.
bool OnOneHost(const JobRank& job);

// A hub in this process, rank 0's, that nobody has come to yet.
struct OpenHub {
  HubAddress address;
  std::shared_ptr<Hub> hub;

  // `host`: the address to listen on; empty: all of this host. `port` 0: a free one. Errors as
  // those of Bootstrap::Listen().
  static absl::StatusOr<OpenHub> Open(const JobRank& job, JobKey key, const std::string& host,
                                      int port);
  // Rank 0's own bootstrap; once. `told`: what its address() is.
  absl::StatusOr<std::unique_ptr<Bootstrap>> Enter(const JobRank& job, Bootstrap::Timeout timeout,
                                                   std::string told);
};

// Another rank's; errors as those of MeetHub() and CheckJob().
absl::StatusOr<std::unique_ptr<Bootstrap>> EnterHub(
    const JobRank& job, const std::function<absl::StatusOr<HubAddress>()>& where,
    Bootstrap::Timeout timeout);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_HUB_BOOTSTRAP_H_
