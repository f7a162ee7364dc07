// Work on elements one behind the other: the bodies of the kernels that fill, cast and reduce
// (kernel_params.h). The arithmetic is that of comm/kernels/.
#ifndef MESHIFT_COMM_CUDA_ELEMENT_BODIES_H_
#define MESHIFT_COMM_CUDA_ELEMENT_BODIES_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "comm/cuda/body.h"
#include "comm/cuda/kernel_params.h"
#include "comm/kernels/codec.h"
#include "comm/kernels/codes.h"
#include "comm/kernels/host_device.h"
#include "comm/kernels/reducers.h"

namespace meshift::cuda {

template <typename T>
struct BytesOf {
  uint8_t bytes[sizeof(T)];
};

// The element at an address that need not be a multiple of its size.
template <typename T>
MESHIFT_HOST_DEVICE T LoadElement(uint64_t address, bool by_bytes) {
  if (!by_bytes) return *At<const T>(address);
  BytesOf<T> bytes;
  for (uint64_t i = 0; i < sizeof(T); ++i) bytes.bytes[i] = *At<const uint8_t>(address + i);
  return std::bit_cast<T>(bytes);
}
template <typename T>
MESHIFT_HOST_DEVICE void StoreElement(uint64_t address, bool by_bytes, T value) {
  if (!by_bytes) {
    *At<T>(address) = value;
    return;
  }
  const auto bytes = std::bit_cast<BytesOf<T>>(value);
  for (uint64_t i = 0; i < sizeof(T); ++i) *At<uint8_t>(address + i) = bytes.bytes[i];
}

// The first number of this thread, and the distance to its next.
MESHIFT_HOST_DEVICE inline uint64_t FirstOf(Place place) {
  return static_cast<uint64_t>(place.block) * kThreads + place.thread;
}
MESHIFT_HOST_DEVICE inline uint64_t StepOf(Place place) {
  return static_cast<uint64_t>(place.blocks) * kThreads;
}

MESHIFT_HOST_DEVICE inline void FillBody(const FillParams& params, Place place) {
  const uint64_t end = params.data + params.count * params.element_bytes;
  const uint64_t mask = params.element_bytes - 1;
  // 16 bytes from a multiple of 16 on look the same everywhere.
  Vector<uint8_t, 16> pattern;
  MESHIFT_UNROLL
  for (uint64_t i = 0; i < 16; ++i) pattern.values[i] = params.element[(i - params.data) & mask];
  const uint64_t begin = params.data & ~uint64_t{15};
  for (uint64_t n = FirstOf(place); begin + 16 * n < end; n += StepOf(place)) {
    const uint64_t address = begin + 16 * n;
    if (address >= params.data && address + 16 <= end) {
      *At<Vector<uint8_t, 16>>(address) = pattern;
      continue;
    }
    for (uint64_t i = 0; i < 16; ++i) {
      const bool inside = address + i >= params.data && address + i < end;
      if (inside) *At<uint8_t>(address + i) = params.element[(address + i - params.data) & mask];
    }
  }
}

// How one element is cast.
template <typename From, typename To>
struct RealCast {
  using In = typename From::Stored;
  using Out = typename To::Stored;
  MESHIFT_HOST_DEVICE static Out Of(In bits) { return To::Encode(From::Decode(bits)); }
};
template <typename From, typename To>
struct ComplexCast {
  using In = typename From::Stored;
  using Out = ComplexNumber<typename To::Stored>;
  MESHIFT_HOST_DEVICE static Out Of(In bits) { return {To::Encode(From::Decode(bits)), 0}; }
};

template <typename Conversion>
MESHIFT_HOST_DEVICE void CastElements(const CastParams& params, uint64_t count, Place place) {
  using In = typename Conversion::In;
  using Out = typename Conversion::Out;
  uint64_t done = 0;
  if (params.access == kAccessVectors) {
    // The wider side moves 16 bytes at a time; up to four of these per thread are under way.
    constexpr int kLanes = 16 / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));
    constexpr int kBatch = kLanes <= 4 ? 4 : 16 / kLanes;
    using InVector = Vector<In, kLanes>;
    using OutVector = Vector<Out, kLanes>;
    const uint64_t vectors = count / kLanes;
    done = vectors * kLanes;
    const uint64_t batch = kBatch * kThreads;
    for (uint64_t n = place.block * batch + place.thread; n < vectors; n += place.blocks * batch) {
      InVector in[kBatch];
      MESHIFT_UNROLL
      for (int j = 0; j < kBatch; ++j) {
        const uint64_t i = n + j * kThreads;
        if (i < vectors) in[j] = *At<const InVector>(params.src + i * sizeof(InVector));
      }
      MESHIFT_UNROLL
      for (int j = 0; j < kBatch; ++j) {
        const uint64_t i = n + j * kThreads;
        if (i >= vectors) break;
        OutVector out;
        MESHIFT_UNROLL
        for (int k = 0; k < kLanes; ++k) out.values[k] = Conversion::Of(in[j].values[k]);
        *At<OutVector>(params.dst + i * sizeof(OutVector)) = out;
      }
    }
  }
  const bool by_bytes = params.access == kAccessBytes;
  for (uint64_t i = done + FirstOf(place); i < count; i += StepOf(place)) {
    const In in = LoadElement<In>(params.src + i * sizeof(In), by_bytes);
    StoreElement(params.dst + i * sizeof(Out), by_bytes, Conversion::Of(in));
  }
}

template <int kFrom, int kTo>
MESHIFT_HOST_DEVICE void CastReal(const CastParams& params, Place place) {
  if constexpr (kFrom != kTo) {
    using Conversion = RealCast<decltype(CodecFor<kFrom>()), decltype(CodecFor<kTo>())>;
    CastElements<Conversion>(params, params.count, place);
  }
}

template <int kFrom, int kTo>
MESHIFT_HOST_DEVICE void CastToComplex(const CastParams& params, Place place) {
  using Part = typename decltype(CodecFor<kTo>())::Component;
  CastElements<ComplexCast<decltype(CodecFor<kFrom>()), Part>>(params, params.count, place);
}

// The kernel of a source dtype.
template <int kFrom>
MESHIFT_HOST_DEVICE void CastBody(const CastParams& params, Place place) {
  if constexpr (kFrom == kCodeC64 || kFrom == kCodeC128) {
    using From = typename decltype(CodecFor<kFrom>())::Component;
    using To = std::conditional_t<kFrom == kCodeC64, F64Codec, F32Codec>;
    CastElements<RealCast<From, To>>(params, 2 * params.count, place);
  } else {
    switch (params.dst_dtype) {
#define MESHIFT_CAST_TO(code) \
  case code:                  \
    return CastReal<kFrom, code>(params, place);
      MESHIFT_CAST_TO(kCodeBool)
      MESHIFT_CAST_TO(kCodeI8)
      MESHIFT_CAST_TO(kCodeI16)
      MESHIFT_CAST_TO(kCodeI32)
      MESHIFT_CAST_TO(kCodeI64)
      MESHIFT_CAST_TO(kCodeU8)
      MESHIFT_CAST_TO(kCodeU16)
      MESHIFT_CAST_TO(kCodeU32)
      MESHIFT_CAST_TO(kCodeU64)
      MESHIFT_CAST_TO(kCodeF16)
      MESHIFT_CAST_TO(kCodeBF16)
      MESHIFT_CAST_TO(kCodeF32)
      MESHIFT_CAST_TO(kCodeF64)
      MESHIFT_CAST_TO(kCodeF8E4M3)
      MESHIFT_CAST_TO(kCodeF8E5M2)
#undef MESHIFT_CAST_TO
      case kCodeC64:
        return CastToComplex<kFrom, kCodeC64>(params, place);
      case kCodeC128:
        return CastToComplex<kFrom, kCodeC128>(params, place);
      default:
        return;
    }
  }
}

MESHIFT_HOST_DEVICE inline uint64_t InputOf(const ReduceParams& params, uint32_t k) {
  return params.base.strided != 0 ? params.inputs[0] + k * params.base.input_stride
                                  : params.inputs[k];
}

// acc = the combination of what lies `offset` bytes behind the start of inputs k to end-1.
template <typename Reducer, int kLanes>
MESHIFT_HOST_DEVICE void CombineVectors(const ReduceParams& params, Reducer reducer,
                                        uint64_t offset, uint32_t k, uint32_t end,
                                        typename Reducer::Acc* acc) {
  using InVector = Vector<typename Reducer::Stored, kLanes>;
  constexpr uint32_t kBatch = 4;
  const InVector first = *At<const InVector>(InputOf(params, k) + offset);
  MESHIFT_UNROLL
  for (int i = 0; i < kLanes; ++i) acc[i] = reducer.Decode(first.values[i]);
  ++k;
  for (; k + kBatch <= end; k += kBatch) {
    InVector in[kBatch];
    MESHIFT_UNROLL
    for (uint32_t j = 0; j < kBatch; ++j) {
      in[j] = *At<const InVector>(InputOf(params, k + j) + offset);
    }
    MESHIFT_UNROLL
    for (uint32_t j = 0; j < kBatch; ++j) {
      MESHIFT_UNROLL
      for (int i = 0; i < kLanes; ++i) {
        acc[i] = reducer.Combine(acc[i], reducer.Decode(in[j].values[i]));
      }
    }
  }
  for (; k < end; ++k) {
    const InVector in = *At<const InVector>(InputOf(params, k) + offset);
    MESHIFT_UNROLL
    for (int i = 0; i < kLanes; ++i) {
      acc[i] = reducer.Combine(acc[i], reducer.Decode(in.values[i]));
    }
  }
}

// The input behind the block that begins with input k.
MESHIFT_HOST_DEVICE inline uint32_t EndOfBlock(const ReduceParams& params, uint32_t k) {
  const uint32_t left = params.base.num_inputs - k;
  return k + (left < params.base.block ? left : params.base.block);
}

// What lies `offset` bytes behind the start of inputs k to end-1, combined.
template <typename Reducer>
MESHIFT_HOST_DEVICE typename Reducer::Acc CombineOne(const ReduceParams& params, Reducer reducer,
                                                     uint64_t offset, uint32_t k, uint32_t end) {
  using Stored = typename Reducer::Stored;
  const bool by_bytes = params.base.access == kAccessBytes;
  auto acc = reducer.Decode(LoadElement<Stored>(InputOf(params, k) + offset, by_bytes));
  for (++k; k < end; ++k) {
    const auto in = LoadElement<Stored>(InputOf(params, k) + offset, by_bytes);
    acc = reducer.Combine(acc, reducer.Decode(in));
  }
  return acc;
}

template <typename Reducer>
MESHIFT_HOST_DEVICE void ReduceElements(const ReduceParams& params, Reducer reducer, uint64_t count,
                                        Place place) {
  using Stored = typename Reducer::Stored;
  using Acc = typename Reducer::Acc;
  const uint32_t num_inputs = params.base.num_inputs;
  const uint32_t first_end = EndOfBlock(params, 0);
  uint64_t done = 0;
  if (params.base.access == kAccessVectors) {
    constexpr int kLanes = 16 / sizeof(Stored);
    using OutVector = Vector<Stored, kLanes>;
    done = count / kLanes * kLanes;
    for (uint64_t n = FirstOf(place); n < count / kLanes; n += StepOf(place)) {
      Acc acc[kLanes];
      const uint64_t offset = n * sizeof(OutVector);
      CombineVectors<Reducer, kLanes>(params, reducer, offset, 0, first_end, acc);
      for (uint32_t k = first_end; k < num_inputs; k = EndOfBlock(params, k)) {
        Acc part[kLanes];
        CombineVectors<Reducer, kLanes>(params, reducer, offset, k, EndOfBlock(params, k), part);
        MESHIFT_UNROLL
        for (int i = 0; i < kLanes; ++i) acc[i] = reducer.Combine(acc[i], part[i]);
      }
      OutVector out;
      MESHIFT_UNROLL
      for (int i = 0; i < kLanes; ++i) out.values[i] = reducer.Encode(acc[i]);
      *At<OutVector>(params.base.out + n * sizeof(OutVector)) = out;
    }
  }
  const bool by_bytes = params.base.access == kAccessBytes;
  for (uint64_t n = done + FirstOf(place); n < count; n += StepOf(place)) {
    const uint64_t offset = n * sizeof(Stored);
    Acc acc = CombineOne(params, reducer, offset, 0, first_end);
    for (uint32_t k = first_end; k < num_inputs; k = EndOfBlock(params, k)) {
      acc = reducer.Combine(acc, CombineOne(params, reducer, offset, k, EndOfBlock(params, k)));
    }
    StoreElement(params.base.out + offset, by_bytes, reducer.Encode(acc));
  }
}

template <typename T>
MESHIFT_HOST_DEVICE void ReduceIntegers(const ReduceParams& params, Place place) {
  const uint64_t count = params.base.count;
  switch (params.base.op) {
    case kCodeSum:
      return ReduceElements(params, IntReducer<T, kCodeSum>(), count, place);
    case kCodeAvg:
      return ReduceElements(params, IntAverager<T>(params.base.divisor), count, place);
    case kCodeProduct:
      return ReduceElements(params, IntReducer<T, kCodeProduct>(), count, place);
    case kCodeMin:
      return ReduceElements(params, IntReducer<T, kCodeMin>(), count, place);
    case kCodeMax:
      return ReduceElements(params, IntReducer<T, kCodeMax>(), count, place);
    case kCodeAnd:
      return ReduceElements(params, IntReducer<T, kCodeAnd>(), count, place);
    case kCodeOr:
      return ReduceElements(params, IntReducer<T, kCodeOr>(), count, place);
    case kCodeXor:
      return ReduceElements(params, IntReducer<T, kCodeXor>(), count, place);
    default:
      return;
  }
}

// Sums and averages of `count` floats.
template <typename C>
MESHIFT_HOST_DEVICE void SumFloats(const ReduceParams& params, uint64_t count, Place place) {
  if (params.base.op == kCodeAvg) {
    return ReduceElements(params, FloatAverager<C>(params.base.divisor), count, place);
  }
  ReduceElements(params, FloatReducer<C, Add>(), count, place);
}

template <typename C>
MESHIFT_HOST_DEVICE void ReduceFloats(const ReduceParams& params, Place place) {
  const uint64_t count = params.base.count;
  switch (params.base.op) {
    case kCodeProduct:
      return ReduceElements(params, FloatReducer<C, Multiply>(), count, place);
    case kCodeMin:
      return ReduceElements(params, FloatExtreme<C, true>(), count, place);
    case kCodeMax:
      return ReduceElements(params, FloatExtreme<C, false>(), count, place);
    default:
      return SumFloats<C>(params, count, place);
  }
}

// The kernel of a dtype.
template <int kDType>
MESHIFT_HOST_DEVICE void ReduceBody(const ReduceParams& params, Place place) {
  using Codec = decltype(CodecFor<kDType>());
  if constexpr (kDType == kCodeC64 || kDType == kCodeC128) {
    using C = typename Codec::Component;
    if (params.base.op == kCodeProduct) {
      return ReduceElements(params, ComplexMultiplier<C>(), params.base.count, place);
    }
    SumFloats<C>(params, 2 * params.base.count, place);
  } else if constexpr (kDType >= kCodeI8 && kDType <= kCodeU64) {
    ReduceIntegers<typename Codec::Stored>(params, place);
  } else {
    ReduceFloats<Codec>(params, place);
  }
}

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_ELEMENT_BODIES_H_
