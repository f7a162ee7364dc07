// Lists the addresses of this host's network interfaces, chosen in the syntax of
// NCCL_SOCKET_IFNAME. Internal to comm/control.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto hosts, InterfaceAddresses("eth,ib"));   // {"10.0.0.7"}
#ifndef MESHIFT_COMM_CONTROL_INTERFACES_H_
#define MESHIFT_COMM_CONTROL_INTERFACES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace meshift {

// gethostname(); empty if that fails.
std::string HostName();

// The addresses of the interfaces that are up and match `chosen`, which is written as for
// NCCL_SOCKET_IFNAME: "eth,ib": names that begin with these, in this order; "=eth0": exactly that
// one; "^docker" and "^=eth1": all but these. Empty: all but loopback, which may be none. For each
// part of `chosen` IPv4 comes first. Link-local IPv6 addresses are left out. INVALID_ARGUMENT:
// `chosen` is not empty, and no address is left. The message names the interfaces that are up and
// have an IPv4 address or an IPv6 address that is not link-local.
absl::StatusOr<std::vector<std::string>> InterfaceAddresses(std::string_view chosen);

// The index of the first part of `chosen` that matches the interface; -1: none does. For a choice
// that begins with "^", 0 (matches) or -1.
int ChoiceOf(std::string_view chosen, std::string_view interface);

// Whether a numeric address is one of this host's, on an interface that is up, and neither loopback
// nor link-local IPv6.
bool IsOwnAddress(const std::string& address);

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_INTERFACES_H_
