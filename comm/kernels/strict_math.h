// For files whose results are promised bit for bit. Refuses, by #error, the options of -ffast-math
// that change results and set a macro (not -fno-trapping-math or -fno-math-errno). Has Rounded(),
// which keeps a product from being fused with a sum.
//
//   #include "comm/kernels/strict_math.h"
//
//   re = Rounded(a.re * b.re) - Rounded(a.im * b.im);     // two products and a difference
//
// Such options let a compiler reorder sums, multiply by a reciprocal, or ignore NaN, infinity and
// the sign of zero. CheckArithmetic() of float_environment.h finds at run time some of those that
// set no macro. Rounded() works on x86-64 and aarch64; CUDA kernels need --fmad=false instead.
#ifndef MESHIFT_COMM_KERNELS_STRICT_MATH_H_
#define MESHIFT_COMM_KERNELS_STRICT_MATH_H_

#include "comm/kernels/host_device.h"

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    defined(__NO_SIGNED_ZEROS__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error "Meshift promises equal bits: compile it without -ffast-math and the options that it implies"
#endif

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

namespace meshift {

// Forces a product to be rounded before it is added. gcc 12.2 fuses products of complex numbers for
// x86-64 even with -ffp-contract=off.
template <typename T>
MESHIFT_HOST_DEVICE T Rounded(T product) {
#if defined(__CUDA_ARCH__)  // --fmad=false
#elif defined(__x86_64__)
  asm("" : "+x"(product));
#elif defined(__aarch64__)
  asm("" : "+w"(product));
#endif
  return product;
}

}  // namespace meshift

#endif  // MESHIFT_COMM_KERNELS_STRICT_MATH_H_
