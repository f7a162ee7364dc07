// Names and addresses of this host, and which of its network interfaces a job meets on.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto hosts, InterfaceAddresses("eth,ib"));   // {"10.0.0.7"}
#ifndef MESHIFT_COMM_CONTROL_INTERFACES_H_
#define MESHIFT_COMM_CONTROL_INTERFACES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace meshift {

std::string HostName();

// The addresses of the interfaces that are up and that `chosen` names, as NCCL_SOCKET_IFNAME does:
// "eth,ib": those whose name begins so, in this order; "=eth0": that one; "^docker" and "^=eth1":
// all but these. Empty: all but loopback. IPv4 first; no link-local ones. INVALID_ARGUMENT: none is
// left of a choice; it names those that there are.
absl::StatusOr<std::vector<std::string>> InterfaceAddresses(std::string_view chosen);

// The place of the first part of `chosen` that names the interface; -1: none does. Of a choice that
// begins with "^": 0 or -1.
int ChoiceOf(std::string_view chosen, std::string_view interface);

// Whether an address (numbers, no name) is one of this host's, and not of its loopback.
bool IsOwnAddress(const std::string& address);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_INTERFACES_H_
