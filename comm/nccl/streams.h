// Streams, events and buffers of the NCCL engine. Not a public header.
#ifndef MESHIFT_COMM_NCCL_STREAMS_H_
#define MESHIFT_COMM_NCCL_STREAMS_H_

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/nccl/device.h"
#include "comm/nccl/job.h"
#include "meshift/engine.h"

namespace meshift {

class NcclStream final : public Stream {
 public:
  // A stream of its own.
  static absl::StatusOr<std::unique_ptr<NcclStream>> Create(std::shared_ptr<NcclJob> job);
  // `lent` stays its owner's: it is neither waited for nor destroyed.
  NcclStream(std::shared_ptr<NcclJob> job, CUstream stream, bool lent);
  ~NcclStream() override;

  // `stream` as one of `job`; INVALID_ARGUMENT where it is none; NcclJob::MayUseStreams().
  static absl::StatusOr<NcclStream*> Of(Stream& stream, const NcclJob& job);

  CUstream handle() const { return state_->handle; }
  const std::shared_ptr<DeviceStream>& state() const { return state_; }
  // Waits on the host for all work so far.
  absl::Status Synchronize() const;

 private:
  const std::shared_ptr<NcclJob> job_;
  const std::shared_ptr<DeviceStream> state_ = std::make_shared<DeviceStream>();
  const bool lent_;
};

class NcclEvent final : public Event {
 public:
  // Not marked yet.
  static absl::StatusOr<std::shared_ptr<NcclEvent>> Create(std::shared_ptr<NcclJob> job);
  NcclEvent(std::shared_ptr<NcclJob> job, CUevent event) : job_(std::move(job)), event_(event) {}
  ~NcclEvent() override;

  // Marks it on `stream`, anew where it was marked before.
  absl::Status Record(const NcclStream& stream);
  // Makes later work on `stream` wait for it. A graph cannot wait for what is outside of it, nor
  // anything outside for a part of it: such a wait is left out.
  absl::Status Delay(const NcclStream& stream) const;

  int64_t ReachedNs() const override;
  bool IsReached() const override;
  bool InGraph() const override { return capture_ != 0; }  // the host cannot wait for it
  const NcclJob* job() const { return job_.get(); }
  CUevent handle() const { return event_; }

 private:
  const std::shared_ptr<NcclJob> job_;
  const CUevent event_;
  std::shared_ptr<DeviceStream> stream_;  // where it was marked
  uint64_t capture_ = 0;                  // as part of this capture
  std::shared_ptr<const ClockBase> base_;
};

class NcclBuffer final : public Buffer {
 public:
  static absl::StatusOr<std::unique_ptr<NcclBuffer>> Create(std::shared_ptr<NcclJob> job,
                                                            int64_t bytes);
  NcclBuffer(std::shared_ptr<NcclJob> job, CUdeviceptr memory, int64_t bytes)
      : job_(std::move(job)), memory_(memory), bytes_(bytes) {}
  ~NcclBuffer() override { job_->device().FreeLater(memory_, nullptr); }
  void* data() const override { return reinterpret_cast<void*>(memory_); }
  int64_t size_bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<NcclJob> job_;
  const CUdeviceptr memory_;
  const int64_t bytes_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_STREAMS_H_
