// Implements meshift/bootstrap.h and comm/control/hub_bootstrap.h: a Bootstrap that talks to the
// hub (comm/control/hub.h), in one process or by TCP at a given address. FromTorchrun() is in
// comm/control/torchrun.cc.
#include "meshift/bootstrap.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/client.h"
#include "comm/control/connect.h"
#include "comm/control/frame_rules.h"
#include "comm/control/hub.h"
#include "comm/control/hub_bootstrap.h"
#include "comm/control/interfaces.h"
#include "comm/control/secret.h"
#include "comm/control/socket.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

class HubBootstrap final : public Bootstrap {
 public:
  HubBootstrap(const JobRank& job, std::string address, Timeout timeout, std::shared_ptr<Hub> hub,
               std::unique_ptr<Client> client)
      : job_(job),
        address_(std::move(address)),
        timeout_(timeout),
        hub_(std::move(hub)),
        client_(std::move(client)) {}

  const JobRank& job() const override { return job_; }
  const std::string& address() const override { return address_; }
  absl::StatusOr<std::vector<std::string>> Exchange(std::string_view mine) override {
    return client_->Exchange(mine, timeout_);
  }
  void Leave(const absl::Status& reason) override { client_->Leave(reason); }
  ControlChannel* control() override { return client_.get(); }

 private:
  const JobRank job_;
  const std::string address_;
  const Timeout timeout_;
  const std::shared_ptr<Hub> hub_;  // null if it is in another process
  const std::unique_ptr<Client> client_;
};

// The bootstrap of a rank in the hub's process.
absl::StatusOr<std::unique_ptr<Bootstrap>> Adopted(const JobRank& job, std::string address,
                                                   const JobKey& key, Bootstrap::Timeout timeout,
                                                   std::shared_ptr<Hub> hub) {
  MESHIFT_ASSIGN_OR_RETURN(auto ends, SocketPair());
  hub->Adopt(std::move(ends.first));
  MESHIFT_ASSIGN_OR_RETURN(auto client,
                           Client::Start(job, std::move(ends.second), key, Clock::now() + timeout));
  return std::make_unique<HubBootstrap>(job, std::move(address), timeout, std::move(hub),
                                        std::move(client));
}

}  // namespace

absl::Status CheckJob(const JobRank& job) {
  if (job.world_size < 1 || job.world_size > kMaxRanks) {
    return InvalidArgument("a world size of {} is not between 1 and {}", job.world_size, kMaxRanks);
  }
  if (job.rank < 0 || job.rank >= job.world_size) {
    return InvalidArgument("rank {} is not between 0 and {}", job.rank, job.world_size - 1);
  }
  if (job.local_rank < 0) return InvalidArgument("local rank {} is negative", job.local_rank);
  if (job.local_rank > INT32_MAX) {
    return InvalidArgument("local rank {} is larger than {}", job.local_rank, INT32_MAX);
  }
  if (job.local_world_size < 0 || job.local_world_size > job.world_size) {
    return InvalidArgument("a local world size of {} is not between 0 and {}", job.local_world_size,
                           job.world_size);
  }
  return absl::OkStatus();
}

bool OnOneHost(const JobRank& job) {
  return job.world_size == 1 || job.local_world_size == job.world_size;
}

absl::StatusOr<OpenHub> OpenHub::Open(const JobRank& job, JobKey key, const std::string& host,
                                      int port) {
  MESHIFT_RETURN_IF_ERROR(CheckJob(job));
  if (job.rank != 0) return InvalidArgument("rank {} cannot open the hub; rank 0 must", job.rank);
  MESHIFT_RETURN_IF_ERROR(ReserveDescriptors(job.world_size));
  // A given port may still be in use for a moment.
  const Clock::time_point patience = Clock::now() + std::chrono::seconds(port == 0 ? 0 : 3);
  MESHIFT_ASSIGN_OR_RETURN(Listening listening, Listening::Open(port, host, patience));
  OpenHub open;
  open.address = {.key = std::move(key), .hosts = {host}, .port = listening.port()};
  if (host.empty()) {
    MESHIFT_ASSIGN_OR_RETURN(open.address.hosts, InterfaceAddresses(""));
    open.address.hosts.push_back(HostName());
  }
  MESHIFT_ASSIGN_OR_RETURN(open.hub,
                           Hub::Start(job.world_size, open.address.key, std::move(listening)));
  return open;
}

absl::StatusOr<std::unique_ptr<Bootstrap>> OpenHub::Enter(const JobRank& job,
                                                          Bootstrap::Timeout timeout,
                                                          std::string told) {
  return Adopted(job, std::move(told), address.key, timeout, std::move(hub));
}

absl::StatusOr<std::unique_ptr<Bootstrap>> EnterHub(
    const JobRank& job, const std::function<absl::StatusOr<HubAddress>()>& where,
    Bootstrap::Timeout timeout) {
  MESHIFT_RETURN_IF_ERROR(CheckJob(job));
  MESHIFT_ASSIGN_OR_RETURN(auto client, ConnectToHub(job, where, Clock::now() + timeout));
  return std::make_unique<HubBootstrap>(job, "", timeout, nullptr, std::move(client));
}

absl::StatusOr<std::vector<std::unique_ptr<Bootstrap>>> Bootstrap::InProcess(int64_t world_size,
                                                                             Timeout timeout) {
  MESHIFT_RETURN_IF_ERROR(CheckJob({.world_size = world_size}));
  MESHIFT_RETURN_IF_ERROR(ReserveDescriptors(2 * world_size));
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<Hub> hub, Hub::Start(world_size, {}, std::nullopt));
  std::vector<std::unique_ptr<Bootstrap>> ranks;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const JobRank job{
        .rank = rank, .world_size = world_size, .local_rank = rank, .local_world_size = world_size};
    MESHIFT_ASSIGN_OR_RETURN(auto bootstrap, Adopted(job, "", {}, timeout, hub));
    ranks.push_back(std::move(bootstrap));
  }
  return ranks;
}

absl::StatusOr<std::unique_ptr<Bootstrap>> Bootstrap::Listen(const JobRank& job, int port,
                                                             Timeout timeout,
                                                             const std::string& interfaces) {
  std::string host;
  if (!interfaces.empty()) {
    MESHIFT_ASSIGN_OR_RETURN(const auto addresses, InterfaceAddresses(interfaces));
    host = addresses.front();
  } else if (OnOneHost(job)) {
    host = kLoopback;
  }
  MESHIFT_ASSIGN_OR_RETURN(const std::string name, RandomBytes());
  MESHIFT_ASSIGN_OR_RETURN(const std::string secret, RandomBytes());
  const JobKey key{.name = ToHex(name.substr(0, 8)), .secret = ToHex(secret)};
  MESHIFT_ASSIGN_OR_RETURN(OpenHub hub, OpenHub::Open(job, key, host, port));
  std::string address = ToText(hub.address);
  return hub.Enter(job, timeout, std::move(address));
}

absl::StatusOr<std::unique_ptr<Bootstrap>> Bootstrap::Connect(const JobRank& job,
                                                              const std::string& address,
                                                              Timeout timeout) {
  MESHIFT_ASSIGN_OR_RETURN(HubAddress hub, ParseHubAddress(address));
  // Loopback works on one host whatever the state of its interfaces.
  if (hub.hosts.back() == HostName()) hub.hosts.insert(hub.hosts.begin(), kLoopback);
  return EnterHub(
      job, [&] { return hub; }, timeout);
}

}  // namespace meshift
