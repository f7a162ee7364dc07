// Helpers for the buffers of NCCL calls: byte offsets, sizes and argument checks. Internal to
// comm/nccl.
//
//   MESHIFT_RETURN_IF_ERROR(CheckBuffers("all_gather", count, send, recv));
//   At(recv, Bytes(dtype, begin));
#ifndef MESHIFT_COMM_NCCL_CALL_BUFFERS_H_
#define MESHIFT_COMM_NCCL_CALL_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/dtype.h"

namespace meshift::nccl_internal {

inline const char* At(const void* base, int64_t bytes) {
  return static_cast<const char*>(base) + bytes;
}
inline char* At(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

// INVALID_ARGUMENT: `count` is negative, or it is above 0 and a buffer is null. `call` names the
// call in the message. Does not check that buffers are device memory or large enough.
inline absl::Status CheckBuffers(std::string_view call, int64_t count, const void* send,
                                 const void* recv) {
  if (count < 0) return InvalidArgument("{} of {} elements: the count is negative", call, count);
  if (count > 0 && (send == nullptr || recv == nullptr)) {
    return InvalidArgument("{} of {} elements: the {} buffer is null", call, count,
                           send == nullptr ? "send" : "receive");
  }
  return absl::OkStatus();
}

inline size_t BytesOf(DType dtype, int64_t count) {
  return static_cast<size_t>(Bytes(dtype, count));
}

}  // namespace meshift::nccl_internal

#endif  // MESHIFT_COMM_NCCL_CALL_BUFFERS_H_
