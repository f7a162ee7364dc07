#include "comm/control/connect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/client.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "meshift/bootstrap.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// The result of one try. If `final`, no more tries are made.
struct Try {
  absl::StatusOr<std::unique_ptr<Client>> client;
  bool final = false;
};

Try TryAddress(const JobRank& job, const JobKey& key, const Address& address,
               Clock::time_point deadline) {
  absl::StatusOr<Socket> socket = Dial(address, deadline);
  if (!socket.ok()) return {socket.status()};
  Try done{Client::Start(job, *std::move(socket), key, deadline)};
  done.final =
      done.client.ok() || done.client.status().code() == absl::StatusCode::kFailedPrecondition;
  return done;
}

Try TryHosts(const JobRank& job, const HubAddress& hub, Clock::time_point deadline) {
  Try last{absl::UnavailableError("no host is given")};
  for (const std::string& host : hub.hosts) {
    const absl::StatusOr<std::vector<Address>> addresses = Resolve(host, hub.port);
    if (!addresses.ok()) {
      last.client = addresses.status();
      continue;
    }
    for (const Address& address : *addresses) {
      last = TryAddress(job, hub.key, address, deadline);
      if (last.final) return last;
      if (Clock::now() >= deadline) return last;
    }
  }
  return last;
}

}  // namespace

std::string ToText(const HubAddress& hub) {
  const std::string secret = hub.key.secret.empty() ? "" : "." + hub.key.secret;
  return fmt::format("{}{}@{}:{}", hub.key.name, secret, fmt::join(hub.hosts, ","), hub.port);
}

absl::StatusOr<HubAddress> ParseHubAddress(std::string_view text) {
  const size_t at = text.find('@');
  const size_t colon = text.rfind(':');
  // The token is a name, or a name and a secret: "name.secret". The message omits the token, or
  // without "@" all that may be a secret.
  const auto refuse = [&] {
    const std::string_view shown =
        at == std::string_view::npos ? text.substr(0, text.find('.')) : text.substr(at);
    return InvalidArgument("hub address '{}' is not of the form token@host,host:port",
                           shown.substr(0, 200));
  };
  if (at == std::string_view::npos || colon == std::string_view::npos || colon < at)
    return refuse();
  HubAddress hub;
  const std::string_view token = text.substr(0, at);
  const size_t dot = token.find('.');
  hub.key.name = token.substr(0, dot);
  if (dot != std::string_view::npos) hub.key.secret = token.substr(dot + 1);
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, hub.port);
  if (error != std::errc() || stop != end || hub.port < 1 || hub.port > 65535) return refuse();
  std::string_view hosts = text.substr(at + 1, colon - at - 1);
  while (!hosts.empty()) {
    hub.hosts.emplace_back(hosts.substr(0, hosts.find(',')));
    hosts.remove_prefix(std::min(hosts.size(), hub.hosts.back().size() + 1));
    if (hub.hosts.back().empty()) return refuse();
  }
  if (hub.hosts.empty()) return refuse();
  return hub;
}

absl::StatusOr<std::unique_ptr<Client>> ConnectToHub(
    const JobRank& job, const std::function<absl::StatusOr<HubAddress>()>& where,
    Clock::time_point deadline) {
  // Exponential backoff: many ranks that dial again and again would use up the kernel's ports.
  constexpr std::chrono::milliseconds kLongest(250);
  std::chrono::milliseconds pause(10);
  absl::Status last;
  absl::Status said;  // the error of the last try that ended before the deadline
  while (true) {
    const absl::StatusOr<HubAddress> hub = where();
    last = hub.status();
    if (hub.ok()) {
      Try done = TryHosts(job, *hub, deadline);
      last = Annotate(done.client.status(),
                      fmt::format("port {} of {}", hub->port, fmt::join(hub->hosts, ", ")));
      if (done.client.ok()) return std::move(done.client);
      if (done.final) return last;
    }
    const auto left = deadline - Clock::now();
    if (said.ok() || left > std::chrono::nanoseconds(0)) said = last;
    if (left <= std::chrono::nanoseconds(0)) {
      return absl::DeadlineExceededError(
          fmt::format("no hub accepted this rank: {}", Message(said)));
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, left));
    pause = std::min(kLongest, pause * 2);
  }
}

}  // namespace meshift
