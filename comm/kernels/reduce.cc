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
// Results that are computed before they are written; see Encode().
constexpr int64_t kPiece = 64;

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
void ShiftAll(int64_t shift, int64_t count, char* inout) {
  using Stored = typename C::Stored;
  constexpr Stored kMagnitude = C::kSignBit - 1;
  const auto distance = static_cast<Stored>(1 + (shift - 1) % (C::kMaxFinite / 4));
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = Load<Stored>(inout, i);
    const Stored magnitude = bits & kMagnitude;
    const Stored moved = magnitude <= C::kMaxFinite - distance
                             ? static_cast<Stored>(magnitude + distance)
                             : static_cast<Stored>(magnitude - distance);
    const auto result = static_cast<Stored>((bits & C::kSignBit) | moved);
    const Stored shifted = magnitude <= C::kMaxFinite ? result : bits;
    std::memcpy(inout + i * static_cast<int64_t>(sizeof(Stored)), &shifted, sizeof(Stored));
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

// out[i] = acc(i), encoded. `out` may be the memory that acc(i) reads for the same i: a short piece
// of results is computed before it is written, so that the loop can be vectorised.
template <typename Reducer, typename Accumulated>
void Encode(Reducer reducer, Accumulated acc, int64_t count, char* out) {
  using Stored = typename Reducer::Stored;
  RunAtBestSimdLevel([=](auto) MESHIFT_INLINE {
    alignas(64) Stored piece[kPiece];
    int64_t begin = 0;
    for (; begin + kPiece <= count; begin += kPiece) {
      for (int64_t i = 0; i < kPiece; ++i) piece[i] = reducer.Encode(acc(begin + i));
      std::memcpy(out + begin * static_cast<int64_t>(sizeof(Stored)), piece, sizeof(piece));
    }
    const int64_t rest = count - begin;
    for (int64_t i = 0; i < rest; ++i) piece[i] = reducer.Encode(acc(begin + i));
    std::memcpy(out + begin * static_cast<int64_t>(sizeof(Stored)), piece, rest * sizeof(Stored));
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

// All inputs in order. The last input is combined as the result is encoded: a reduction of two
// reads and writes memory once.
template <typename Reducer>
void ReduceInOrder(Reducer reducer, Inputs inputs, int64_t first, int64_t count, void* out) {
  using Stored = typename Reducer::Stored;
  using Acc = typename Reducer::Acc;
  char* const result = static_cast<char*>(out);
  const char* const front = At<Stored>(inputs.front(), first);
  const char* const back = At<Stored>(inputs.back(), first);
  if (inputs.size() == 1) {
    const auto only = [=](int64_t i)
                          MESHIFT_INLINE { return reducer.Decode(Load<Stored>(front, i)); };
    return Encode(reducer, only, count, result);
  }
  if (inputs.size() == 2) {
    const auto both = [=](int64_t i) MESHIFT_INLINE {
      return reducer.Combine(reducer.Decode(Load<Stored>(front, i)),
                             reducer.Decode(Load<Stored>(back, i)));
    };
    return Encode(reducer, both, count, result);
  }
  alignas(64) Acc block[kBlock];
  const Acc* const total = block;
  const Inputs others = inputs.subspan(0, inputs.size() - 1);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    Accumulate(reducer, others, first + begin, n, block);
    const char* const last = At<Stored>(back, begin);
    const auto all = [=](int64_t i) MESHIFT_INLINE {
      return reducer.Combine(total[i], reducer.Decode(Load<Stored>(last, i)));
    };
    Encode(reducer, all, n, result + begin * static_cast<int64_t>(sizeof(Stored)));
  }
}

// The runs of spec.runs, whose results `part_reducer` rounds, or the blocks of reduction.block.
template <typename Reducer, typename Part>
void ReduceInParts(const ReduceSpec& spec, Reducer reducer, Part part_reducer, Inputs inputs,
                   int64_t first, int64_t count, void* out) {
  using Stored = typename Reducer::Stored;
  using Acc = typename Reducer::Acc;
  const bool has_runs = spec.runs.size() > 1;
  alignas(64) Acc block[kBlock];
  alignas(64) Acc part[kBlock];
  const Acc* const total = block;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    for (size_t done = 0, run = 0; done < inputs.size(); ++run) {
      const Inputs next = inputs.subspan(done, has_runs ? spec.runs[run] : spec.reduction.block);
      Accumulate(reducer, next, first + begin, n, part);
      for (int64_t i = 0; i < n; ++i) {
        const Acc value = has_runs ? reducer.Decode(part_reducer.Encode(part[i])) : part[i];
        block[i] = done == 0 ? value : reducer.Combine(block[i], value);
      }
      done += next.size();
    }
    const auto all = [=](int64_t i) MESHIFT_INLINE { return total[i]; };
    Encode(reducer, all, n, static_cast<char*>(out) + begin * static_cast<int64_t>(sizeof(Stored)));
  }
}

// Operations that round: sums, averages and products of floats, and of complex numbers (sums and
// averages as pairs of floats).
template <typename C, typename Reducer, typename Part>
void ReduceRounding(const ReduceSpec& spec, Reducer reducer, Part part_reducer, Inputs inputs,
                    int64_t first, int64_t count, void* out) {
  if (spec.runs.size() > 1 || spec.reduction.block > 0) {
    ReduceInParts(spec, reducer, part_reducer, inputs, first, count, out);
  } else {
    ReduceInOrder(reducer, inputs, first, count, out);
  }
  // NOLINTNEXTLINE(bugprone-sizeof-expression): it is 2 for complex numbers, else 1.
  constexpr int64_t kParts = sizeof(typename Reducer::Stored) / sizeof(typename C::Stored);
  if (spec.shift > 0) ShiftAll<C>(spec.shift, count * kParts, static_cast<char*>(out));
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
      return ReduceInOrder(FloatExtreme<C, true>(), inputs, first, count, out);
    case ReduceOp::kMax:
      return ReduceInOrder(FloatExtreme<C, false>(), inputs, first, count, out);
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
  const auto run = [&](auto reducer) { ReduceInOrder(reducer, inputs, first, count, out); };
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
  if (out == nullptr) {
    return InvalidArgument("the buffer to reduce into is null, but count is {}", count);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) {
      return InvalidArgument("input {} to reduce is null, but count is {}", i, count);
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
