// The bodies of the CUDA kernels that fill, cast and reduce contiguous elements. kernel_params.h
// describes their parameters; element_launches.h makes and checks them, so the bodies check
// nothing. comm/kernels/ has the arithmetic. Compile with --fmad=false (CPU: -ffp-contract=off).
// Internal to comm/cuda.
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

// The bits of an element or of an access.
template <int kBytes>
struct BytesOf {
  uint8_t bytes[kBytes];
};
template <int kBytes>
struct alignas(kBytes) WordsOf {
  uint32_t words[kBytes / 4];
};

// How a loop accesses memory: vectors of kLanes elements, single elements, or bytes. A thread
// issues kBatch loads before it stores.
template <Access kAccessOf, int kLanesOf, int kBatchOf>
struct Accesses {
  static constexpr bool kVectors = kAccessOf == kAccessVectors;
  static constexpr bool kByBytes = kAccessOf == kAccessBytes;
  static constexpr int kLanes = kLanesOf;
  static constexpr int kBatch = kBatchOf;
};
template <int kLanes, int kBatch>
using VectorAccesses = Accesses<kAccessVectors, kLanes, kBatch>;
using ElementAccesses = Accesses<kAccessElements, 1, 4>;
using ByteAccesses = Accesses<kAccessBytes, 1, 1>;

// The type of one access. A vector that fills whole words is an array of 32-bit words, since nvcc
// would split a vector of small elements into a register per element.
template <typename A, typename T>
using PackedVector =
    std::conditional_t<sizeof(T) * A::kLanes % 4 == 0,
                       WordsOf<static_cast<int>(sizeof(T)) * A::kLanes>, Vector<T, A::kLanes>>;
template <typename A, typename T>
using Packed = std::conditional_t<A::kVectors, PackedVector<A, T>, T>;
template <typename A, typename T>
struct Elements {
  T values[A::kLanes];
};

template <typename A, typename T>
MESHIFT_HOST_DEVICE Packed<A, T> Load(uint64_t address) {
  if constexpr (A::kByBytes) {
    BytesOf<sizeof(T)> bytes;
    for (uint64_t i = 0; i < sizeof(T); ++i) bytes.bytes[i] = *At<const uint8_t>(address + i);
    return std::bit_cast<T>(bytes);
  } else {
    return *At<const Packed<A, T>>(address);
  }
}
template <typename P>
MESHIFT_HOST_DEVICE void StorePacked(uint64_t address, const P& packed) {
  *At<P>(address) = packed;
}
// One 16-byte store. Without it nvcc stores floats that were made from integers one by one.
MESHIFT_HOST_DEVICE inline void StorePacked(uint64_t address, const WordsOf<16>& packed) {
#ifdef __CUDA_ARCH__
  const uint32_t* w = packed.words;
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
#else
  *At<WordsOf<16>>(address) = packed;
#endif
}

template <typename A, typename T>
MESHIFT_HOST_DEVICE void Store(uint64_t address, const Elements<A, T>& elements) {
  if constexpr (A::kByBytes) {
    const auto bytes = std::bit_cast<BytesOf<sizeof(T)>>(elements);
    for (uint64_t i = 0; i < sizeof(T); ++i) *At<uint8_t>(address + i) = bytes.bytes[i];
  } else {
    StorePacked(address, std::bit_cast<Packed<A, T>>(elements));
  }
}

// The first index of this thread in a grid-stride loop, and the stride.
MESHIFT_HOST_DEVICE inline uint64_t FirstOf(ThreadPosition position) {
  return static_cast<uint64_t>(position.block) * kThreads + position.thread;
}
MESHIFT_HOST_DEVICE inline uint64_t StepOf(ThreadPosition position) {
  return static_cast<uint64_t>(position.blocks) * kThreads;
}

MESHIFT_HOST_DEVICE inline void FillBody(const FillParams& params, ThreadPosition position) {
  const uint64_t end = params.data + params.count * params.element_bytes;
  const uint64_t mask = params.element_bytes - 1;
  // The 16 bytes at every address that is a multiple of 16 are equal.
  Vector<uint8_t, 16> pattern;
  MESHIFT_UNROLL
  for (uint64_t i = 0; i < 16; ++i) pattern.values[i] = params.element[(i - params.data) & mask];
  const uint64_t begin = params.data & ~uint64_t{15};
  for (uint64_t n = FirstOf(position); begin + 16 * n < end; n += StepOf(position)) {
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

// Casts the elements [begin, end); their number is a multiple of A::kLanes.
template <typename Conversion, typename A>
MESHIFT_HOST_DEVICE void CastRange(const CastParams& params, uint64_t begin, uint64_t end,
                                   ThreadPosition position) {
  using In = typename Conversion::In;
  using Out = typename Conversion::Out;
  const uint64_t vectors = (end - begin) / A::kLanes;
  const uint64_t batch = uint64_t{A::kBatch} * kThreads;
  for (uint64_t n = position.block * batch + position.thread; n < vectors;
       n += position.blocks * batch) {
    Packed<A, In> in[A::kBatch];
    MESHIFT_UNROLL
    for (int j = 0; j < A::kBatch; ++j) {
      const uint64_t i = n + j * kThreads;
      if (i < vectors) in[j] = Load<A, In>(params.src + (begin + i * A::kLanes) * sizeof(In));
    }
    MESHIFT_UNROLL
    for (int j = 0; j < A::kBatch; ++j) {
      const uint64_t i = n + j * kThreads;
      if (i >= vectors) break;
      const auto from = std::bit_cast<Elements<A, In>>(in[j]);
      Elements<A, Out> to;
      MESHIFT_UNROLL
      for (int k = 0; k < A::kLanes; ++k) to.values[k] = Conversion::Of(from.values[k]);
      Store<A, Out>(params.dst + (begin + i * A::kLanes) * sizeof(Out), to);
    }
  }
}

template <typename Conversion>
MESHIFT_HOST_DEVICE void CastElements(const CastParams& params, uint64_t count,
                                      ThreadPosition position) {
  using In = typename Conversion::In;
  using Out = typename Conversion::Out;
  // The wider dtype is accessed in vectors of 16 bytes; a thread issues up to four at a time.
  constexpr int kLanes = 16 / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));
  using Vectors = VectorAccesses<kLanes, kLanes <= 4 ? 4 : 16 / kLanes>;
  uint64_t done = 0;
  if (params.access == kAccessVectors) {
    done = count / kLanes * kLanes;
    CastRange<Conversion, Vectors>(params, 0, done, position);
  }
  if (params.access == kAccessBytes) {
    CastRange<Conversion, ByteAccesses>(params, 0, count, position);
  } else {
    CastRange<Conversion, ElementAccesses>(params, done, count, position);
  }
}

template <int kFrom, int kTo>
MESHIFT_HOST_DEVICE void CastReal(const CastParams& params, ThreadPosition position) {
  if constexpr (kFrom != kTo) {
    using Conversion = RealCast<decltype(CodecFor<kFrom>()), decltype(CodecFor<kTo>())>;
    CastElements<Conversion>(params, params.count, position);
  }
}

template <int kFrom, int kTo>
MESHIFT_HOST_DEVICE void CastToComplex(const CastParams& params, ThreadPosition position) {
  using Part = typename decltype(CodecFor<kTo>())::Component;
  CastElements<ComplexCast<decltype(CodecFor<kFrom>()), Part>>(params, params.count, position);
}

// The body of the kernel for source dtype kFrom.
template <int kFrom>
MESHIFT_HOST_DEVICE void CastBody(const CastParams& params, ThreadPosition position) {
  if constexpr (kFrom == kCodeC64 || kFrom == kCodeC128) {
    using From = typename decltype(CodecFor<kFrom>())::Component;
    using To = std::conditional_t<kFrom == kCodeC64, F64Codec, F32Codec>;
    CastElements<RealCast<From, To>>(params, 2 * params.count, position);
  } else {
    switch (params.dst_dtype) {
#define MESHIFT_CAST_TO(code) \
  case code:                  \
    return CastReal<kFrom, code>(params, position);
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
        return CastToComplex<kFrom, kCodeC64>(params, position);
      case kCodeC128:
        return CastToComplex<kFrom, kCodeC128>(params, position);
      default:
        return;
    }
  }
}

MESHIFT_HOST_DEVICE inline uint64_t InputOf(const ReduceParams& params, uint32_t k) {
  return params.base.strided != 0 ? params.inputs[0] + k * params.base.input_stride
                                  : params.inputs[k];
}

// The end of the block of inputs that begins with input k.
MESHIFT_HOST_DEVICE inline uint32_t EndOfBlock(const ReduceParams& params, uint32_t k) {
  const uint32_t left = params.base.num_inputs - k;
  return k + (left < params.base.block ? left : params.base.block);
}

// acc = the combination of the inputs [k, end), in order. It covers A::kBatch vectors of A::kLanes
// elements: the first at element `first`, the next kThreads vectors further on, and so on, as far
// as they are before element `stop`. Loads of up to kInputs inputs are issued at a time.
template <typename Reducer, typename A, int kInputs>
MESHIFT_HOST_DEVICE void CombineInputs(const ReduceParams& params, Reducer reducer, uint64_t first,
                                       uint64_t stop, uint32_t k, uint32_t end,
                                       typename Reducer::Acc (*acc)[A::kLanes]) {
  using Stored = typename Reducer::Stored;
  bool begun = false;
  for (; k < end; k += kInputs) {
    Packed<A, Stored> in[kInputs][A::kBatch];
    MESHIFT_UNROLL
    for (uint32_t j = 0; j < kInputs; ++j) {
      if (k + j >= end) break;
      MESHIFT_UNROLL
      for (int b = 0; b < A::kBatch; ++b) {
        const uint64_t i = first + uint64_t{A::kLanes} * kThreads * b;
        if (i < stop) in[j][b] = Load<A, Stored>(InputOf(params, k + j) + i * sizeof(Stored));
      }
    }
    MESHIFT_UNROLL
    for (uint32_t j = 0; j < kInputs; ++j) {
      if (k + j >= end) break;
      MESHIFT_UNROLL
      for (int b = 0; b < A::kBatch; ++b) {
        const auto elements = std::bit_cast<Elements<A, Stored>>(in[j][b]);
        MESHIFT_UNROLL
        for (int l = 0; l < A::kLanes; ++l) {
          const auto value = reducer.Decode(elements.values[l]);
          acc[b][l] = j == 0 && !begun ? value : reducer.Combine(acc[b][l], value);
        }
      }
    }
    begun = true;
  }
}

// Reduces the elements [begin, stop); their number is a multiple of A::kLanes.
template <typename Reducer, typename A, int kInputs>
MESHIFT_HOST_DEVICE void ReduceRange(const ReduceParams& params, Reducer reducer, uint64_t begin,
                                     uint64_t stop, ThreadPosition position) {
  using Stored = typename Reducer::Stored;
  using Acc = typename Reducer::Acc;
  const uint32_t num_inputs = params.base.num_inputs;
  const uint32_t first_end = EndOfBlock(params, 0);
  const uint64_t tile = uint64_t{A::kBatch} * A::kLanes * kThreads;
  for (uint64_t n = begin + position.block * tile + position.thread * uint64_t{A::kLanes}; n < stop;
       n += position.blocks * tile) {
    Acc acc[A::kBatch][A::kLanes];
    CombineInputs<Reducer, A, kInputs>(params, reducer, n, stop, 0, first_end, acc);
    for (uint32_t k = first_end; k < num_inputs; k = EndOfBlock(params, k)) {
      Acc part[A::kBatch][A::kLanes];
      CombineInputs<Reducer, A, kInputs>(params, reducer, n, stop, k, EndOfBlock(params, k), part);
      MESHIFT_UNROLL
      for (int b = 0; b < A::kBatch; ++b) {
        MESHIFT_UNROLL
        for (int l = 0; l < A::kLanes; ++l) acc[b][l] = reducer.Combine(acc[b][l], part[b][l]);
      }
    }
    MESHIFT_UNROLL
    for (int b = 0; b < A::kBatch; ++b) {
      const uint64_t i = n + uint64_t{A::kLanes} * kThreads * b;
      if (i >= stop) break;
      Elements<A, Stored> out;
      MESHIFT_UNROLL
      for (int l = 0; l < A::kLanes; ++l) out.values[l] = reducer.Encode(acc[b][l]);
      Store<A, Stored>(params.base.out + i * sizeof(Stored), out);
    }
  }
}

template <typename Reducer>
MESHIFT_HOST_DEVICE void ReduceElements(const ReduceParams& params, Reducer reducer, uint64_t count,
                                        ThreadPosition position) {
  constexpr int kLanes = 16 / sizeof(typename Reducer::Stored);
  uint64_t done = 0;
  if (params.base.access == kAccessVectors) {
    done = count / kLanes * kLanes;
    ReduceRange<Reducer, VectorAccesses<kLanes, 1>, 4>(params, reducer, 0, done, position);
  }
  if (params.base.access == kAccessBytes) {
    ReduceRange<Reducer, ByteAccesses, 1>(params, reducer, 0, count, position);
  } else {
    ReduceRange<Reducer, ElementAccesses, 1>(params, reducer, done, count, position);
  }
}

template <typename T>
MESHIFT_HOST_DEVICE void ReduceIntegers(const ReduceParams& params, ThreadPosition position) {
  const uint64_t count = params.base.count;
  switch (params.base.op) {
    case kCodeSum:
      return ReduceElements(params, IntReducer<T, kCodeSum>(), count, position);
    case kCodeAvg:
      return ReduceElements(params, IntAverager<T>(params.base.divisor), count, position);
    case kCodeProduct:
      return ReduceElements(params, IntReducer<T, kCodeProduct>(), count, position);
    case kCodeMin:
      return ReduceElements(params, IntReducer<T, kCodeMin>(), count, position);
    case kCodeMax:
      return ReduceElements(params, IntReducer<T, kCodeMax>(), count, position);
    case kCodeAnd:
      return ReduceElements(params, IntReducer<T, kCodeAnd>(), count, position);
    case kCodeOr:
      return ReduceElements(params, IntReducer<T, kCodeOr>(), count, position);
    case kCodeXor:
      return ReduceElements(params, IntReducer<T, kCodeXor>(), count, position);
    default:
      return;
  }
}

template <typename C>
MESHIFT_HOST_DEVICE void SumFloats(const ReduceParams& params, uint64_t count,
                                   ThreadPosition position) {
  const int64_t divisor = params.base.divisor;
  if (params.base.op == kCodeAvg) {
    return (divisor & (divisor - 1)) == 0
               ? ReduceElements(params, FloatScaler<C>(divisor), count, position)
               : ReduceElements(params, FloatAverager<C>(divisor), count, position);
  }
  ReduceElements(params, FloatReducer<C, Add>(), count, position);
}

template <typename C>
MESHIFT_HOST_DEVICE void ReduceFloats(const ReduceParams& params, ThreadPosition position) {
  const uint64_t count = params.base.count;
  switch (params.base.op) {
    case kCodeProduct:
      return ReduceElements(params, FloatReducer<C, Multiply>(), count, position);
    case kCodeMin:
      return ReduceElements(params, FloatExtreme<C, true>(), count, position);
    case kCodeMax:
      return ReduceElements(params, FloatExtreme<C, false>(), count, position);
    default:
      return SumFloats<C>(params, count, position);
  }
}

// The body of the kernel for a dtype.
template <int kDType>
MESHIFT_HOST_DEVICE void ReduceBody(const ReduceParams& params, ThreadPosition position) {
  using Codec = decltype(CodecFor<kDType>());
  if constexpr (kDType == kCodeC64 || kDType == kCodeC128) {
    using C = typename Codec::Component;
    if (params.base.op == kCodeProduct) {
      return ReduceElements(params, ComplexMultiplier<C>(), params.base.count, position);
    }
    SumFloats<C>(params, 2 * params.base.count, position);
  } else if constexpr (kDType >= kCodeI8 && kDType <= kCodeU64) {
    ReduceIntegers<typename Codec::Stored>(params, position);
  } else {
    ReduceFloats<Codec>(params, position);
  }
}

}  // namespace meshift::cuda

#endif  // MESHIFT_COMM_CUDA_ELEMENT_BODIES_H_
