// Functions that the implementations of the CUDA C API share. Results are CUresult.
#ifndef MESHIFT_TESTING_FAKE_GPU_CUDA_API_H_
#define MESHIFT_TESTING_FAKE_GPU_CUDA_API_H_

#include <cuda.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/mutex.h"
#include "testing/fake_gpu/machine.h"

namespace meshift::fake {

inline Machine& TheMachine() { return Machine::Get(); }

// Records the call. If the result is not CUDA_SUCCESS, the call must return it at once: cuInit was
// not called, or a test asked for it.
CUresult Enter(const char* function, uint32_t traits, const std::string& details);

// Returns from the calling function if the call must not continue.
#define FAKE_ENTER(function, traits, ...)                                                          \
  if (const CUresult entered = ::meshift::fake::Enter(function, traits, fmt::format(__VA_ARGS__)); \
      entered != CUDA_SUCCESS) {                                                                   \
    return entered;                                                                                \
  }                                                                                                \
  static_assert(true, "")

#define FAKE_RETURN_IF_ERROR(expression)                                                          \
  if (const CUresult fake_result = (expression); fake_result != CUDA_SUCCESS) return fake_result; \
  static_assert(true, "")

// The context of the calling thread; CUDA_ERROR_INVALID_CONTEXT if none is current, or the error
// that an earlier operation left in it.
CUresult CurrentContext(Context** context);
// Null if none is current.
Context* CurrentContextOrNull();

// The stream of a handle, which may be a default stream of the current context. Needs the machine's
// lock.
CUresult FindStream(const char* function, CUstream handle, Stream** stream);
CUresult FindEvent(const char* function, CUevent handle, Event** event);

// Refuses unsafe calls while this thread (or any, in global mode) captures.
CUresult RefuseInCapture(const char* function);

// Checks the accesses and submits the work to the stream's device.
CUresult SubmitChecked(Stream* stream, const Work& work);
// Blocks until a stream's (or event's) last operation is done.
CUresult AwaitPoint(MutexLock& lock, const PointRef& point, Context* context);

}  // namespace meshift::fake

#endif  // MESHIFT_TESTING_FAKE_GPU_CUDA_API_H_
