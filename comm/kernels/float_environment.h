// Sets the calling thread's floating-point mode to the default (round to nearest, keep subnormals,
// mask exceptions), and checks the arithmetic of the CPU kernels. A program that gcc links with
// -ffast-math starts in another mode, which its threads inherit. For x86-64, where it sets the mode
// of SSE but not of x87, and for aarch64.
//
//   const DefaultFloatMode mode;     // until the end of the block
//
//   MESHIFT_RETURN_IF_ERROR(CheckArithmetic());
#ifndef MESHIFT_COMM_KERNELS_FLOAT_ENVIRONMENT_H_
#define MESHIFT_COMM_KERNELS_FLOAT_ENVIRONMENT_H_

#include <cstdint>

#include "absl/status/status.h"
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace meshift {

// Sets the default mode. The destructor, on the same thread, restores the previous mode.
class DefaultFloatMode {
 public:
#if defined(__SSE2__)
  DefaultFloatMode() : before_(_mm_getcsr()) {
    if ((before_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if ((before_ & ~kFlags) != kDefault) _mm_setcsr(before_);
  }

 private:
  static constexpr uint32_t kFlags = 0x3f;  // the exceptions that were raised
  static constexpr uint32_t kDefault =
      0x1f80;  // exceptions masked, round to nearest, no FTZ or DAZ
  const uint32_t before_;
#elif defined(__aarch64__)
  DefaultFloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    if (before_ != 0) asm volatile("msr fpcr, xzr" ::: "memory");
  }
  ~DefaultFloatMode() {
    if (before_ != 0) asm volatile("msr fpcr, %0" ::"r"(before_) : "memory");
  }

 private:
  uint64_t before_ = 0;
#else
#error "DefaultFloatMode supports x86-64 and aarch64 only"
#endif

 public:
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
};

// Compares reductions with known results: the order of sums, quotients, subnormals, the sign of
// zero, products of complex numbers; not NaN or infinity. Takes some microseconds.
// FAILED_PRECONDITION names the first that differs: then comm/kernels was probably compiled with
// options that change arithmetic.
absl::Status CheckArithmetic();

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_FLOAT_ENVIRONMENT_H_
