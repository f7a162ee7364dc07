#include "comm/nccl/symmetric.h"

#include <fmt/format.h>

#include <utility>

#include "base/status.h"
#include "comm/nccl/device.h"
#include "comm/nccl/nccl_library.h"
#include "meshift/status.h"

namespace meshift {

absl::StatusOr<std::unique_ptr<NcclSymmetricBuffer>> NcclSymmetricBuffer::Create(
    std::shared_ptr<NcclContext> context, std::shared_ptr<NcclGroup> group, int64_t number,
    int64_t bytes) {
  const CudaDevice::Scope scope(context->device());
  void* data = nullptr;
  const NcclLibrary& nccl = context->nccl();
  const absl::Status status =
      nccl.Check(nccl.MemAlloc(&data, static_cast<size_t>(bytes)), "ncclMemAlloc");
  if (!status.ok()) {
    return absl::ResourceExhaustedError(
        fmt::format("{} bytes of symmetric memory: {}", bytes, Message(status)));
  }
  return std::unique_ptr<NcclSymmetricBuffer>(
      new NcclSymmetricBuffer(std::move(context), std::move(group), number, data, bytes));
}

absl::Status NcclSymmetricBuffer::Register() {
  MESHIFT_ASSIGN_OR_RETURN(window_, context_->RegisterWindow(group_, data_, bytes_));
  registered_ = true;
  return absl::OkStatus();
}

NcclSymmetricBuffer::~NcclSymmetricBuffer() {
  if (registered_ && !context_->DropWindow(*group_, window_)) return;
  if (!context_->Health().ok()) return;
  const CudaDevice::Scope scope(context_->device());
  context_->nccl().MemFree(data_);  // a destructor cannot report an error
}

std::string WhyNoWindows(const NcclLibrary& nccl, const NcclGroup& group) {
  if (nccl.MemAlloc == nullptr || nccl.MemFree == nullptr || nccl.CommWindowRegister == nullptr ||
      nccl.CommWindowDeregister == nullptr) {
    return fmt::format("NCCL {} has no ncclMemAlloc or no ncclCommWindowRegister",
                       nccl.VersionText());
  }
  if (!group.may_split) {
    return fmt::format("the communicator of {} was lent without permission to split it",
                       group.ToString());
  }
  return "";
}

}  // namespace meshift
