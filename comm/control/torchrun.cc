// Implements Bootstrap::FromTorchrun() of meshift/bootstrap.h. Rank 0 opens the hub; the other
// ranks find it by torchrun's environment variables. If torchrun itself listens on MASTER_PORT and
// MESHIFT_PORT is not set, rank 0 puts the hub's address into torchrun's key-value store, and the
// others read it there. The job's secret never goes into the store.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/connect.h"
#include "comm/control/frame_rules.h"
#include "comm/control/hub_bootstrap.h"
#include "comm/control/interfaces.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "comm/control/torch_store.h"
#include "meshift/bootstrap.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using Getenv = std::function<const char*(const char*)>;

// torchrun starts its store before the ranks: a store that is missing for this long is an error.
constexpr std::chrono::seconds kStorePatience(60);
constexpr char kPortHint[] = "set MESHIFT_PORT to use another port on rank 0's host for the hub";

// The environment variables of torchrun and the user.
class Variables {
 public:
  explicit Variables(const Getenv& getenv) : getenv_(getenv) {}

  std::optional<std::string> Text(const char* name) const {
    const char* const value = getenv_ ? getenv_(name) : std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  // INVALID_ARGUMENT: not a number. FAILED_PRECONDITION: not set, and there is no `fallback`.
  absl::StatusOr<int64_t> Number(const char* name, std::optional<int64_t> fallback = {}) const {
    const std::optional<std::string> text = Text(name);
    if (!text && fallback) return *fallback;
    if (!text) return FailedPrecondition("the environment has no {}, which torchrun sets", name);
    int64_t value = 0;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    if (error != std::errc() || stop != end) {
      return InvalidArgument("{}='{}' is not a number", name, text->substr(0, 200));
    }
    return value;
  }

 private:
  const Getenv& getenv_;
};

struct Launch {
  JobRank job;
  JobKey key;
  std::string master;
  int master_port = 0;
  int port = 0;  // of the hub; 0: a free port, which rank 0 writes to the store
  std::string interfaces;
};

absl::StatusOr<int> CheckPort(int64_t port) {
  if (port < 1 || port > 65535) return InvalidArgument("port {} is not between 1 and 65535", port);
  return static_cast<int>(port);
}

absl::StatusOr<Launch> ReadLaunch(const Variables& variables) {
  Launch launch;
  JobRank& job = launch.job;
  MESHIFT_ASSIGN_OR_RETURN(job.rank, variables.Number("RANK"));
  MESHIFT_ASSIGN_OR_RETURN(job.world_size, variables.Number("WORLD_SIZE"));
  MESHIFT_ASSIGN_OR_RETURN(job.local_rank, variables.Number("LOCAL_RANK"));
  MESHIFT_ASSIGN_OR_RETURN(job.local_world_size, variables.Number("LOCAL_WORLD_SIZE", 0));
  MESHIFT_RETURN_IF_ERROR(CheckJob(job));
  const bool named = variables.Text("MESHIFT_PORT").has_value();
  const bool store = variables.Text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (named) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t port, variables.Number("MESHIFT_PORT"));
    MESHIFT_ASSIGN_OR_RETURN(launch.port, CheckPort(port));
  } else {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t port, variables.Number("MASTER_PORT"));
    MESHIFT_ASSIGN_OR_RETURN(launch.master_port, CheckPort(port));
    if (!store) launch.port = launch.master_port;
  }
  const std::optional<std::string> host = variables.Text("MASTER_ADDR");
  if (!host) return FailedPrecondition("the environment has no MASTER_ADDR, which torchrun sets");
  launch.master = *host;
  // The attempt is part of the name, so that a rank left over from an earlier attempt is refused.
  MESHIFT_ASSIGN_OR_RETURN(const int64_t attempt,
                           variables.Number("TORCHELASTIC_RESTART_COUNT", 0));
  const std::string run = variables.Text("TORCHELASTIC_RUN_ID").value_or("");
  // MASTER_PORT is part of it too: other jobs may have the same run id, "none" for instance.
  launch.key.name =
      fmt::format("{}#{}#{}", ToHex(run), attempt, variables.Text("MASTER_PORT").value_or(""));
  constexpr size_t kLongestRun = 200;  // bytes; twice that in hex fits into kMaxJobName
  if (run.size() > kLongestRun) {
    return InvalidArgument("TORCHELASTIC_RUN_ID has {} bytes, more than {}", run.size(),
                           kLongestRun);
  }
  launch.key.secret = variables.Text("MESHIFT_SECRET").value_or("");
  launch.interfaces = variables.Text("MESHIFT_SOCKET_IFNAME").value_or("");
  return launch;
}

bool IsLoopback(const std::string& address) {
  in_addr v4 = {};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return address == "::1";
}

// The address on which the hub listens; empty: all addresses of the host.
absl::StatusOr<std::string> HostOf(const Launch& launch) {
  if (!launch.interfaces.empty()) {
    MESHIFT_ASSIGN_OR_RETURN(const auto addresses, InterfaceAddresses(launch.interfaces));
    return addresses.front();
  }
  if (OnOneHost(launch.job)) return std::string(kLoopback);
  // MASTER_ADDR if it is one of this host's addresses. A name may resolve to loopback here, and to
  // this host's address on others.
  if (IsLoopback(launch.master)) return launch.master;
  const auto addresses = Resolve(launch.master, 1);
  for (size_t i = 0; addresses.ok() && i < addresses->size(); ++i) {
    const std::string address = NumbersOf((*addresses)[i]);
    if (IsOwnAddress(address)) return address;
  }
  return std::string();
}

// The key in torchrun's store for the hub's address.
std::string StoreKey(const Launch& launch) { return "meshift/hub/" + launch.key.name; }

absl::StatusOr<std::unique_ptr<Bootstrap>> StartHub(const Launch& launch,
                                                    Bootstrap::Timeout timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  MESHIFT_ASSIGN_OR_RETURN(const std::string host, HostOf(launch));
  JobKey key = launch.key;
  const bool store = launch.port == 0;
  if (store) {
    // TORCHELASTIC_RESTART_COUNT does not grow with every start of the ranks; for example, not when
    // hosts are added.
    MESHIFT_ASSIGN_OR_RETURN(const std::string bytes, RandomBytes());
    key.name += "#" + ToHex(bytes.substr(0, 8));
  }
  absl::StatusOr<OpenHub> hub = OpenHub::Open(launch.job, std::move(key), host, launch.port);
  if (!hub.ok()) {
    if (store || hub.status().code() != absl::StatusCode::kUnavailable) return hub.status();
    return absl::UnavailableError(fmt::format("{}; {}", Message(hub.status()), kPortHint));
  }
  if (store) {
    HubAddress told = hub->address;
    told.key.secret.clear();
    const absl::Status said =
        TorchStore(launch.master, launch.master_port)
            .Set(StoreKey(launch), ToText(told), std::min(deadline, Clock::now() + kStorePatience));
    if (!said.ok()) {
      return absl::UnavailableError(
          fmt::format("cannot set the hub's address in torchrun's store on port {} of {}: {}; {}",
                      launch.master_port, launch.master, Message(said), kPortHint));
    }
  }
  return hub->Enter(launch.job, timeout, "");
}

absl::StatusOr<HubAddress> FindHub(const Launch& launch, Clock::time_point deadline) {
  if (launch.port != 0) {
    const std::string host =
        OnOneHost(launch.job) && launch.interfaces.empty() ? kLoopback : launch.master;
    return HubAddress{.key = launch.key, .hosts = {host}, .port = launch.port};
  }
  const absl::StatusOr<std::string> told =
      TorchStore(launch.master, launch.master_port).TryGet(StoreKey(launch), deadline);
  if (!told.ok()) {
    const bool early = told.status().code() == absl::StatusCode::kNotFound;
    return absl::UnavailableError(
        fmt::format("torchrun's store on port {} of {}: {}", launch.master_port, launch.master,
                    early ? "rank 0 has not set the hub's address yet" : Message(told.status())));
  }
  MESHIFT_ASSIGN_OR_RETURN(HubAddress hub, ParseHubAddress(*told));
  if (hub.key.name.substr(0, launch.key.name.size()) != launch.key.name) {
    return absl::UnavailableError("torchrun's store names the hub of another job");
  }
  hub.key.secret = launch.key.secret;
  if (hub.hosts.back() == HostName()) hub.hosts.insert(hub.hosts.begin(), kLoopback);
  return hub;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Bootstrap>> Bootstrap::FromTorchrun(Timeout timeout,
                                                                   const Getenv& getenv) {
  MESHIFT_ASSIGN_OR_RETURN(const Launch launch, ReadLaunch(Variables(getenv)));
  if (launch.job.rank == 0) return StartHub(launch, timeout);
  const Clock::time_point deadline = Clock::now() + timeout;
  auto bootstrap = EnterHub(
      launch.job, [&] { return FindHub(launch, deadline); }, timeout);
  if (bootstrap.status().code() != absl::StatusCode::kDeadlineExceeded) return bootstrap;
  return absl::DeadlineExceededError(fmt::format("{}; {}", Message(bootstrap.status()), kPortHint));
}

}  // namespace meshift
