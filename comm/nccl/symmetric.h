// Symmetric memory of the NCCL engine: memory of ncclMemAlloc, registered with a communicator as a
// symmetric window.
//
//   auto buffer = NcclSymmetricBuffer::Create(context, group, /*number=*/0, bytes).value();
//   MESHIFT_RETURN_IF_ERROR(buffer->Register());           // on all members
//
// The caller first makes sure that WhyNoWindows() is empty on all members, and that all have
// memory: Register() waits for all members. Internal to comm/nccl.
#ifndef MESHIFT_COMM_NCCL_SYMMETRIC_H_
#define MESHIFT_COMM_NCCL_SYMMETRIC_H_

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/nccl/context.h"
#include "meshift/engine.h"

namespace meshift {

class NcclSymmetricBuffer final : public SymmetricBuffer {
 public:
  // Allocates memory, which must then be registered. RESOURCE_EXHAUSTED if NCCL cannot allocate it.
  // REQUIRES: WhyNoWindows() is empty.
  static absl::StatusOr<std::unique_ptr<NcclSymmetricBuffer>> Create(
      std::shared_ptr<NcclContext> context, std::shared_ptr<NcclGroup> group, int64_t number,
      int64_t bytes);
  // Registered memory: waits for all work so far, deregisters it and frees it. Memory that was
  // never registered is freed without waiting. If the context has failed or ended, or NCCL refuses
  // to deregister, the memory is leaked, since its work may never end.
  ~NcclSymmetricBuffer() override;

  // Collective over the group. OK also if NCCL does not support symmetric memory for the group:
  // calls then run as on other memory. Other errors are those of NcclContext::RegisterWindow().
  absl::Status Register();

  void* data() const override { return data_; }
  int64_t size_bytes() const override { return bytes_; }
  const NcclGroup* group() const { return group_.get(); }

 private:
  NcclSymmetricBuffer(std::shared_ptr<NcclContext> context, std::shared_ptr<NcclGroup> group,
                      int64_t number, void* data, int64_t bytes)
      : SymmetricBuffer(number),
        context_(std::move(context)),
        group_(std::move(group)),
        data_(data),
        bytes_(bytes) {}

  const std::shared_ptr<NcclContext> context_;
  const std::shared_ptr<NcclGroup> group_;
  void* const data_;
  const int64_t bytes_;
  bool registered_ = false;
  ncclWindow_t window_ = nullptr;
};

// Why this rank cannot register memory with this group; empty if nothing known prevents it. Checks
// only NCCL's functions and the permission to split; NCCL may still refuse.
std::string WhyNoWindows(const NcclLibrary& nccl, const NcclGroup& group);

}  // namespace meshift

#endif  // MESHIFT_COMM_NCCL_SYMMETRIC_H_
