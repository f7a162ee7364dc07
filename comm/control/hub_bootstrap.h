// Opens the hub and connects ranks to it, however they learn its address. Internal to comm/control.
//
//   MESHIFT_ASSIGN_OR_RETURN(OpenHub hub, OpenHub::Open(job, key, "10.0.0.7", /*port=*/0));
//   ... send hub.address to the other ranks ...
//   return hub.Enter(job, timeout, "");
#ifndef MESHIFT_COMM_CONTROL_HUB_BOOTSTRAP_H_
#define MESHIFT_COMM_CONTROL_HUB_BOOTSTRAP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/control/connect.h"
#include "comm/control/hub.h"
#include "comm/control/secret.h"
#include "meshift/bootstrap.h"

namespace meshift {

inline constexpr char kLoopback[] = "127.0.0.1";

// INVALID_ARGUMENT: a number is out of range.
absl::Status CheckJob(const JobRank& job);
// Whether all ranks are known to be on one host; false also if that is unknown.
bool OnOneHost(const JobRank& job);

// A new hub in this process, which is rank 0's, without any connection yet.
struct OpenHub {
  HubAddress address;
  std::shared_ptr<Hub> hub;

  // `host` is the address to listen on; empty: all addresses of this host. `port` 0: a free port;
  // for another one that is taken, waits up to 3 s. Errors as those of Bootstrap::Listen();
  // INVALID_ARGUMENT also for a rank other than 0.
  static absl::StatusOr<OpenHub> Open(const JobRank& job, JobKey key, const std::string& host,
                                      int port);
  // Makes rank 0's own bootstrap. Call it once. `told` is the result of its address(); empty: the
  // ranks learn the address in another way. Does not wait for other ranks. Errors as those of
  // Client::Start().
  absl::StatusOr<std::unique_ptr<Bootstrap>> Enter(const JobRank& job, Bootstrap::Timeout timeout,
                                                   std::string told);
};

// Makes the bootstrap of a rank in another process. `where` as in ConnectToHub(). Errors as those
// of ConnectToHub() and CheckJob().
absl::StatusOr<std::unique_ptr<Bootstrap>> EnterHub(
    const JobRank& job, const std::function<absl::StatusOr<HubAddress>()>& where,
    Bootstrap::Timeout timeout);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_HUB_BOOTSTRAP_H_
