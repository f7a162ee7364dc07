#include "comm/kernels/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/kernels/codec.h"
#include "comm/kernels/codes.h"
#include "comm/kernels/float_environment.h"
#include "comm/kernels/reducers.h"
#include "comm/kernels/simd.h"
#include "comm/kernels/small_float.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "placement/op_table.h"

namespace meshift {
namespace {

static_assert(static_cast<int>(ReduceOp::kSum) == kCodeSum &&
              static_cast<int>(ReduceOp::kAvg) == kCodeAvg &&
              static_cast<int>(ReduceOp::kMin) == kCodeMin &&
              static_cast<int>(ReduceOp::kMax) == kCodeMax &&
              static_cast<int>(ReduceOp::kProduct) == kCodeProduct &&
              static_cast<int>(ReduceOp::kAnd) == kCodeAnd &&
              static_cast<int>(ReduceOp::kOr) == kCodeOr &&
              static_cast<int>(ReduceOp::kXor) == kCodeXor);

using Inputs = absl::Span<const void* const>;

// Elements per block: f32 accumulators stay in the first-level cache, and inputs are read in pieces
// long enough for hardware prefetching.
constexpr int64_t kBlock = 4096;

// Reads and writes memory through memcpy, since buffers are untyped and may be unaligned. The index
// is signed: with an unsigned one gcc does not vectorise the loops.
template <typename T>
T Load(const char* base, int64_t i) {
  T value;
  std::memcpy(&value, base + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
const char* At(const void* base, int64_t i) {
  return static_cast<const char*>(base) + i * static_cast<int64_t>(sizeof(T));
}

// Applies ReduceSpec::shift.
template <typename C>
void ShiftBlock(int64_t shift, int64_t count, typename C::Stored* block) {
  using Stored = typename C::Stored;
  constexpr Stored kMagnitude = C::kSignBit - 1;
  const auto distance = static_cast<Stored>(1 + (shift - 1) % (C::kMaxFinite / 4));
  for (int64_t i = 0; i < count; ++i) {
    const Stored magnitude = block[i] & kMagnitude;
    const Stored moved = magnitude <= C::kMaxFinite - distance
                             ? static_cast<Stored>(magnitude + distance)
                             : static_cast<Stored>(magnitude - distance);
    const auto result = static_cast<Stored>((block[i] & C::kSignBit) | moved);
    block[i] = magnitude <= C::kMaxFinite ? result : block[i];
  }
}

template <typename Reducer>
void DecodeBlock(Reducer reducer, const char* in, int64_t count, typename Reducer::Acc* out) {
  RunAtBestSimdLevel([=](auto) MESHIFT_INLINE {
    typename Reducer::Acc* __restrict acc = out;
    for (int64_t i = 0; i < count; ++i) {
      acc[i] = reducer.Decode(Load<typename Reducer::Stored>(in, i));
    }
  });
}

template <typename Reducer>
void CombineBlock(Reducer reducer, const char* in, int64_t count, typename Reducer::Acc* inout) {
  RunAtBestSimdLevel([=](auto) MESHIFT_INLINE {
    typename Reducer::Acc* __restrict acc = inout;
    for (int64_t i = 0; i < count; ++i) {
      acc[i] = reducer.Combine(acc[i], reducer.Decode(Load<typename Reducer::Stored>(in, i)));
    }
  });
}

template <typename Reducer>
void EncodeBlock(Reducer reducer, const typename Reducer::Acc* in, int64_t count,
                 typename Reducer::Stored* out) {
  RunAtBestSimdLevel([=](auto) MESHIFT_INLINE {
    const typename Reducer::Acc* __restrict acc = in;
    typename Reducer::Stored* __restrict stored = out;
    for (int64_t i = 0; i < count; ++i) stored[i] = reducer.Encode(acc[i]);
  });
}

// acc = the combination of elements [first, first + count) of `inputs`, in order.
template <typename Reducer>
void Accumulate(Reducer reducer, Inputs inputs, int64_t first, int64_t count,
                typename Reducer::Acc* acc) {
  using Stored = typename Reducer::Stored;
  DecodeBlock(reducer, At<Stored>(inputs[0], first), count, acc);
  for (size_t k = 1; k < inputs.size(); ++k) {
    CombineBlock(reducer, At<Stored>(inputs[k], first), count, acc);
  }
}

// For each block of elements: `accumulate` combines the inputs, the results are encoded, `finish`
// may change them, and they are written to `out`.
template <typename Reducer, typename AccumulateBlock, typename FinishBlock>
void ForBlocks(Reducer reducer, int64_t count, void* out, AccumulateBlock accumulate,
               FinishBlock finish) {
  using Stored = typename Reducer::Stored;
  alignas(64) typename Reducer::Acc total[kBlock];
  alignas(64) Stored block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    accumulate(begin, n, total);
    EncodeBlock(reducer, total, n, block);
    finish(block, n);
    std::memcpy(static_cast<Stored*>(out) + begin, block, n * sizeof(Stored));
  }
}

// Exact operations, whose results do not depend on the order.
template <typename Reducer>
void ReduceExact(Reducer reducer, Inputs inputs, int64_t first, int64_t count, void* out) {
  ForBlocks(
      reducer, count, out,
      [&](int64_t begin, int64_t n, typename Reducer::Acc* total) {
        Accumulate(reducer, inputs, first + begin, n, total);
      },
      [](typename Reducer::Stored*, int64_t) {});
}

// Operations that round: sums, averages and products of floats, and of complex numbers (sums and
// averages as pairs of floats). `part_reducer` rounds the results of spec.runs.
template <typename C, typename Reducer, typename Part>
void ReduceRounding(const ReduceSpec& spec, Reducer reducer, Part part_reducer, Inputs inputs,
                    int64_t first, int64_t count, void* out) {
  using Acc = typename Reducer::Acc;
  using Stored = typename Reducer::Stored;
  const auto accumulate = [&](int64_t begin, int64_t n, Acc* total) {
    const size_t block =
        spec.reduction.block > 0 ? static_cast<size_t>(spec.reduction.block) : inputs.size();
    alignas(64) Acc part[kBlock];
    if (spec.runs.size() <= 1) {
      Accumulate(reducer, inputs.subspan(0, block), first + begin, n, total);
      for (size_t b = block; b < inputs.size();) {
        const Inputs next = inputs.subspan(b, block);
        Accumulate(reducer, next, first + begin, n, part);
        for (int64_t i = 0; i < n; ++i) total[i] = reducer.Combine(total[i], part[i]);
        b += next.size();
      }
      return;
    }
    int64_t done = 0;
    for (const int run : spec.runs) {
      Accumulate(reducer, inputs.subspan(done, run), first + begin, n, part);
      for (int64_t i = 0; i < n; ++i) part[i] = reducer.Decode(part_reducer.Encode(part[i]));
      if (done == 0) {
        for (int64_t i = 0; i < n; ++i) total[i] = part[i];
      } else {
        for (int64_t i = 0; i < n; ++i) total[i] = reducer.Combine(total[i], part[i]);
      }
      done += run;
    }
  };
  const auto finish = [&](Stored* block, int64_t n) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): it is 2 for complex numbers, else 1.
    constexpr int64_t kParts = sizeof(Stored) / sizeof(typename C::Stored);
    if (spec.shift > 0) {
      ShiftBlock<C>(spec.shift, n * kParts, reinterpret_cast<typename C::Stored*>(block));
    }
  };
  ForBlocks(reducer, count, out, accumulate, finish);
}

template <typename C>
void SumFloats(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
  const FloatReducer<C, Add> sum;
  if (spec.reduction.op == ReduceOp::kAvg) {
    const FloatAverager<C> average(spec.reduction.divisor);
    return ReduceRounding<C>(spec, average, sum, inputs, first, count, out);
  }
  ReduceRounding<C>(spec, sum, sum, inputs, first, count, out);
}

template <typename C>
void ReduceFloat(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
  const FloatReducer<C, Multiply> product;
  switch (spec.reduction.op) {
    case ReduceOp::kProduct:
      return ReduceRounding<C>(spec, product, product, inputs, first, count, out);
    case ReduceOp::kMin:
      return ReduceExact(FloatExtreme<C, true>(), inputs, first, count, out);
    case ReduceOp::kMax:
      return ReduceExact(FloatExtreme<C, false>(), inputs, first, count, out);
    default:
      return SumFloats<C>(spec, inputs, first, count, out);
  }
}

template <typename C>
void ReduceComplex(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
  const ComplexMultiplier<C> product;
  if (spec.reduction.op == ReduceOp::kProduct) {
    return ReduceRounding<C>(spec, product, product, inputs, first, count, out);
  }
  SumFloats<C>(spec, inputs, 2 * first, 2 * count, out);
}

template <typename T>
void ReduceInteger(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
  const auto run = [&](auto reducer) { ReduceExact(reducer, inputs, first, count, out); };
  switch (spec.reduction.op) {
    case ReduceOp::kSum:
      return run(IntReducer<T, kCodeSum>());
    case ReduceOp::kAvg:
      return run(IntAverager<T>(spec.reduction.divisor));
    case ReduceOp::kProduct:
      return run(IntReducer<T, kCodeProduct>());
    case ReduceOp::kMin:
      return run(IntReducer<T, kCodeMin>());
    case ReduceOp::kMax:
      return run(IntReducer<T, kCodeMax>());
    case ReduceOp::kAnd:
      return run(IntReducer<T, kCodeAnd>());
    case ReduceOp::kOr:
      return run(IntReducer<T, kCodeOr>());
    case ReduceOp::kXor:
      return run(IntReducer<T, kCodeXor>());
  }
}

}  // namespace

absl::Status CheckReduction(DType dtype, const Reduction& reduction) {
  if (absl::Status status = CheckReduce(reduction.op, dtype); !status.ok()) return status;
  if (reduction.op == ReduceOp::kAvg && reduction.divisor < 1) {
    return InvalidArgument("divisor {} of an average is not positive", reduction.divisor);
  }
  if (reduction.block < 0) {
    return InvalidArgument("a block of {} inputs is negative", reduction.block);
  }
  return absl::OkStatus();
}

absl::Status CheckReduceInOrder(Inputs inputs, const void* out, int64_t count, DType dtype,
                                const Reduction& reduction) {
  if (absl::Status status = CheckReduction(dtype, reduction); !status.ok()) return status;
  if (inputs.empty()) return InvalidArgument("a reduction has no inputs");
  if (count < 0) return InvalidArgument("a count of {} to reduce is negative", count);
  if (count == 0) return absl::OkStatus();
  if (out == nullptr)
    return InvalidArgument("the output of a reduction is null, but the count is {}", count);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) {
      return InvalidArgument("input {} of a reduction is null, but the count is {}", i, count);
    }
  }
  return absl::OkStatus();
}

void Reduce(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
  const DefaultFloatMode mode;
  switch (spec.dtype) {
    case DType::kBool:
    case DType::kU8:
      return ReduceInteger<uint8_t>(spec, inputs, first, count, out);
    case DType::kI8:
      return ReduceInteger<int8_t>(spec, inputs, first, count, out);
    case DType::kI16:
      return ReduceInteger<int16_t>(spec, inputs, first, count, out);
    case DType::kI32:
      return ReduceInteger<int32_t>(spec, inputs, first, count, out);
    case DType::kI64:
      return ReduceInteger<int64_t>(spec, inputs, first, count, out);
    case DType::kU16:
      return ReduceInteger<uint16_t>(spec, inputs, first, count, out);
    case DType::kU32:
      return ReduceInteger<uint32_t>(spec, inputs, first, count, out);
    case DType::kU64:
      return ReduceInteger<uint64_t>(spec, inputs, first, count, out);
    case DType::kF16:
      return ReduceFloat<SmallCodec<F16>>(spec, inputs, first, count, out);
    case DType::kBF16:
      return ReduceFloat<SmallCodec<BF16>>(spec, inputs, first, count, out);
    case DType::kF32:
      return ReduceFloat<F32Codec>(spec, inputs, first, count, out);
    case DType::kF64:
      return ReduceFloat<F64Codec>(spec, inputs, first, count, out);
    case DType::kF8E4M3:
      return ReduceFloat<SmallCodec<F8E4M3>>(spec, inputs, first, count, out);
    case DType::kF8E5M2:
      return ReduceFloat<SmallCodec<F8E5M2>>(spec, inputs, first, count, out);
    case DType::kC64:
      return ReduceComplex<F32Codec>(spec, inputs, first, count, out);
    case DType::kC128:
      return ReduceComplex<F64Codec>(spec, inputs, first, count, out);
    case DType::kF4E2M1:
      return;  // CheckReduction refuses it
  }
}

}  // namespace meshift
