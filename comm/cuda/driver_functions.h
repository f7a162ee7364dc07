// The functions of the CUDA driver that become methods of CudaDriver (driver.h), as a preprocessor
// list. Includes no header, so that code without cuda.h can use it too. Does not list the functions
// that CudaDriver wraps by hand: cuGetErrorName, cuGetErrorString and cuEventElapsedTime.
//
//   #define DECLARE(name, symbol) decltype(&::symbol) name;
//   MESHIFT_CUDA_FUNCTIONS(DECLARE)
#ifndef MESHIFT_COMM_CUDA_DRIVER_FUNCTIONS_H_
#define MESHIFT_COMM_CUDA_DRIVER_FUNCTIONS_H_

// X(name, symbol): `name` is the method; `symbol` is the name that the library exports, with the
// suffix that a macro of cuda.h may add.
// clang-format off
#define MESHIFT_CUDA_FUNCTIONS(X)                                    \
  X(Init, cuInit)                                                    \
  X(DriverGetVersion, cuDriverGetVersion)                            \
  X(DeviceGetCount, cuDeviceGetCount)                                \
  X(DeviceGet, cuDeviceGet)                                          \
  X(DeviceGetName, cuDeviceGetName)                                  \
  X(DeviceGetAttribute, cuDeviceGetAttribute)                        \
  X(DeviceGetPCIBusId, cuDeviceGetPCIBusId)                          \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                \
  X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)           \
  X(CtxSetCurrent, cuCtxSetCurrent)                                  \
  X(CtxGetCurrent, cuCtxGetCurrent)                                  \
  X(CtxPushCurrent, cuCtxPushCurrent_v2)                             \
  X(CtxPopCurrent, cuCtxPopCurrent_v2)                               \
  X(CtxGetDevice, cuCtxGetDevice)                                    \
  X(CtxSynchronize, cuCtxSynchronize)                                \
  X(MemGetInfo, cuMemGetInfo_v2)                                     \
  X(MemAlloc, cuMemAlloc_v2)                                         \
  X(MemFree, cuMemFree_v2)                                           \
  X(MemPoolCreate, cuMemPoolCreate)                                  \
  X(MemPoolDestroy, cuMemPoolDestroy)                                \
  X(MemPoolSetAttribute, cuMemPoolSetAttribute)                      \
  X(MemAllocFromPoolAsync, cuMemAllocFromPoolAsync)                  \
  X(MemFreeAsync, cuMemFreeAsync)                                    \
  X(MemHostAlloc, cuMemHostAlloc)                                    \
  X(MemFreeHost, cuMemFreeHost)                                      \
  X(MemcpyAsync, cuMemcpyAsync)                                      \
  X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                           \
  X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)                           \
  X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)                           \
  X(MemsetD8Async, cuMemsetD8Async)                                  \
  X(PointerGetAttribute, cuPointerGetAttribute)                      \
  X(StreamCreate, cuStreamCreate)                                    \
  X(StreamCreateWithPriority, cuStreamCreateWithPriority)            \
  X(StreamDestroy, cuStreamDestroy_v2)                               \
  X(StreamQuery, cuStreamQuery)                                      \
  X(StreamSynchronize, cuStreamSynchronize)                          \
  X(StreamWaitEvent, cuStreamWaitEvent)                              \
  X(StreamIsCapturing, cuStreamIsCapturing)                          \
  X(StreamGetCaptureInfo, cuStreamGetCaptureInfo_v3)                 \
  X(StreamBeginCapture, cuStreamBeginCapture_v2)                     \
  X(StreamEndCapture, cuStreamEndCapture)                            \
  X(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode) \
  X(LaunchHostFunc, cuLaunchHostFunc)                                \
  X(EventCreate, cuEventCreate)                                      \
  X(EventDestroy, cuEventDestroy_v2)                                 \
  X(EventRecord, cuEventRecord)                                      \
  X(EventQuery, cuEventQuery)                                        \
  X(EventSynchronize, cuEventSynchronize)                            \
  X(ModuleLoadData, cuModuleLoadData)                                \
  X(ModuleUnload, cuModuleUnload)                                    \
  X(ModuleGetFunction, cuModuleGetFunction)                          \
  X(LaunchKernel, cuLaunchKernel)                                    \
  X(GraphInstantiate, cuGraphInstantiateWithFlags)                   \
  X(GraphLaunch, cuGraphLaunch)                                      \
  X(GraphExecDestroy, cuGraphExecDestroy)                            \
  X(GraphDestroy, cuGraphDestroy)

// Older drivers do not have these.
#define MESHIFT_CUDA_OPTIONAL_FUNCTIONS(X) \
  X(FuncLoad, cuFuncLoad)
// clang-format on

#endif  // MESHIFT_COMM_CUDA_DRIVER_FUNCTIONS_H_
