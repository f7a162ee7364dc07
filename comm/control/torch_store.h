// A client of the key-value store that torchrun's agent serves on MASTER_PORT (PyTorch's TCPStore,
// from 2.0 on): enough to say and to learn one value.
//
//   MESHIFT_RETURN_IF_ERROR(TorchStore(host, port).Set(key, value, deadline));
//   MESHIFT_ASSIGN_OR_RETURN(std::string value, TorchStore(host, port).Get(key, deadline));
//
// Each call connects anew. The store has no authorization: others may set its keys too.
#ifndef MESHIFT_COMM_CONTROL_TORCH_STORE_H_
#define MESHIFT_COMM_CONTROL_TORCH_STORE_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift {

class TorchStore {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  static constexpr size_t kMaxValue = 4096;  // bytes

  TorchStore(std::string host, int port) : host_(std::move(host)), port_(port) {}

  // DEADLINE_EXCEEDED: no store has taken it by then.
  absl::Status Set(const std::string& key, const std::string& value, Deadline deadline) const;
  // What somebody has set under `key`, now. NOT_FOUND: nobody has; UNAVAILABLE: no store answers.
  absl::StatusOr<std::string> TryGet(const std::string& key, Deadline deadline) const;

 private:
  std::string host_;
  int port_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_TORCH_STORE_H_
