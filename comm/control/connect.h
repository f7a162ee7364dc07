// Connects a rank to its job's hub, and retries while other processes, or none, answer at the hub's
// address.
//
//   auto client = ConnectToHub(job, [&] { return ParseHubAddress(text); }, deadline);
//
// Blocks the calling thread up to the deadline; the look-up of a host name may exceed it. Internal
// to comm/control.
#ifndef MESHIFT_COMM_CONTROL_CONNECT_H_
#define MESHIFT_COMM_CONTROL_CONNECT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/control/client.h"
#include "comm/control/secret.h"
#include "meshift/bootstrap.h"

namespace meshift {

// The address of a hub and the key of its job.
struct HubAddress {
  JobKey key;
  std::vector<std::string> hosts;  // names or addresses, in the order in which they are tried
  int port = 0;
};

// "name.secret@host,host:port", or without ".secret" if the secret is empty. REQUIRES: no "@" or
// "." in the name, no "@" in the secret, no "," in a host.
std::string ToText(const HubAddress& hub);
// INVALID_ARGUMENT: `text` does not have that form, a host is empty, or the port is not in
// 1..65535. The message omits the secret.
absl::StatusOr<HubAddress> ParseHubAddress(std::string_view text);

// Tries all hosts, again and again, until one is the job's hub or the deadline passes. Calls
// `where` before each round, since it may return another address; an error of `where` only ends the
// round. FAILED_PRECONDITION: the hub refuses this rank. DEADLINE_EXCEEDED has the error of the
// last round that ended before the deadline; if none did, of the first.
absl::StatusOr<std::unique_ptr<Client>> ConnectToHub(
    const JobRank& job, const std::function<absl::StatusOr<HubAddress>()>& where,
    std::chrono::steady_clock::time_point deadline);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_CONNECT_H_
