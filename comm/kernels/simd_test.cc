#include "comm/kernels/simd.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "comm/kernels/codec.h"
#include "comm/kernels/codes.h"
#include "comm/kernels/reducers.h"

namespace meshift {
namespace {

constexpr int64_t kCount = 20011;  // not a multiple of a vector's elements

template <typename T>
std::vector<T> RandomBits(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(kCount);
  for (T& value : values) {
    const uint64_t bits = random();
    std::memcpy(&value, &bits, sizeof(value));
  }
  return values;
}

// Runs `loop(in, out)` at every level of this machine, and expects equal bits. Under sanitizers
// there is only one level.
template <typename In, typename Out, typename Loop>
void ExpectSameAtAllLevels(const Loop& loop, const char* what) {
  SCOPED_TRACE(what);
  const std::vector<In> values = RandomBits<In>(1);
  const In* in = values.data();
  std::vector<Out> base(kCount);
  RunBase([loop, in, out = base.data()](auto) MESHIFT_INLINE { loop(in, out); });
#ifdef MESHIFT_SIMD_LEVELS
  std::vector<Out> other(kCount);
  if (__builtin_cpu_supports("avx2")) {
    RunAvx2([loop, in, out = other.data()](auto) MESHIFT_INLINE { loop(in, out); });
    EXPECT_EQ(std::memcmp(base.data(), other.data(), kCount * sizeof(Out)), 0) << "AVX2";
  }
  if (LevelOfThisMachine() == SimdLevel::kAvx512) {
    other.assign(kCount, Out());
    RunAvx512([loop, in, out = other.data()](auto) MESHIFT_INLINE { loop(in, out); });
    EXPECT_EQ(std::memcmp(base.data(), other.data(), kCount * sizeof(Out)), 0) << "AVX-512";
  }
#endif
}

template <typename From, typename To>
void ExpectCast(const char* what) {
  using In = typename From::Stored;
  using Out = typename To::Stored;
  ExpectSameAtAllLevels<In, Out>(
      [](const In* in, Out* out) MESHIFT_INLINE {
        for (int64_t i = 0; i < kCount; ++i) out[i] = To::Encode(From::Decode(in[i]));
      },
      what);
}

template <typename Reducer>
void ExpectReduction(Reducer reducer, const char* what) {
  using Stored = typename Reducer::Stored;
  ExpectSameAtAllLevels<Stored, Stored>(
      [reducer](const Stored* in, Stored* out) MESHIFT_INLINE {
        for (int64_t i = 0; i < kCount; ++i) {
          const auto next = reducer.Decode(in[(i + 1) % kCount]);
          out[i] = reducer.Encode(reducer.Combine(reducer.Decode(in[i]), next));
        }
      },
      what);
}

TEST(SimdLevels, CastsHaveEqualBits) {
  ExpectCast<SmallCodec<BF16>, F32Codec>("bf16 to f32");
  ExpectCast<F32Codec, SmallCodec<BF16>>("f32 to bf16");
  ExpectCast<SmallCodec<F16>, F32Codec>("f16 to f32");
  ExpectCast<F32Codec, SmallCodec<F16>>("f32 to f16");
  ExpectCast<F32Codec, SmallCodec<F8E4M3>>("f32 to f8e4m3");
  ExpectCast<F32Codec, SmallCodec<F8E5M2>>("f32 to f8e5m2");
  ExpectCast<F64Codec, SmallCodec<F16>>("f64 to f16");
  ExpectCast<F64Codec, F32Codec>("f64 to f32");
  ExpectCast<F64Codec, IntCodec<int32_t>>("f64 to i32");
  ExpectCast<F32Codec, IntCodec<uint8_t>>("f32 to u8");
  ExpectCast<IntCodec<int64_t>, SmallCodec<BF16>>("i64 to bf16");
  ExpectCast<IntCodec<uint64_t>, F32Codec>("u64 to f32");
  ExpectCast<BoolCodec, F64Codec>("bool to f64");
}

TEST(SimdLevels, ReductionsHaveEqualBits) {
  ExpectReduction(FloatReducer<SmallCodec<BF16>, Add>(), "sum of bf16");
  ExpectReduction(FloatReducer<SmallCodec<F8E4M3>, Multiply>(), "product of f8e4m3");
  ExpectReduction(FloatReducer<F32Codec, Add>(), "sum of f32");
  ExpectReduction(FloatReducer<F64Codec, Multiply>(), "product of f64");
  ExpectReduction(FloatAverager<SmallCodec<F16>>(7), "average of f16");
  ExpectReduction(FloatAverager<F32Codec>(3), "average of f32");
  ExpectReduction(FloatExtreme<F32Codec, true>(), "min of f32");
  ExpectReduction(FloatExtreme<SmallCodec<BF16>, false>(), "max of bf16");
  ExpectReduction(IntReducer<int8_t, kCodeProduct>(), "product of i8");
  ExpectReduction(IntAverager<int32_t>(5), "average of i32");
  ExpectReduction(IntReducer<uint16_t, kCodeXor>(), "xor of u16");
}

}  // namespace
}  // namespace meshift
