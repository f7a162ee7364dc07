#include "comm/kernels/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/kernels/small_float.h"
#include "placement/dtype.h"
#include "placement/op_table.h"
#include "placement/placement.h"

namespace meshift {
namespace {

using Inputs = absl::Span<const void* const>;

// Small enough that accumulators stay in the first-level cache.
constexpr int64_t kBlock = 1024;

// Memory is read and written through memcpy, as buffers have no type and need no alignment.
// (Signed arithmetic: else gcc does not see that addresses advance evenly, and vectorises nothing.)
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

// A codec: the stored type, the type that is computed in, and the ways between.

template <typename Format>
struct SmallCodec {
  using Stored = typename Format::Bits;
  using Acc = float;
  static constexpr Stored kSignBit = Format::kSignBit;
  static constexpr Stored kMaxFinite = Format::kMaxFinite;
  static Acc Decode(Stored bits) { return Format::ToFloat(bits); }
  static Stored Encode(Acc value) { return Format::FromFloat(value); }
};

template <typename T, typename BitsT, BitsT kInfinity, BitsT kNaN>
struct WideCodec {
  using Stored = BitsT;
  using Acc = T;
  static constexpr Stored kSignBit = static_cast<Stored>(1) << (8 * sizeof(Stored) - 1);
  static constexpr Stored kMaxFinite = kInfinity - 1;
  static Acc Decode(Stored bits) { return std::bit_cast<T>(bits); }
  static Stored Encode(Acc value) {
    return std::isnan(value) ? kNaN : std::bit_cast<Stored>(value);
  }
};
using F32Codec = WideCodec<float, uint32_t, 0x7f800000, 0x7fc00000>;
using F64Codec = WideCodec<double, uint64_t, 0x7ff0000000000000, 0x7ff8000000000000>;

struct Add {
  template <typename T>
  static T Combine(T a, T b) {
    return a + b;
  }
};

struct Multiply {
  template <typename T>
  static T Combine(T a, T b) {
    return a * b;
  }
};

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

// acc[i] = combine(acc[i], decode(in[i])). Not inlined: gcc would join two of these loops into one,
// which it then does not vectorise.
template <typename Stored, typename Acc, typename Decode, typename Combine>
[[gnu::noinline]] void CombineWith(const char* in, int64_t count, Acc* __restrict acc,
                                   Decode decode, Combine combine) {
  for (int64_t i = 0; i < count; ++i) {
    acc[i] = static_cast<Acc>(combine(acc[i], decode(Load<Stored>(in, i))));
  }
}

// acc = the combination of `inputs`, in order.
template <typename C, typename Op>
void Accumulate(Inputs inputs, int64_t first, int64_t count, typename C::Acc* __restrict acc) {
  using Acc = typename C::Acc;
  using Stored = typename C::Stored;
  const char* in = At<Stored>(inputs[0], first);
  for (int64_t i = 0; i < count; ++i) acc[i] = C::Decode(Load<Stored>(in, i));
  for (size_t k = 1; k < inputs.size(); ++k) {
    CombineWith<Stored>(
        At<Stored>(inputs[k], first), count, acc, [](Stored bits) { return C::Decode(bits); },
        [](Acc a, Acc b) { return Op::Combine(a, b); });
  }
}

// Sums, averages and products of floats; complex sums and averages as pairs of them.
template <typename C, typename Op>
void ReduceFloats(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
  using Acc = typename C::Acc;
  using Stored = typename C::Stored;
  alignas(64) Acc total[kBlock];
  alignas(64) Acc part[kBlock];
  alignas(64) Stored block[kBlock];
  const auto divisor = static_cast<Acc>(spec.reduction.divisor);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    if (spec.runs.size() <= 1) {
      Accumulate<C, Op>(inputs, first + begin, n, total);
    } else {
      int64_t done = 0;
      for (const int run : spec.runs) {
        Accumulate<C, Op>(inputs.subspan(done, run), first + begin, n, part);
        for (int64_t i = 0; i < n; ++i) part[i] = C::Decode(C::Encode(part[i]));
        if (done == 0) {
          for (int64_t i = 0; i < n; ++i) total[i] = part[i];
        } else {
          for (int64_t i = 0; i < n; ++i) total[i] = Op::Combine(total[i], part[i]);
        }
        done += run;
      }
    }
    if (spec.reduction.op == ReduceOp::kAvg) {
      for (int64_t i = 0; i < n; ++i) total[i] /= divisor;
    }
    for (int64_t i = 0; i < n; ++i) block[i] = C::Encode(total[i]);
    if (spec.shift > 0) ShiftBlock<C>(spec.shift, n, block);
    std::memcpy(static_cast<Stored*>(out) + begin, block, n * sizeof(Stored));
  }
}

// Products of complex numbers.
template <typename C>
void MultiplyComplex(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count,
                     void* out) {
  using Acc = typename C::Acc;
  using Stored = typename C::Stored;
  struct Number {
    Acc re;
    Acc im;
  };
  const auto times = [](Number a, Number b) {
    return Number{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  };
  absl::InlinedVector<int, 8> runs = spec.runs;
  if (runs.empty()) runs.push_back(static_cast<int>(inputs.size()));
  for (int64_t i = 0; i < count; ++i) {
    Number total = {1, 0};
    int64_t done = 0;
    for (const int run : runs) {
      Number part = Load<Number>(At<Number>(inputs[done], first), i);
      for (int64_t k = done + 1; k < done + run; ++k) {
        part = times(part, Load<Number>(At<Number>(inputs[k], first), i));
      }
      total = done == 0 ? part : times(total, part);
      done += run;
    }
    Stored result[2] = {C::Encode(total.re), C::Encode(total.im)};
    if (spec.shift > 0) ShiftBlock<C>(spec.shift, 2, result);
    std::memcpy(static_cast<char*>(out) + i * sizeof(result), result, sizeof(result));
  }
}

// Exact operations: any order will do. `decode` and `encode` go to and from the type computed in.
template <typename Stored, typename Decode, typename Combine, typename Encode>
void ReduceExact(Inputs inputs, int64_t first, int64_t count, void* out, Decode decode,
                 Combine combine, Encode encode) {
  using Acc = decltype(decode(Stored{}));
  alignas(64) Acc total[kBlock];
  alignas(64) Stored block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const char* in = At<Stored>(inputs[0], first + begin);
    for (int64_t i = 0; i < n; ++i) total[i] = decode(Load<Stored>(in, i));
    for (size_t k = 1; k < inputs.size(); ++k) {
      CombineWith<Stored>(At<Stored>(inputs[k], first + begin), n, total, decode, combine);
    }
    for (int64_t i = 0; i < n; ++i) block[i] = encode(total[i]);
    std::memcpy(static_cast<char*>(out) + begin * sizeof(Stored), block, n * sizeof(Stored));
  }
}

// Minimum and maximum of floats, as integers that are ordered as the floats are, with NaN as the
// integer that wins.
template <typename C, typename Key, bool kMin>
void ReduceMinMax(Inputs inputs, int64_t first, int64_t count, void* out) {
  using Stored = typename C::Stored;
  constexpr Stored kMagnitude = C::kSignBit - 1;
  // All ones behind the sign are NaN in every format, so these are no float's key.
  constexpr Key kWinner = kMin ? static_cast<Key>(C::kSignBit) : static_cast<Key>(kMagnitude);
  constexpr bool kHasInf = !std::is_same_v<C, SmallCodec<F8E4M3>>;
  constexpr Stored kLargest = kHasInf ? C::kMaxFinite + 1 : C::kMaxFinite;
  const Stored nan = C::Encode(C::Decode(kMagnitude));
  const auto decode = [](Stored bits) {
    const auto sign_mask = static_cast<Stored>(static_cast<Key>(bits) >> (8 * sizeof(Key) - 1));
    const auto key = static_cast<Key>(bits ^ (sign_mask & kMagnitude));
    const auto magnitude = static_cast<Key>(bits & kMagnitude);
    return magnitude > static_cast<Key>(kLargest) ? kWinner : key;
  };
  const auto combine = [](Key a, Key b) { return kMin ? (b < a ? b : a) : (a < b ? b : a); };
  const auto encode = [nan](Key key) {
    const auto sign_mask = static_cast<Stored>(key >> (8 * sizeof(Key) - 1));
    const auto bits = static_cast<Stored>(static_cast<Stored>(key) ^ (sign_mask & kMagnitude));
    return key == kWinner ? nan : bits;
  };
  ReduceExact<Stored>(inputs, first, count, out, decode, combine, encode);
}

template <typename C, typename Key>
void ReduceFloat(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
  switch (spec.reduction.op) {
    case ReduceOp::kProduct:
      return ReduceFloats<C, Multiply>(spec, inputs, first, count, out);
    case ReduceOp::kMin:
      return ReduceMinMax<C, Key, true>(inputs, first, count, out);
    case ReduceOp::kMax:
      return ReduceMinMax<C, Key, false>(inputs, first, count, out);
    default:
      return ReduceFloats<C, Add>(spec, inputs, first, count, out);
  }
}

template <typename C>
void ReduceComplex(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
  if (spec.reduction.op == ReduceOp::kProduct) {
    return MultiplyComplex<C>(spec, inputs, first, count, out);
  }
  ReduceFloats<C, Add>(spec, inputs, 2 * first, 2 * count, out);
}

template <typename T>
void ReduceInteger(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
  using U = std::make_unsigned_t<T>;
  // Wide enough that small unsigned types are not promoted to int, which would overflow.
  using W = std::conditional_t<sizeof(U) < 4, uint32_t, U>;
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  const auto same = [](T x) { return x; };
  const auto add = [](T a, T b) {
    return static_cast<T>(W{static_cast<U>(a)} + static_cast<U>(b));
  };
  const auto run = [&](auto combine) {
    ReduceExact<T>(inputs, first, count, out, same, combine, same);
  };
  switch (spec.reduction.op) {
    case ReduceOp::kSum:
      return run(add);
    case ReduceOp::kAvg: {
      const auto divisor = static_cast<Wide>(spec.reduction.divisor);
      return ReduceExact<T>(inputs, first, count, out, same, add,
                            [divisor](T x) { return static_cast<T>(Wide{x} / divisor); });
    }
    case ReduceOp::kProduct:
      return run([](T a, T b) { return static_cast<T>(W{static_cast<U>(a)} * static_cast<U>(b)); });
    case ReduceOp::kMin:
      return run([](T a, T b) { return b < a ? b : a; });
    case ReduceOp::kMax:
      return run([](T a, T b) { return a < b ? b : a; });
    case ReduceOp::kAnd:
      return run([](T a, T b) { return static_cast<T>(a & b); });
    case ReduceOp::kOr:
      return run([](T a, T b) { return static_cast<T>(a | b); });
    case ReduceOp::kXor:
      return run([](T a, T b) { return static_cast<T>(a ^ b); });
  }
}

}  // namespace

absl::Status CheckReduction(DType dtype, const Reduction& reduction) {
  if (absl::Status status = CheckReduce(reduction.op, dtype); !status.ok()) return status;
  if (reduction.op == ReduceOp::kAvg && reduction.divisor < 1) {
    return InvalidArgument("divisor {} of an average is not positive", reduction.divisor);
  }
  return absl::OkStatus();
}

void Reduce(const ReduceSpec& spec, Inputs inputs, int64_t first, int64_t count, void* out) {
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
      return ReduceFloat<SmallCodec<F16>, int16_t>(spec, inputs, first, count, out);
    case DType::kBF16:
      return ReduceFloat<SmallCodec<BF16>, int16_t>(spec, inputs, first, count, out);
    case DType::kF32:
      return ReduceFloat<F32Codec, int32_t>(spec, inputs, first, count, out);
    case DType::kF64:
      return ReduceFloat<F64Codec, int64_t>(spec, inputs, first, count, out);
    case DType::kF8E4M3:
      return ReduceFloat<SmallCodec<F8E4M3>, int8_t>(spec, inputs, first, count, out);
    case DType::kF8E5M2:
      return ReduceFloat<SmallCodec<F8E5M2>, int8_t>(spec, inputs, first, count, out);
    case DType::kC64:
      return ReduceComplex<F32Codec>(spec, inputs, first, count, out);
    case DType::kC128:
      return ReduceComplex<F64Codec>(spec, inputs, first, count, out);
    case DType::kF4E2M1:
      return;  // CheckReduction refuses it
  }
}

}  // namespace meshift
