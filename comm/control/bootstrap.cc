#include "comm/control/bootstrap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/status_macros.h"
#include "comm/control/client.h"
#include "comm/control/hub.h"
#include "comm/control/job_rank.h"
#include "comm/control/socket.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxRanks = int64_t{1} << 20;

absl::Status CheckJob(const JobRank& job) {
  if (job.world_size < 1 || job.world_size > kMaxRanks) {
    return InvalidArgument("a world size of {} is not between 1 and {}", job.world_size, kMaxRanks);
  }
  if (job.rank < 0 || job.rank >= job.world_size) {
    return InvalidArgument("rank {} is not between 0 and {}", job.rank, job.world_size - 1);
  }
  if (job.local_rank < 0) return InvalidArgument("local rank {} is negative", job.local_rank);
  if (job.local_rank > INT32_MAX) {
    return InvalidArgument("local rank {} is no device's ordinal", job.local_rank);
  }
  return absl::OkStatus();
}

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
  const std::shared_ptr<Hub> hub_;  // null where it is in another process
  const std::unique_ptr<Client> client_;
};

// A rank in the hub's process.
absl::StatusOr<std::unique_ptr<Bootstrap>> Adopted(const JobRank& job, std::string address,
                                                   const std::string& token,
                                                   Bootstrap::Timeout timeout,
                                                   std::shared_ptr<Hub> hub) {
  MESHIFT_ASSIGN_OR_RETURN(auto ends, SocketPair());
  hub->Adopt(std::move(ends.first));
  MESHIFT_ASSIGN_OR_RETURN(
      auto client, Client::Start(job, std::move(ends.second), token, Clock::now() + timeout));
  return std::make_unique<HubBootstrap>(job, std::move(address), timeout, std::move(hub),
                                        std::move(client));
}

absl::StatusOr<std::unique_ptr<Bootstrap>> ListenWith(const JobRank& job, int port,
                                                      const std::string& token,
                                                      Bootstrap::Timeout timeout) {
  MESHIFT_RETURN_IF_ERROR(CheckJob(job));
  if (job.rank != 0) return InvalidArgument("rank {} opens a hub, which is rank 0's", job.rank);
  MESHIFT_ASSIGN_OR_RETURN(Listening listening, Listening::Open(port));
  std::vector<std::string> hosts = HostAddresses();
  hosts.push_back(HostName());
  std::string address = fmt::format("{}@{}:{}", token, fmt::join(hosts, ","), listening.port());
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<Hub> hub,
                           Hub::Start(job.world_size, token, std::move(listening)));
  return Adopted(job, std::move(address), token, timeout, std::move(hub));
}

absl::StatusOr<std::unique_ptr<Bootstrap>> Dial(const JobRank& job, const std::string& token,
                                                const std::vector<std::string>& hosts, int port,
                                                Bootstrap::Timeout timeout) {
  MESHIFT_RETURN_IF_ERROR(CheckJob(job));
  const Clock::time_point deadline = Clock::now() + timeout;
  MESHIFT_ASSIGN_OR_RETURN(Socket socket, DialAny(hosts, port, deadline));
  auto client = Client::Start(job, std::move(socket), token, deadline);
  if (!client.ok()) {
    return Annotate(client.status(), fmt::format("port {} of {}", port, fmt::join(hosts, ", ")));
  }
  return std::make_unique<HubBootstrap>(job, "", timeout, nullptr, *std::move(client));
}

std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Bootstrap>>> Bootstrap::InProcess(int64_t world_size,
                                                                             Timeout timeout) {
  MESHIFT_RETURN_IF_ERROR(CheckJob({.world_size = world_size}));
  MESHIFT_ASSIGN_OR_RETURN(std::shared_ptr<Hub> hub, Hub::Start(world_size, "", std::nullopt));
  std::vector<std::unique_ptr<Bootstrap>> ranks;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const JobRank job{.rank = rank, .world_size = world_size, .local_rank = rank};
    MESHIFT_ASSIGN_OR_RETURN(auto bootstrap, Adopted(job, "", "", timeout, hub));
    ranks.push_back(std::move(bootstrap));
  }
  return ranks;
}

absl::StatusOr<std::unique_ptr<Bootstrap>> Bootstrap::Listen(const JobRank& job, int port,
                                                             Timeout timeout) {
  // Tells jobs apart that meet on one port; no secret.
  std::random_device random;
  const uint64_t high = random();
  return ListenWith(job, port, fmt::format("{:016x}", high << 32 | random()), timeout);
}

absl::StatusOr<std::unique_ptr<Bootstrap>> Bootstrap::Connect(const JobRank& job,
                                                              const std::string& address,
                                                              Timeout timeout) {
  const size_t at = address.find('@');
  const size_t colon = address.rfind(':');
  const std::optional<int64_t> port =
      colon == std::string::npos ? std::nullopt : ParseNumber(address.substr(colon + 1));
  if (at == std::string::npos || colon < at || !port || *port < 1 || *port > 65535) {
    return InvalidArgument("hub address '{}' is not of the form token@host,host:port", address);
  }
  std::vector<std::string> hosts;
  std::string_view list = address;
  list = list.substr(at + 1, colon - at - 1);
  while (!list.empty()) {
    hosts.emplace_back(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), hosts.back().size() + 1));
  }
  // The shortest way on one host, whatever its interfaces do.
  if (!hosts.empty() && hosts.back() == HostName()) hosts.insert(hosts.begin(), "127.0.0.1");
  return Dial(job, address.substr(0, at), hosts, static_cast<int>(*port), timeout);
}

absl::StatusOr<std::unique_ptr<Bootstrap>> Bootstrap::FromTorchrun(
    Timeout timeout, const std::function<const char*(const char*)>& getenv) {
  const auto text = [&](const char* name) -> std::optional<std::string> {
    const char* const value = getenv ? getenv(name) : std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const auto number = [&](const char* name) -> absl::StatusOr<int64_t> {
    const std::optional<std::string> value = text(name);
    if (!value) {
      return FailedPrecondition("the environment has no {}, which torchrun sets", name);
    }
    const std::optional<int64_t> parsed = ParseNumber(*value);
    if (!parsed) return InvalidArgument("{}='{}' is not a number", name, *value);
    return *parsed;
  };
  JobRank job;
  MESHIFT_ASSIGN_OR_RETURN(job.rank, number("RANK"));
  MESHIFT_ASSIGN_OR_RETURN(job.world_size, number("WORLD_SIZE"));
  MESHIFT_ASSIGN_OR_RETURN(job.local_rank, number("LOCAL_RANK"));
  int64_t port = 0;
  if (text("MESHIFT_PORT")) {
    MESHIFT_ASSIGN_OR_RETURN(port, number("MESHIFT_PORT"));
  } else {
    MESHIFT_ASSIGN_OR_RETURN(port, number("MASTER_PORT"));
    if (text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++port;
  }
  if (port < 1 || port > 65535) return InvalidArgument("port {} is not between 1 and 65535", port);
  const std::optional<std::string> host = text("MASTER_ADDR");
  if (!host) return FailedPrecondition("the environment has no MASTER_ADDR, which torchrun sets");
  const std::string token = text("TORCHELASTIC_RUN_ID").value_or("");
  if (job.rank == 0) return ListenWith(job, static_cast<int>(port), token, timeout);
  return Dial(job, token, {*host}, static_cast<int>(port), timeout);
}

}  // namespace meshift
