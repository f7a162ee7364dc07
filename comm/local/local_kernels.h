// The kernels of the in-process engine (copy, fill, cast, reduce) as jobs of a stream. A large job
// has several parts, which may run concurrently: about one per MiB, at most 64.
//
//   MESHIFT_ASSIGN_OR_RETURN(task.kernel, CopyKernel::Create(copies, DType::kBF16));
//   scheduler->Enqueue(stream, std::move(task));
//
// CopyKernel::Create has the errors of StridedCopy::Create; the other kernels check nothing.
// Buffers must live until the job is done. Internal to comm/local.
#ifndef MESHIFT_COMM_LOCAL_LOCAL_KERNELS_H_
#define MESHIFT_COMM_LOCAL_LOCAL_KERNELS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/kernels/cast.h"
#include "comm/kernels/copy.h"
#include "comm/kernels/reduce.h"
#include "comm/local/scheduler.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

class CopyKernel final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<CopyKernel>> Create(absl::Span<const BoxCopy> copies,
                                                            DType dtype);
  void Run(int part) override;

 private:
  explicit CopyKernel(std::vector<StridedCopy> copies);
  std::vector<StridedCopy> copies_;
};

class FillKernel final : public Kernel {
 public:
  // Writes the first `bytes` bytes of `element` `count` times.
  FillKernel(const std::array<uint8_t, 16>& element, int64_t bytes, void* data, int64_t count);
  void Run(int part) override;

 private:
  const std::array<uint8_t, 16> element_;
  const int64_t bytes_;
  char* const data_;
  const int64_t count_;
};

class CastKernel final : public Kernel {
 public:
  // `function` casts `count` elements of `src_bytes` bytes each to elements of `dst_bytes` bytes.
  CastKernel(CastFunction function, const void* src, int64_t src_bytes, void* dst,
             int64_t dst_bytes, int64_t count);
  void Run(int part) override;

 private:
  const CastFunction function_;
  const char* const src_;
  const int64_t src_bytes_;
  char* const dst_;
  const int64_t dst_bytes_;
  const int64_t count_;
};

class ReduceKernel final : public Kernel {
 public:
  ReduceKernel(ReduceSpec spec, absl::Span<const void* const> inputs, void* out, int64_t count);
  void Run(int part) override;

 private:
  const ReduceSpec spec_;
  const std::vector<const void*> inputs_;
  char* const out_;
  const int64_t count_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_LOCAL_LOCAL_KERNELS_H_
