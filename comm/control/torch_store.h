// A minimal client of the key-value store that torchrun's agent serves on MASTER_PORT (PyTorch's
// TCPStore, from 2.0 on): sets and gets one value.
//
//   MESHIFT_RETURN_IF_ERROR(TorchStore(host, port).Set(key, value, deadline));
//   MESHIFT_ASSIGN_OR_RETURN(std::string value, TorchStore(host, port).TryGet(key, deadline));
//
// Each try opens a new connection, so calls are safe from any thread. The store's host must be
// little-endian. The store has no authorization: any process may set its keys. Internal to
// comm/control.
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
  static constexpr size_t kMaxValue = 4096;  // bytes that TryGet() accepts

  TorchStore(std::string host, int port) : host_(std::move(host)), port_(port) {}

  // Retries until `deadline`. A try succeeds if the key exists afterwards; its value is not
  // compared. DEADLINE_EXCEEDED: no try has succeeded by then.
  absl::Status Set(const std::string& key, const std::string& value, Deadline deadline) const;
  // The present value of `key`; tries once, and waits for the store at most 5 seconds and not
  // beyond `deadline`, after the look-up of the host's name. NOT_FOUND: the key is not set.
  // UNAVAILABLE: no store answers, or the value is longer than kMaxValue.
  absl::StatusOr<std::string> TryGet(const std::string& key, Deadline deadline) const;

 private:
  std::string host_;
  int port_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_CONTROL_TORCH_STORE_H_
