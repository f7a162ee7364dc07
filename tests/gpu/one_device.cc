#include "tests/gpu/one_device.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace meshift {

absl::StatusOr<int> FreePort() {
  constexpr int kFirst = 20000;
  constexpr int kPorts = 10000;
  static int next = getpid();  // not the previous call's port, which may soon be in use
  for (int i = 0; i < kPorts; ++i) {
    const int port = kFirst + next++ % kPorts;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool good =
        fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    if (fd >= 0) close(fd);
    if (good) return port;
  }
  return FailedPrecondition("no port of the loopback interface from {} to {} is free", kFirst,
                            kFirst + kPorts - 1);
}

std::vector<std::string> OneDeviceEnvironment(const OneDeviceRank& rank) {
  std::vector<std::string> variables = {
      fmt::format("RANK={}", rank.rank),
      fmt::format("WORLD_SIZE={}", rank.ranks),
      "LOCAL_RANK=0",
      "MASTER_ADDR=127.0.0.1",
      fmt::format("MASTER_PORT={}", rank.port),
      fmt::format("NCCL_HOSTID=rank{}", rank.rank),
      "NCCL_SOCKET_IFNAME==lo",  // lo itself, not all names that begin with lo
      "NCCL_CONF_FILE=/dev/null",
      "NCCL_NET=Socket",
      "NCCL_NET_PLUGIN=none",
      "NCCL_TUNER_PLUGIN=none",
      "NCCL_ENV_PLUGIN=none",
      "NCCL_IB_DISABLE=1",
      "NCCL_P2P_DISABLE=1",
      "NCCL_SHM_DISABLE=1",
      "NCCL_MNNVL_ENABLE=0",
      "NCCL_NVLS_ENABLE=0",
      "NCCL_PAT_ENABLE=0",
      "NCCL_RAS_ENABLE=0",
      fmt::format("NCCL_MAX_CTAS={}", rank.max_ctas),
      "CUDA_MODULE_LOADING=EAGER",
      "NCCL_DEBUG=INFO",
      "NCCL_DEBUG_SUBSYS=INIT,NET",
      fmt::format("NCCL_DEBUG_FILE={}/nccl.rank{}", rank.folder, rank.rank)};
  if (rank.batch_invariant) {
    variables.insert(variables.end(), {"NCCL_ALGO=ring,tree;allreduce:tree", "NCCL_PROTO=Simple",
                                       "NCCL_COLLNET_ENABLE=0"});
  }
  return variables;
}

std::vector<std::string> OneDeviceLeftOut() { return {"NCCL_", "CUDA_LAUNCH_BLOCKING="}; }

}  // namespace meshift
