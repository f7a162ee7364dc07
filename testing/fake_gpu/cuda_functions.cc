// cuGetProcAddress, and names of functions that older headers map to.
#include <map>
#include <string>

#include "testing/fake_gpu/cuda_api.h"

namespace meshift::fake {
void* FindFunction(const std::string& name) {
  static const std::map<std::string, void*>& functions = *new std::map<std::string, void*>{
      // clang-format off: one line each
      {"cuCtxCreate", reinterpret_cast<void*>(&cuCtxCreate)},
      {"cuCtxDestroy", reinterpret_cast<void*>(&cuCtxDestroy)},
      {"cuCtxDisablePeerAccess", reinterpret_cast<void*>(&cuCtxDisablePeerAccess)},
      {"cuCtxEnablePeerAccess", reinterpret_cast<void*>(&cuCtxEnablePeerAccess)},
      {"cuCtxGetApiVersion", reinterpret_cast<void*>(&cuCtxGetApiVersion)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(&cuCtxGetCurrent)},
      {"cuCtxGetDevice", reinterpret_cast<void*>(&cuCtxGetDevice)},
      {"cuCtxGetFlags", reinterpret_cast<void*>(&cuCtxGetFlags)},
      {"cuCtxGetStreamPriorityRange", reinterpret_cast<void*>(&cuCtxGetStreamPriorityRange)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&cuCtxPopCurrent)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&cuCtxPushCurrent)},
      {"cuCtxSetCurrent", reinterpret_cast<void*>(&cuCtxSetCurrent)},
      {"cuCtxSynchronize", reinterpret_cast<void*>(&cuCtxSynchronize)},
      {"cuDeviceCanAccessPeer", reinterpret_cast<void*>(&cuDeviceCanAccessPeer)},
      {"cuDeviceGet", reinterpret_cast<void*>(&cuDeviceGet)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(&cuDeviceGetAttribute)},
      {"cuDeviceGetCount", reinterpret_cast<void*>(&cuDeviceGetCount)},
      {"cuDeviceGetDefaultMemPool", reinterpret_cast<void*>(&cuDeviceGetDefaultMemPool)},
      {"cuDeviceGetMemPool", reinterpret_cast<void*>(&cuDeviceGetMemPool)},
      {"cuDeviceGetName", reinterpret_cast<void*>(&cuDeviceGetName)},
      {"cuDeviceGetPCIBusId", reinterpret_cast<void*>(&cuDeviceGetPCIBusId)},
      {"cuDeviceGetUuid", reinterpret_cast<void*>(&cuDeviceGetUuid)},
      {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(&cuDevicePrimaryCtxGetState)},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(&cuDevicePrimaryCtxRelease)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&cuDevicePrimaryCtxRetain)},
      {"cuDevicePrimaryCtxSetFlags", reinterpret_cast<void*>(&cuDevicePrimaryCtxSetFlags)},
      {"cuDeviceTotalMem", reinterpret_cast<void*>(&cuDeviceTotalMem)},
      {"cuDriverGetVersion", reinterpret_cast<void*>(&cuDriverGetVersion)},
      {"cuEventCreate", reinterpret_cast<void*>(&cuEventCreate)},
      {"cuEventDestroy", reinterpret_cast<void*>(&cuEventDestroy)},
      {"cuEventElapsedTime", reinterpret_cast<void*>(&cuEventElapsedTime)},
      {"cuEventQuery", reinterpret_cast<void*>(&cuEventQuery)},
      {"cuEventRecord", reinterpret_cast<void*>(&cuEventRecord)},
      {"cuEventRecordWithFlags", reinterpret_cast<void*>(&cuEventRecordWithFlags)},
      {"cuEventSynchronize", reinterpret_cast<void*>(&cuEventSynchronize)},
      {"cuFuncGetAttribute", reinterpret_cast<void*>(&cuFuncGetAttribute)},
      {"cuFuncGetName", reinterpret_cast<void*>(&cuFuncGetName)},
      {"cuFuncLoad", reinterpret_cast<void*>(&cuFuncLoad)},
      {"cuFuncSetAttribute", reinterpret_cast<void*>(&cuFuncSetAttribute)},
      {"cuGetErrorName", reinterpret_cast<void*>(&cuGetErrorName)},
      {"cuGetErrorString", reinterpret_cast<void*>(&cuGetErrorString)},
      {"cuGetProcAddress", reinterpret_cast<void*>(&cuGetProcAddress)},
      {"cuGraphCreate", reinterpret_cast<void*>(&cuGraphCreate)},
      {"cuGraphDestroy", reinterpret_cast<void*>(&cuGraphDestroy)},
      {"cuGraphExecDestroy", reinterpret_cast<void*>(&cuGraphExecDestroy)},
      {"cuGraphGetNodes", reinterpret_cast<void*>(&cuGraphGetNodes)},
      {"cuGraphInstantiate", reinterpret_cast<void*>(&cuGraphInstantiate)},
      {"cuGraphInstantiateWithParams", reinterpret_cast<void*>(&cuGraphInstantiateWithParams)},
      {"cuGraphLaunch", reinterpret_cast<void*>(&cuGraphLaunch)},
      {"cuGraphUpload", reinterpret_cast<void*>(&cuGraphUpload)},
      {"cuInit", reinterpret_cast<void*>(&cuInit)},
      {"cuKernelGetFunction", reinterpret_cast<void*>(&cuKernelGetFunction)},
      {"cuLaunchHostFunc", reinterpret_cast<void*>(&cuLaunchHostFunc)},
      {"cuLaunchKernel", reinterpret_cast<void*>(&cuLaunchKernel)},
      {"cuLaunchKernelEx", reinterpret_cast<void*>(&cuLaunchKernelEx)},
      {"cuLibraryGetKernel", reinterpret_cast<void*>(&cuLibraryGetKernel)},
      {"cuLibraryGetModule", reinterpret_cast<void*>(&cuLibraryGetModule)},
      {"cuLibraryLoadData", reinterpret_cast<void*>(&cuLibraryLoadData)},
      {"cuLibraryUnload", reinterpret_cast<void*>(&cuLibraryUnload)},
      {"cuMemAlloc", reinterpret_cast<void*>(&cuMemAlloc)},
      {"cuMemAllocAsync", reinterpret_cast<void*>(&cuMemAllocAsync)},
      {"cuMemAllocFromPoolAsync", reinterpret_cast<void*>(&cuMemAllocFromPoolAsync)},
      {"cuMemAllocHost", reinterpret_cast<void*>(&cuMemAllocHost)},
      {"cuMemFree", reinterpret_cast<void*>(&cuMemFree)},
      {"cuMemFreeAsync", reinterpret_cast<void*>(&cuMemFreeAsync)},
      {"cuMemFreeHost", reinterpret_cast<void*>(&cuMemFreeHost)},
      {"cuMemGetAddressRange", reinterpret_cast<void*>(&cuMemGetAddressRange)},
      {"cuMemGetInfo", reinterpret_cast<void*>(&cuMemGetInfo)},
      {"cuMemHostAlloc", reinterpret_cast<void*>(&cuMemHostAlloc)},
      {"cuMemHostGetDevicePointer", reinterpret_cast<void*>(&cuMemHostGetDevicePointer)},
      {"cuMemHostRegister", reinterpret_cast<void*>(&cuMemHostRegister)},
      {"cuMemHostUnregister", reinterpret_cast<void*>(&cuMemHostUnregister)},
      {"cuMemPoolCreate", reinterpret_cast<void*>(&cuMemPoolCreate)},
      {"cuMemPoolDestroy", reinterpret_cast<void*>(&cuMemPoolDestroy)},
      {"cuMemPoolSetAttribute", reinterpret_cast<void*>(&cuMemPoolSetAttribute)},
      {"cuMemPoolTrimTo", reinterpret_cast<void*>(&cuMemPoolTrimTo)},
      {"cuMemcpy", reinterpret_cast<void*>(&cuMemcpy)},
      {"cuMemcpyAsync", reinterpret_cast<void*>(&cuMemcpyAsync)},
      {"cuMemcpyDtoD", reinterpret_cast<void*>(&cuMemcpyDtoD)},
      {"cuMemcpyDtoDAsync", reinterpret_cast<void*>(&cuMemcpyDtoDAsync)},
      {"cuMemcpyDtoH", reinterpret_cast<void*>(&cuMemcpyDtoH)},
      {"cuMemcpyDtoHAsync", reinterpret_cast<void*>(&cuMemcpyDtoHAsync)},
      {"cuMemcpyHtoD", reinterpret_cast<void*>(&cuMemcpyHtoD)},
      {"cuMemcpyHtoDAsync", reinterpret_cast<void*>(&cuMemcpyHtoDAsync)},
      {"cuMemcpyPeerAsync", reinterpret_cast<void*>(&cuMemcpyPeerAsync)},
      {"cuMemsetD16", reinterpret_cast<void*>(&cuMemsetD16)},
      {"cuMemsetD16Async", reinterpret_cast<void*>(&cuMemsetD16Async)},
      {"cuMemsetD32", reinterpret_cast<void*>(&cuMemsetD32)},
      {"cuMemsetD32Async", reinterpret_cast<void*>(&cuMemsetD32Async)},
      {"cuMemsetD8", reinterpret_cast<void*>(&cuMemsetD8)},
      {"cuMemsetD8Async", reinterpret_cast<void*>(&cuMemsetD8Async)},
      {"cuModuleGetFunction", reinterpret_cast<void*>(&cuModuleGetFunction)},
      {"cuModuleGetLoadingMode", reinterpret_cast<void*>(&cuModuleGetLoadingMode)},
      {"cuModuleLoadData", reinterpret_cast<void*>(&cuModuleLoadData)},
      {"cuModuleLoadDataEx", reinterpret_cast<void*>(&cuModuleLoadDataEx)},
      {"cuModuleLoadFatBinary", reinterpret_cast<void*>(&cuModuleLoadFatBinary)},
      {"cuModuleUnload", reinterpret_cast<void*>(&cuModuleUnload)},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor",
       reinterpret_cast<void*>(&cuOccupancyMaxActiveBlocksPerMultiprocessor)},
      {"cuPointerGetAttribute", reinterpret_cast<void*>(&cuPointerGetAttribute)},
      {"cuPointerGetAttributes", reinterpret_cast<void*>(&cuPointerGetAttributes)},
      {"cuStreamBeginCapture", reinterpret_cast<void*>(&cuStreamBeginCapture)},
      {"cuStreamCreate", reinterpret_cast<void*>(&cuStreamCreate)},
      {"cuStreamCreateWithPriority", reinterpret_cast<void*>(&cuStreamCreateWithPriority)},
      {"cuStreamDestroy", reinterpret_cast<void*>(&cuStreamDestroy)},
      {"cuStreamEndCapture", reinterpret_cast<void*>(&cuStreamEndCapture)},
      {"cuStreamGetCaptureInfo", reinterpret_cast<void*>(&cuStreamGetCaptureInfo)},
      {"cuStreamGetCtx", reinterpret_cast<void*>(&cuStreamGetCtx)},
      {"cuStreamGetDevice", reinterpret_cast<void*>(&cuStreamGetDevice)},
      {"cuStreamGetFlags", reinterpret_cast<void*>(&cuStreamGetFlags)},
      {"cuStreamGetId", reinterpret_cast<void*>(&cuStreamGetId)},
      {"cuStreamGetPriority", reinterpret_cast<void*>(&cuStreamGetPriority)},
      {"cuStreamIsCapturing", reinterpret_cast<void*>(&cuStreamIsCapturing)},
      {"cuStreamQuery", reinterpret_cast<void*>(&cuStreamQuery)},
      {"cuStreamSynchronize", reinterpret_cast<void*>(&cuStreamSynchronize)},
      {"cuStreamWaitEvent", reinterpret_cast<void*>(&cuStreamWaitEvent)},
      {"cuThreadExchangeStreamCaptureMode",
       reinterpret_cast<void*>(&cuThreadExchangeStreamCaptureMode)},
      // clang-format on
  };
  const auto it = functions.find(name);
  return it == functions.end() ? nullptr : it->second;
}

}  // namespace meshift::fake

extern "C" {

CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  meshift::fake::TheMachine().recorder.Enter("cuGetProcAddress", meshift::fake::kPlainCall,
                                             name == nullptr ? "" : name);
  static_cast<void>(flags);
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = version > CUDA_VERSION ? nullptr : meshift::fake::FindFunction(name);
  if (status != nullptr) {
    *status = *function != nullptr      ? CU_GET_PROC_ADDRESS_SUCCESS
              : version <= CUDA_VERSION ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                        : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  }
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
