#include "comm/cuda/element_launches.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/cuda/kernel_params.h"
#include "comm/kernels/identity.h"
#include "comm/kernels/reduce.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/status.h"
#include "placement/cast.h"

namespace meshift::cuda {
namespace {

static_assert(kNumDTypes == kNumKernelDTypes);

uint64_t AddressOf(const void* data) { return reinterpret_cast<uintptr_t>(data); }

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

absl::Status CheckMemory(const char* what, const void* data, int64_t count) {
  if (count < 0) return InvalidArgument("a count of {} is negative", count);
  if (count > 0 && data == nullptr)
    return InvalidArgument("{} of {} elements is null", what, count);
  return absl::OkStatus();
}

// The alignment, in bytes, that an element needs; a complex number is read by component.
int64_t ElementAccess(DType dtype) {
  const int64_t bytes = BitWidth(dtype) / 8;
  return IsComplex(dtype) ? bytes / 2 : bytes;
}

// `bits`: the bitwise or of all addresses; `element`: the largest ElementAccess.
Access AccessOf(uint64_t bits, int64_t element) {
  if (bits % 16 == 0) return kAccessVectors;
  return bits % element == 0 ? kAccessElements : kAccessBytes;
}

}  // namespace

absl::Status MakeFillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                              FillParams* params) {
  MESHIFT_ASSIGN_OR_RETURN(const auto element, IdentityOf(dtype, op));
  MESHIFT_RETURN_IF_ERROR(CheckMemory("the target", data, count));
  *params = {.data = AddressOf(data),
             .count = static_cast<uint64_t>(count),
             .element = {},
             .element_bytes = static_cast<uint32_t>(BitWidth(dtype) / 8),
             .reserved = 0};
  std::memcpy(params->element, element.data(), sizeof(params->element));
  return absl::OkStatus();
}

absl::Status MakeCast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count,
                      CastParams* params) {
  MESHIFT_RETURN_IF_ERROR(CheckCast(src_dtype, dst_dtype));
  if (src_dtype == dst_dtype) return Internal("no kernel casts {} to itself", Name(src_dtype));
  MESHIFT_RETURN_IF_ERROR(CheckMemory("the source", src, count));
  MESHIFT_RETURN_IF_ERROR(CheckMemory("the target", dst, count));
  const int64_t element = std::max(ElementAccess(src_dtype), ElementAccess(dst_dtype));
  *params = {.src = AddressOf(src),
             .dst = AddressOf(dst),
             .count = static_cast<uint64_t>(count),
             .src_dtype = static_cast<uint8_t>(src_dtype),
             .dst_dtype = static_cast<uint8_t>(dst_dtype),
             .access = AccessOf(AddressOf(src) | AddressOf(dst), element),
             .reserved = {}};
  return absl::OkStatus();
}

absl::Status MakeReduce(absl::Span<const void* const> inputs, void* out, int64_t count, DType dtype,
                        const Reduction& reduction, ReduceParams* params) {
  MESHIFT_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  if (inputs.empty()) return InvalidArgument("a reduction has no inputs");
  for (const void* input : inputs) {
    MESHIFT_RETURN_IF_ERROR(CheckMemory("an input", input, count));
  }
  MESHIFT_RETURN_IF_ERROR(CheckMemory("the target", out, count));
  uint64_t bits = AddressOf(out);
  const uint64_t first = AddressOf(inputs[0]);
  const uint64_t stride = inputs.size() > 1 ? AddressOf(inputs[1]) - first : 0;
  bool strided = true;
  for (size_t k = 0; k < inputs.size(); ++k) {
    bits |= AddressOf(inputs[k]);
    strided = strided && AddressOf(inputs[k]) == first + k * stride;
  }
  if (!strided && inputs.size() > kMaxReduceInputs) {
    return Unimplemented(
        "cannot reduce {} inputs that are not at equal distances; at most {} are supported",
        inputs.size(), kMaxReduceInputs);
  }
  const auto num_inputs = static_cast<int64_t>(inputs.size());
  const int64_t block = reduction.block > 0 ? std::min(reduction.block, num_inputs) : num_inputs;
  params->base = {.out = AddressOf(out),
                  .count = static_cast<uint64_t>(count),
                  .divisor = reduction.divisor,
                  .input_stride = stride,
                  .num_inputs = static_cast<uint32_t>(inputs.size()),
                  .block = static_cast<uint32_t>(block),
                  .dtype = static_cast<uint8_t>(dtype),
                  .op = static_cast<uint8_t>(reduction.op),
                  .access = AccessOf(bits, ElementAccess(dtype)),
                  .strided = strided,
                  .reserved = {}};
  const size_t listed = strided ? 1 : inputs.size();
  for (size_t k = 0; k < listed; ++k) params->inputs[k] = AddressOf(inputs[k]);
  return absl::OkStatus();
}

int64_t FillBlocks(const FillParams& params) {
  // One more piece if the data does not begin at a multiple of 16 bytes.
  const auto bytes = static_cast<int64_t>(params.count * params.element_bytes);
  return CeilDiv(bytes + 15, 16 * kThreads);
}

int64_t CastBlocks(const CastParams& params) {
  const auto count = static_cast<int64_t>(params.count);
  if (params.access != kAccessVectors) return CeilDiv(count, kThreads);
  const int wider = std::max(BitWidth(static_cast<DType>(params.src_dtype)),
                             BitWidth(static_cast<DType>(params.dst_dtype)));
  // A thread casts 4 vectors, or 16 elements if that is less.
  const int64_t per_thread = std::min(4 * (128 / wider), 16);
  return CeilDiv(count, per_thread * kThreads);
}

int64_t ReduceBlocks(const ReduceParams& params) {
  const auto count = static_cast<int64_t>(params.base.count);
  if (params.base.access != kAccessVectors) return CeilDiv(count, kThreads);
  const int64_t bytes = BitWidth(static_cast<DType>(params.base.dtype)) / 8;
  return CeilDiv(count * bytes, 16 * kThreads);
}

}  // namespace meshift::cuda
