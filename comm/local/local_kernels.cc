#include "comm/local/local_kernels.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "comm/kernels/copy.h"
#include "comm/kernels/identity.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr int64_t kPartBytes = int64_t{1} << 20;  // bytes
constexpr int64_t kMaxParts = 64;

int PartsFor(int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>(bytes / kPartBytes, 1, kMaxParts));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CopyKernel>> CopyKernel::Create(absl::Span<const BoxCopy> copies,
                                                               DType dtype) {
  std::vector<StridedCopy> ready;
  ready.reserve(copies.size());
  for (const BoxCopy& copy : copies) {
    MESHIFT_ASSIGN_OR_RETURN(StridedCopy one, StridedCopy::Create(copy, dtype));
    if (one.units() > 0) ready.push_back(std::move(one));
  }
  return absl::WrapUnique(new CopyKernel(std::move(ready)));
}

CopyKernel::CopyKernel(std::vector<StridedCopy> copies) : copies_(std::move(copies)) {
  int64_t bytes = 0;
  for (const StridedCopy& copy : copies_) bytes += copy.bytes();
  set_num_parts(PartsFor(bytes));
}

void CopyKernel::Run(int part) {
  if (num_parts() == 1) {
    for (const StridedCopy& copy : copies_) copy.Execute();
    return;
  }
  // Each part runs a range of the concatenated units of all copies. Units of different copies
  // differ in size, so parts may be unequal.
  int64_t units = 0;
  for (const StridedCopy& copy : copies_) units += copy.units();
  const int64_t step = CeilDiv(units, num_parts());
  const int64_t begin = part * step;
  int64_t first = 0;
  for (const StridedCopy& copy : copies_) {
    copy.ExecuteUnits(std::clamp<int64_t>(begin - first, 0, copy.units()),
                      std::clamp<int64_t>(begin + step - first, 0, copy.units()));
    first += copy.units();
  }
}

FillKernel::FillKernel(const std::array<uint8_t, 16>& element, int64_t bytes, void* data,
                       int64_t count)
    : element_(element), bytes_(bytes), data_(static_cast<char*>(data)), count_(count) {
  set_num_parts(PartsFor(bytes * count));
}

void FillKernel::Run(int part) {
  const int64_t step = CeilDiv(count_, num_parts());
  const int64_t begin = std::min(count_, part * step);
  const int64_t end = std::min(count_, begin + step);
  FillElements(element_, bytes_, data_ + begin * bytes_, end - begin);
}

CastKernel::CastKernel(CastFunction function, const void* src, int64_t src_bytes, void* dst,
                       int64_t dst_bytes, int64_t count)
    : function_(function),
      src_(static_cast<const char*>(src)),
      src_bytes_(src_bytes),
      dst_(static_cast<char*>(dst)),
      dst_bytes_(dst_bytes),
      count_(count) {
  set_num_parts(PartsFor((src_bytes + dst_bytes) * count));
}

void CastKernel::Run(int part) {
  const int64_t step = CeilDiv(count_, num_parts());
  const int64_t begin = std::min(count_, part * step);
  const int64_t end = std::min(count_, begin + step);
  function_(src_ + begin * src_bytes_, dst_ + begin * dst_bytes_, end - begin);
}

ReduceKernel::ReduceKernel(ReduceSpec spec, absl::Span<const void* const> inputs, void* out,
                           int64_t count)
    : spec_(std::move(spec)),
      inputs_(inputs.begin(), inputs.end()),
      out_(static_cast<char*>(out)),
      count_(count) {
  const auto blocks = static_cast<int64_t>(inputs_.size()) + 1;
  set_num_parts(PartsFor(SaturatingMul(blocks, Bytes(spec_.dtype, count))));
}

void ReduceKernel::Run(int part) {
  const int64_t step = CeilDiv(count_, num_parts());
  const int64_t begin = std::min(count_, part * step);
  const int64_t end = std::min(count_, begin + step);
  Reduce(spec_, inputs_, begin, end - begin, out_ + Bytes(spec_.dtype, begin));
}

}  // namespace meshift
