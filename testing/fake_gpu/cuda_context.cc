// Initialisation, devices, contexts, errors.
#include <cstdio>

#include "testing/fake_gpu/cuda_api.h"

namespace meshift::fake {
namespace {

thread_local std::vector<Context*> context_stack;

CUresult CheckDevice(CUdevice device) {
  return device >= 0 && device < TheMachine().options.devices ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CheckContext(CUcontext handle) {
  Machine& machine = TheMachine();
  auto* context = reinterpret_cast<Context*>(handle);
  return machine.contexts.contains(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// The attributes of an H100 that matter for kernel launches; 0: not modelled.
int AttributeOf(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return 1;
    default:
      return 0;
  }
}

int DriverVersion() {
  const int version = TheMachine().options.driver_version;
  return version == 0 ? CUDA_VERSION : version;
}

struct ErrorText {
  CUresult result;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
#define FAKE_ERROR(name, text) \
  { name, #name, text }
    FAKE_ERROR(CUDA_SUCCESS, "no error"),
    FAKE_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    FAKE_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    FAKE_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    FAKE_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    FAKE_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    FAKE_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    FAKE_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    FAKE_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    FAKE_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
               "no kernel image is available for execution on the device"),
    FAKE_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    FAKE_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    FAKE_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    FAKE_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    FAKE_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    FAKE_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    FAKE_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
               "operation not permitted when stream is capturing"),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
               "operation failed due to a previous error during capture"),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of captures"),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
               "capture was not ended in the same stream as it began"),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
               "dependency created on uncaptured work in another stream"),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
               "operation would make the legacy stream depend on a capturing blocking stream"),
    FAKE_ERROR(CUDA_ERROR_CAPTURED_EVENT,
               "operation not permitted on an event last recorded in a capturing stream"),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
               "attempt to terminate a thread-local capture sequence from another thread"),
    FAKE_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef FAKE_ERROR
};

}  // namespace

CUresult Enter(const char* function, uint32_t traits, const std::string& details) {
  Machine& machine = TheMachine();
  const int result = machine.recorder.Enter(function, traits, details);
  if (result != 0) return static_cast<CUresult>(result);
  return machine.initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

Context* CurrentContextOrNull() { return context_stack.empty() ? nullptr : context_stack.back(); }

CUresult CurrentContext(Context** context) {
  *context = CurrentContextOrNull();
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  if ((*context)->retained == 0) {
    machine.recorder.Violation("use of a primary context that is not retained");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return static_cast<CUresult>((*context)->sticky_error);
}

}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

CUresult cuInit(unsigned int flags) {
  Machine& machine = TheMachine();
  if (const int result = machine.recorder.Enter("cuInit", kPlainCall, ""); result != 0) {
    return static_cast<CUresult>(result);
  }
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!machine.memory.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (machine.options.devices == 0) return CUDA_ERROR_NO_DEVICE;
  machine.initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  TheMachine().recorder.Enter("cuDriverGetVersion", kPlainCall, "");
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = DriverVersion();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  FAKE_ENTER("cuDeviceGetCount", kPlainCall, "");
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = TheMachine().options.devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_ENTER("cuDeviceGet", kPlainCall, "{}", ordinal);
  FAKE_RETURN_IF_ERROR(CheckDevice(ordinal));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  FAKE_ENTER("cuDeviceGetName", kPlainCall, "{}", device);
  FAKE_RETURN_IF_ERROR(CheckDevice(device));
  if (name == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(size), "Meshift stand-in %d", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  FAKE_ENTER("cuDeviceGetPCIBusId", kPlainCall, "{}", device);
  FAKE_RETURN_IF_ERROR(CheckDevice(device));
  if (id == nullptr || size < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(id, static_cast<size_t>(size), "0000:%02x:00.0", (0x10 + device) & 0xff);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  FAKE_ENTER("cuDeviceGetAttribute", kPlainCall, "{} of {}", static_cast<int>(attribute), device);
  FAKE_RETURN_IF_ERROR(CheckDevice(device));
  if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *value = AttributeOf(attribute);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
  FAKE_ENTER("cuDevicePrimaryCtxRetain", kPlainCall, "{}", device);
  FAKE_RETURN_IF_ERROR(CheckDevice(device));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Context& context = machine.devices[static_cast<size_t>(device)]->primary;
  ++context.retained;
  *handle = reinterpret_cast<CUcontext>(&context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  FAKE_ENTER("cuDevicePrimaryCtxRelease", kPlainCall, "{}", device);
  FAKE_RETURN_IF_ERROR(CheckDevice(device));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Context& context = machine.devices[static_cast<size_t>(device)]->primary;
  if (context.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context.retained == 0)
    context.sticky_error = CUDA_SUCCESS;  // the next one is a new context
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  FAKE_ENTER("cuCtxSetCurrent", kPlainCall, "");
  if (handle == nullptr) {
    if (!context_stack.empty()) context_stack.pop_back();
    return CUDA_SUCCESS;
  }
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  FAKE_RETURN_IF_ERROR(CheckContext(handle));
  if (!context_stack.empty()) context_stack.pop_back();
  context_stack.push_back(reinterpret_cast<Context*>(handle));
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  FAKE_ENTER("cuCtxGetCurrent", kPlainCall, "");
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = reinterpret_cast<CUcontext>(CurrentContextOrNull());
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext handle) {
  FAKE_ENTER("cuCtxPushCurrent", kPlainCall, "");
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  FAKE_RETURN_IF_ERROR(CheckContext(handle));
  context_stack.push_back(reinterpret_cast<Context*>(handle));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* handle) {
  FAKE_ENTER("cuCtxPopCurrent", kPlainCall, "");
  if (context_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = reinterpret_cast<CUcontext>(context_stack.back());
  context_stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_ENTER("cuCtxGetDevice", kPlainCall, "");
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  FAKE_ENTER("cuCtxSynchronize", kSynchronises, "");
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  // In any mode, and for captures of any thread.
  for (const CaptureRef& capture : machine.captures) {
    if (capture->invalidated || capture->origin->context != context) continue;
    machine.Invalidate(capture, "cuCtxSynchronize during a stream capture");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (!machine.AwaitDevice(lock, context->device)) return CUDA_ERROR_LAUNCH_FAILED;
  return static_cast<CUresult>(context->sticky_error);
}

CUresult cuGetErrorName(CUresult result, const char** name) {
  for (const ErrorText& error : kErrors) {
    if (error.result != result) continue;
    *name = error.name;
    return CUDA_SUCCESS;
  }
  *name = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char** text) {
  for (const ErrorText& error : kErrors) {
    if (error.result != result) continue;
    *text = error.text;
    return CUDA_SUCCESS;
  }
  *text = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
