// Runs a loop with the widest of three sets of vector instructions that the machine has, in one
// binary for all x86-64 machines.
//
//   RunAtBestSimdLevel([&](auto) MESHIFT_INLINE {
//     for (int i = 0; i < n; ++i) out[i] = a[i] + b[i];
//   });
//
// The loop is compiled once per level (base, AVX2, AVX-512), and the best level of the machine
// runs. All functions that it calls must be inlinable. Compile with -O3 and -ffp-contract=off: then
// the results are the same at every level. Does not use ifunc, which does not work with sanitizers.
// Other CPUs have only the base level, and so have builds with ASan or TSan, to save compile time.
#ifndef MESHIFT_COMM_KERNELS_SIMD_H_
#define MESHIFT_COMM_KERNELS_SIMD_H_

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MESHIFT_SIMD_LEVELS
#endif
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef MESHIFT_SIMD_LEVELS
#endif
#endif

// An attribute for lambdas; it follows the parameters.
#define MESHIFT_INLINE __attribute__((always_inline))

namespace meshift {

enum class SimdLevel { kBase, kAvx2, kAvx512 };

inline SimdLevel LevelOfThisMachine() {
#ifdef MESHIFT_SIMD_LEVELS
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return SimdLevel::kAvx512;
  }
  if (__builtin_cpu_supports("avx2")) return SimdLevel::kAvx2;
#endif
  return SimdLevel::kBase;
}

template <SimdLevel kOf>
struct Level {
  static constexpr SimdLevel kLevel = kOf;
};

#ifdef MESHIFT_SIMD_LEVELS
template <typename Loop>
[[gnu::noinline, gnu::flatten, gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void RunAvx512(
    Loop loop) {
  loop(Level<SimdLevel::kAvx512>());
}
template <typename Loop>
[[gnu::noinline, gnu::flatten, gnu::target("avx2")]] void RunAvx2(Loop loop) {
  loop(Level<SimdLevel::kAvx2>());
}
#endif

template <typename Loop>
[[gnu::noinline]] void RunBase(Loop loop) {
  loop(Level<SimdLevel::kBase>());
}

// Calls `loop` with the Level that it is compiled for, which it may ignore.
template <typename Loop>
void RunAtBestSimdLevel(Loop loop) {
  switch (LevelOfThisMachine()) {
#ifdef MESHIFT_SIMD_LEVELS
    case SimdLevel::kAvx512:
      return RunAvx512(loop);
    case SimdLevel::kAvx2:
      return RunAvx2(loop);
#endif
    default:
      return RunBase(loop);
  }
}

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_SIMD_H_
