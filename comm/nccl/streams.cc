#include "comm/nccl/streams.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/nccl/context.h"
#include "comm/nccl/device.h"
#include "meshift/status.h"

namespace meshift {

absl::StatusOr<std::unique_ptr<NcclStream>> NcclStream::Create(
    std::shared_ptr<NcclContext> context) {
  const CudaDevice::Scope scope(context->device());
  CUstream stream = nullptr;
  MESHIFT_RETURN_IF_ERROR(context->device().driver().StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return std::make_unique<NcclStream>(std::move(context), stream, /*lent=*/false);
}

NcclStream::NcclStream(std::shared_ptr<NcclContext> context, CUstream stream, bool lent)
    : context_(std::move(context)), lent_(lent) {
  state_->handle = stream;
}

NcclStream::~NcclStream() {
  const bool may_use = context_->MayUseStreams().ok();
  if (may_use && !lent_) Synchronize().IgnoreError();
  state_->alive.store(false);
  if (!may_use || lent_) return;
  const CudaDevice::Scope scope(context_->device());
  context_->device().driver().StreamDestroy(state_->handle).IgnoreError();
}

absl::StatusOr<NcclStream*> NcclStream::Of(Stream& stream, const NcclContext& context) {
  auto* own = dynamic_cast<NcclStream*>(&stream);
  if (own == nullptr || own->context_.get() != &context) {
    return InvalidArgument("the stream does not belong to the engine of rank {}", context.rank());
  }
  MESHIFT_RETURN_IF_ERROR(context.MayUseStreams());
  return own;
}

absl::Status NcclStream::Synchronize() const {
  CudaDevice& device = context_->device();
  const CudaDevice::Scope scope(device);
  MESHIFT_ASSIGN_OR_RETURN(const uint64_t capture, device.CaptureOf(handle()));
  if (capture != 0) {
    return FailedPrecondition("a stream that is being captured cannot be waited for");
  }
  MESHIFT_ASSIGN_OR_RETURN(const CUevent event, device.TakeEvent(/*timed=*/false));
  absl::Status status = device.driver().EventRecord(event, handle());
  if (status.ok()) status = context_->Await(event);
  device.GiveEvent(event, /*timed=*/false);
  return status;
}

absl::StatusOr<std::shared_ptr<NcclEvent>> NcclEvent::Create(std::shared_ptr<NcclContext> context) {
  CudaDevice& device = context->device();
  const CudaDevice::Scope scope(device);
  MESHIFT_ASSIGN_OR_RETURN(const CUevent event, device.TakeEvent(device.timed()));
  return std::make_shared<NcclEvent>(std::move(context), event);
}

NcclEvent::~NcclEvent() { context_->device().GiveEvent(event_, context_->device().timed()); }

absl::Status NcclEvent::Record(const NcclStream& stream) {
  CudaDevice& device = context_->device();
  const CudaDevice::Scope scope(device);
  MESHIFT_ASSIGN_OR_RETURN(capture_, device.CaptureOf(stream.handle()));
  base_ = InGraph() ? nullptr : device.Clock();
  stream_ = stream.state();
  return device.driver().EventRecord(event_, stream.handle());
}

absl::Status NcclEvent::Delay(const NcclStream& stream) const {
  if (stream_ == nullptr) return InvalidArgument("the event was not recorded");
  CudaDevice& device = context_->device();
  const CudaDevice::Scope scope(device);
  MESHIFT_ASSIGN_OR_RETURN(const uint64_t capture, device.CaptureOf(stream.handle()));
  if (capture != capture_) {
    // A stream joins a capture by waiting for one of its events, while the capture lasts.
    if (capture != 0 || !stream_->alive.load()) return absl::OkStatus();
    MESHIFT_ASSIGN_OR_RETURN(const uint64_t now, device.CaptureOf(stream_->handle));
    if (now != capture_) return absl::OkStatus();
  }
  return device.driver().StreamWaitEvent(stream.handle(), event_, 0);
}

bool NcclEvent::IsReached() const {
  const CudaDevice::Scope scope(context_->device());
  if (!context_->device().IsReached(event_).value_or(false)) return false;
  // The abort of a failed context ends its work, so an event counts only if it was reached before.
  const int64_t failed_ns = context_->failed_ns();
  if (failed_ns == INT64_MAX) return true;
  const int64_t reached_ns = ReachedNs();
  return reached_ns >= 0 && reached_ns < failed_ns;
}

int64_t NcclEvent::ReachedNs() const {
  if (base_ == nullptr) return -1;
  const CudaDevice::Scope scope(context_->device());
  return context_->device().ReachedNs(*base_, event_);
}

absl::StatusOr<std::unique_ptr<NcclBuffer>> NcclBuffer::Create(std::shared_ptr<NcclContext> context,
                                                               int64_t bytes) {
  if (bytes < 0) return InvalidArgument("cannot allocate {} bytes; expected at least 0", bytes);
  MESHIFT_RETURN_IF_ERROR(context->Health());
  const CudaDevice::Scope scope(context->device());
  absl::StatusOr<CUdeviceptr> memory = context->device().Allocate(bytes);
  if (!memory.ok()) {
    return Annotate(memory.status(), fmt::format("rank {}", context->rank()));
  }
  return std::make_unique<NcclBuffer>(std::move(context), *memory, bytes);
}

}  // namespace meshift
