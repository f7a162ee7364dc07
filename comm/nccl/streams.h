// The NCCL engine's Stream (a CUstream), Event (a CUevent) and Buffer (device memory).
//
//   MESHIFT_ASSIGN_OR_RETURN(auto stream, NcclStream::Create(context));
//   MESHIFT_ASSIGN_OR_RETURN(auto event, NcclEvent::Create(context));
//   MESHIFT_RETURN_IF_ERROR(event->Record(*stream));       // then event->Delay(*other_stream)
//
// One thread at a time uses a stream. NcclEvent::Record() must not run during another call on the
// event. Errors that a declaration does not name are those of the context and the driver. Internal
// to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_STREAMS_H_
#define MESHIFT_COMM_NCCL_STREAMS_H_

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/nccl/context.h"
#include "comm/nccl/device.h"
#include "meshift/engine.h"

namespace meshift {

class NcclStream final : public Stream {
 public:
  // Creates a CUstream, which the result owns.
  static absl::StatusOr<std::unique_ptr<NcclStream>> Create(std::shared_ptr<NcclContext> context);
  // Wraps `stream`. If `lent`, its owner keeps it: the destructor neither waits for it nor destroys
  // it. Else the destructor waits for its work and destroys it, or leaks it if MayUseStreams() has
  // an error.
  NcclStream(std::shared_ptr<NcclContext> context, CUstream stream, bool lent);
  ~NcclStream() override;

  // Casts `stream`. INVALID_ARGUMENT if it does not belong to `context`; else the error of
  // NcclContext::MayUseStreams().
  static absl::StatusOr<NcclStream*> Of(Stream& stream, const NcclContext& context);

  CUstream handle() const { return state_->handle; }
  const std::shared_ptr<DeviceStream>& state() const { return state_; }
  // Waits on the host for all work so far. FAILED_PRECONDITION while the stream is captured.
  absl::Status Synchronize() const;

 private:
  const std::shared_ptr<NcclContext> context_;
  const std::shared_ptr<DeviceStream> state_ = std::make_shared<DeviceStream>();
  const bool lent_;
};

class NcclEvent final : public Event {
 public:
  // An event that is not recorded yet.
  static absl::StatusOr<std::shared_ptr<NcclEvent>> Create(std::shared_ptr<NcclContext> context);
  NcclEvent(std::shared_ptr<NcclContext> context, CUevent event)
      : context_(std::move(context)), event_(event) {}
  ~NcclEvent() override;

  // Records the event on `stream`, replacing an earlier record.
  absl::Status Record(const NcclStream& stream);
  // Makes later work on `stream` wait for the event. INVALID_ARGUMENT if it was not recorded. If
  // the event is part of a capture that lasts, the stream joins the capture. CUDA allows no other
  // wait between work inside and outside of a graph; such a wait is left out, and the result is OK.
  absl::Status Delay(const NcclStream& stream) const;

  int64_t ReachedNs() const override;
  // After a failure of the context, true only if the event's time is known and before the failure.
  bool IsReached() const override;
  bool InGraph() const override { return capture_ != 0; }  // then the host cannot wait for it
  const NcclContext* context() const { return context_.get(); }
  CUevent handle() const { return event_; }

 private:
  const std::shared_ptr<NcclContext> context_;
  const CUevent event_;
  std::shared_ptr<DeviceStream> stream_;  // on which it was recorded; null: not recorded
  uint64_t capture_ = 0;                  // in which it was recorded; 0: none
  std::shared_ptr<const ClockBase> base_;
};

// Work that uses it must be done before it is destroyed: the memory is freed at a later allocation.
class NcclBuffer final : public Buffer {
 public:
  // INVALID_ARGUMENT: `bytes` is negative; RESOURCE_EXHAUSTED: the device has not enough memory.
  static absl::StatusOr<std::unique_ptr<NcclBuffer>> Create(std::shared_ptr<NcclContext> context,
                                                            int64_t bytes);
  NcclBuffer(std::shared_ptr<NcclContext> context, CUdeviceptr memory, int64_t bytes)
      : context_(std::move(context)), memory_(memory), bytes_(bytes) {}
  ~NcclBuffer() override { context_->device().FreeLater(memory_, nullptr); }
  void* data() const override { return reinterpret_cast<void*>(memory_); }
  int64_t size_bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<NcclContext> context_;
  const CUdeviceptr memory_;
  const int64_t bytes_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_STREAMS_H_
