// A driver library on a machine without a GPU: every call fails with CUDA_ERROR_NO_DEVICE. With
// MESHIFT_WITHOUT_FUNCTION the last function that is looked up is missing, as in an old driver.
// With MESHIFT_OF_CUDA_12 the driver starts, but is too old. Written without cuda.h; the signatures
// differ, since most arguments are ignored.
#include "comm/cuda/driver_functions.h"

#ifdef MESHIFT_OF_CUDA_12
#define cuInit unused_init
#define cuDriverGetVersion unused_version
#endif
#define MESHIFT_STUB(name, symbol) \
  extern "C" int symbol() { return 100; }
MESHIFT_CUDA_FUNCTIONS(MESHIFT_STUB)
#undef MESHIFT_STUB
#ifdef MESHIFT_OF_CUDA_12
#undef cuInit
#undef cuDriverGetVersion
extern "C" int cuInit() { return 0; }
extern "C" int cuDriverGetVersion(int* version) {
  *version = 12030;
  return 0;
}
#endif

extern "C" int cuGetErrorName(int error, const char** text) {
  *text = error == 100 ? "CUDA_ERROR_NO_DEVICE" : nullptr;
  return *text == nullptr ? 1 : 0;
}
extern "C" int cuGetErrorString(int error, const char** text) {
  *text = error == 100 ? "no CUDA-capable device is detected" : nullptr;
  return *text == nullptr ? 1 : 0;
}
#ifndef MESHIFT_WITHOUT_FUNCTION
extern "C" int cuEventElapsedTime() { return 100; }
#endif
