#include "comm/control/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {
namespace {

struct Interface {
  std::string name;
  std::string address;
  bool loopback = false;
  bool ipv6 = false;
};

// The addresses of the interfaces that are up. Omits link-local IPv6 addresses, which need a zone
// and so do not identify a host.
std::vector<Interface> Interfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return interfaces;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    const void* bytes = nullptr;
    if (family == AF_INET) {
      bytes = &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr;
    } else if (family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&address)) bytes = &address;
    }
    std::array<char, INET6_ADDRSTRLEN> text = {};
    if (bytes == nullptr || inet_ntop(family, bytes, text.data(), text.size()) == nullptr) continue;
    interfaces.push_back({.name = i->ifa_name,
                          .address = text.data(),
                          .loopback = (i->ifa_flags & IFF_LOOPBACK) != 0,
                          .ipv6 = family == AF_INET6});
  }
  freeifaddrs(list);
  return interfaces;
}

}  // namespace

std::string HostName() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "";
}

int ChoiceOf(std::string_view chosen, std::string_view interface) {
  const bool others = chosen.substr(0, 1) == "^";
  if (others) chosen.remove_prefix(1);
  const bool whole = chosen.substr(0, 1) == "=";
  if (whole) chosen.remove_prefix(1);
  int found = -1;
  for (int place = 0; found < 0 && !chosen.empty(); ++place) {
    const std::string_view part = chosen.substr(0, chosen.find(','));
    chosen.remove_prefix(std::min(chosen.size(), part.size() + 1));
    const bool named = whole ? interface == part : interface.substr(0, part.size()) == part;
    if (named && !part.empty()) found = place;
  }
  if (others) return found < 0 ? 0 : -1;
  return found;
}

absl::StatusOr<std::vector<std::string>> InterfaceAddresses(std::string_view chosen) {
  std::vector<std::tuple<int, bool, size_t, std::string>> found;  // in the order that is returned
  std::set<std::string> names;
  for (const Interface& interface : Interfaces()) {
    names.insert(interface.name);
    const int place =
        chosen.empty() ? (interface.loopback ? -1 : 0) : ChoiceOf(chosen, interface.name);
    if (place >= 0) found.emplace_back(place, interface.ipv6, found.size(), interface.address);
  }
  if (found.empty() && !chosen.empty()) {
    return InvalidArgument("no interface that is up matches '{}'; known interfaces: {}",
                           std::string(chosen), fmt::join(names, ", "));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> addresses;
  for (const auto& [place, ipv6, order, address] : found) addresses.push_back(address);
  return addresses;
}

bool IsOwnAddress(const std::string& address) {
  for (const Interface& interface : Interfaces()) {
    if (interface.address == address) return !interface.loopback;
  }
  return false;
}

}  // namespace meshift
