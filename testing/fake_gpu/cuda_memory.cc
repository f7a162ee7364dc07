// Allocation and pointers.
#include <cstdlib>
#include <cstring>
#include <map>

#include "testing/fake_gpu/cuda_api.h"

namespace meshift::fake {
namespace {

// The default pool of a device is an opaque handle; others that were made, by their handles.
CUmemoryPool PoolOf(int device) {
  return reinterpret_cast<CUmemoryPool>(static_cast<uintptr_t>(0x1000 + device));
}
struct Pools {
  Mutex mutex;
  std::map<CUmemoryPool, int> devices;
  uintptr_t next = 0x2000;
};
Pools& ThePools() {
  static Pools& pools = *new Pools();
  return pools;
}

// The device of a pool; -1, with a violation, where there is none.
int DeviceOf(const char* function, CUmemoryPool pool) {
  for (int device = 0; device < TheMachine().options.devices; ++device) {
    if (pool == PoolOf(device)) return device;
  }
  MutexLock lock(ThePools().mutex);
  const auto found = ThePools().devices.find(pool);
  if (found != ThePools().devices.end()) return found->second;
  TheMachine().recorder.Violation(fmt::format("{}: no such pool", function));
  return -1;
}

CUresult AllocateNow(const char* function, uint64_t bytes, MemoryKind kind, CUdeviceptr* result) {
  if (result == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  if (kind == MemoryKind::kDevice) FAKE_RETURN_IF_ERROR(RefuseInCapture(function));
  *result = machine.memory.Allocate(context->device, bytes, kind, &machine.random);
  return *result == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

// The live allocation that begins at an address; else a violation and null.
Allocation* ToFree(const char* function, uint64_t address) {
  Machine& machine = TheMachine();
  Allocation* allocation = machine.memory.Find(address);
  if (allocation == nullptr || allocation->base != address) {
    machine.recorder.Violation(
        fmt::format("{}: {:#x} is not the start of an allocation", function, address));
    return nullptr;
  }
  if (allocation->freed) {
    machine.recorder.Violation(fmt::format("{}: {:#x} is freed twice", function, address));
    return nullptr;
  }
  return allocation;
}

CUresult FreeNow(const char* function, uint64_t address, bool host) {
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  FAKE_RETURN_IF_ERROR(RefuseInCapture(function));
  Allocation* allocation = ToFree(function, address);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_host = allocation->kind == MemoryKind::kHost;
  if (is_host != host || allocation->kind == MemoryKind::kRegistered) {
    machine.recorder.Violation(
        fmt::format("{}: {:#x} was not allocated for it", function, address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Frees wait for the work of the device, which may still use the memory.
  machine.AwaitDevice(lock, allocation->device);
  machine.memory.Free(allocation);
  if (host) std::free(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}

CUresult AllocateHost(const char* function, void** result, uint64_t bytes, unsigned flags) {
  if (result == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  FAKE_RETURN_IF_ERROR(RefuseInCapture(function));
  const uint64_t whole = (bytes + 4095) / 4096 * 4096;
  *result = std::aligned_alloc(4096, whole);
  if (*result == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(*result, static_cast<int>(machine.random.Below(255)) + 1, whole);
  Allocation* allocation = machine.memory.AddHost(reinterpret_cast<uint64_t>(*result), bytes,
                                                  context->device, MemoryKind::kHost);
  allocation->flags = flags;
  return CUDA_SUCCESS;
}

CUresult AllocateOnStream(const char* function, CUdeviceptr* result, size_t bytes,
                          CUstream handle) {
  Stream* stream = nullptr;
  {
    Machine& machine = TheMachine();
    MutexLock lock(machine.mutex);
    FAKE_RETURN_IF_ERROR(FindStream(function, handle, &stream));
    if (stream->capture != nullptr) {
      machine.Invalidate(stream->capture, fmt::format("{} while the stream is captured", function));
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  FAKE_RETURN_IF_ERROR(AllocateNow(function, bytes, MemoryKind::kPool, result));
  // Work elsewhere must come after the allocation in the stream: a write, as far as order goes.
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Work work = WaitWork("the allocation");
  work.accesses = {{.address = *result, .bytes = bytes, .write = true}};
  machine.Submit(stream, work);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  FAKE_ENTER("cuMemGetInfo", kPlainCall, "");
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  *total = machine.memory.total();
  *free = *total - machine.memory.used(context->device);
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* result, size_t bytes) {
  FAKE_ENTER("cuMemAlloc", kAllocates, "{} bytes", bytes);
  return AllocateNow("cuMemAlloc", bytes, MemoryKind::kDevice, result);
}

CUresult cuMemFree(CUdeviceptr address) {
  FAKE_ENTER("cuMemFree", kAllocates | kSynchronises, "{:#x}", address);
  if (address == 0) return CUDA_SUCCESS;
  return FreeNow("cuMemFree", address, /*host=*/false);
}

CUresult cuMemAllocAsync(CUdeviceptr* result, size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemAllocAsync", kAllocates, "{} bytes", bytes);
  return AllocateOnStream("cuMemAllocAsync", result, bytes, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* result, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  FAKE_ENTER("cuMemAllocFromPoolAsync", kAllocates, "{} bytes", bytes);
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  if (DeviceOf("cuMemAllocFromPoolAsync", pool) != context->device) return CUDA_ERROR_INVALID_VALUE;
  return AllocateOnStream("cuMemAllocFromPoolAsync", result, bytes, stream);
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  FAKE_ENTER("cuMemPoolCreate", kAllocates, "");
  if (pool == nullptr || props == nullptr || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->location.id < 0 ||
      props->location.id >= TheMachine().options.devices) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MutexLock lock(ThePools().mutex);
  *pool = reinterpret_cast<CUmemoryPool>(ThePools().next++);
  ThePools().devices[*pool] = props->location.id;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  FAKE_ENTER("cuMemPoolDestroy", kAllocates, "");
  MutexLock lock(ThePools().mutex);
  if (ThePools().devices.erase(pool) == 1) return CUDA_SUCCESS;
  TheMachine().recorder.Violation("cuMemPoolDestroy of what cuMemPoolCreate did not make");
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  FAKE_ENTER("cuMemFreeAsync", kAllocates, "{:#x}", address);
  if (address == 0) return CUDA_SUCCESS;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuMemFreeAsync", handle, &stream));
  if (stream->capture != nullptr) {
    machine.Invalidate(stream->capture, "cuMemFreeAsync while the stream is captured");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  Allocation* allocation = ToFree("cuMemFreeAsync", address);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work = WaitWork("the free");
  work.accesses = {{.address = address, .bytes = allocation->bytes, .write = true}};
  machine.Submit(stream, work);
  // What is issued from now on must not use it; what was issued before still may.
  allocation->freed = true;
  const uint64_t id = allocation->id;
  Work release = SimpleWork("release", {}, [address, id] {
    Machine& the_machine = TheMachine();
    MutexLock relock(the_machine.mutex);
    Allocation* freed = the_machine.memory.Find(address);
    if (freed != nullptr && freed->id == id) the_machine.memory.Free(freed);
  });
  machine.Submit(stream, release);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  FAKE_ENTER("cuDeviceGetDefaultMemPool", kPlainCall, "{}", device);
  if (device < 0 || device >= TheMachine().options.devices) return CUDA_ERROR_INVALID_DEVICE;
  *pool = PoolOf(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  FAKE_ENTER("cuMemPoolTrimTo", kAllocates, "{}", keep);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  FAKE_ENTER("cuMemPoolSetAttribute", kPlainCall, "{}", static_cast<int>(attribute));
  return pool == nullptr || value == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** result, size_t bytes, unsigned int flags) {
  FAKE_ENTER("cuMemHostAlloc", kAllocates, "{} bytes", bytes);
  return AllocateHost("cuMemHostAlloc", result, bytes, flags);
}

CUresult cuMemAllocHost(void** result, size_t bytes) {
  FAKE_ENTER("cuMemAllocHost", kAllocates, "{} bytes", bytes);
  return AllocateHost("cuMemAllocHost", result, bytes, 0);
}

CUresult cuMemFreeHost(void* memory) {
  FAKE_ENTER("cuMemFreeHost", kAllocates | kSynchronises, "{}", memory);
  return FreeNow("cuMemFreeHost", reinterpret_cast<uint64_t>(memory), /*host=*/true);
}

CUresult cuMemHostRegister(void* memory, size_t bytes, unsigned int flags) {
  FAKE_ENTER("cuMemHostRegister", kAllocates, "{} {} bytes", memory, bytes);
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  if (memory == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  const auto base = reinterpret_cast<uint64_t>(memory);
  const Allocation* known = machine.memory.Find(base);
  if (known != nullptr && base < known->base + known->bytes) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  machine.memory.AddHost(base, bytes, context->device, MemoryKind::kRegistered)->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* memory) {
  FAKE_ENTER("cuMemHostUnregister", kAllocates | kSynchronises, "{}", memory);
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Allocation* known = machine.memory.Find(reinterpret_cast<uint64_t>(memory));
  if (known == nullptr || known->kind != MemoryKind::kRegistered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  machine.AwaitDevice(lock, known->device);
  machine.memory.Free(known);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* result, void* memory, unsigned int flags) {
  FAKE_ENTER("cuMemHostGetDevicePointer", kPlainCall, "{}", memory);
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  const Allocation* known = machine.memory.Find(reinterpret_cast<uint64_t>(memory));
  if (flags != 0 || known == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *result = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  FAKE_ENTER("cuMemGetAddressRange", kPlainCall, "{:#x}", address);
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  const Allocation* known = machine.memory.Find(address);
  if (known == nullptr || known->freed) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = known->base;
  if (bytes != nullptr) *bytes = known->bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  FAKE_ENTER("cuPointerGetAttribute", kPlainCall, "{} of {:#x}", static_cast<int>(attribute),
             address);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  const Allocation* known = machine.memory.Find(address);
  if (known == nullptr || known->freed) return CUDA_ERROR_INVALID_VALUE;
  const bool host = known->kind == MemoryKind::kHost || known->kind == MemoryKind::kRegistered;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = reinterpret_cast<CUcontext>(
          &machine.devices[static_cast<size_t>(known->device)]->primary);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(data) = reinterpret_cast<void*>(address);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<int*>(data) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = known->id;  // NOLINT: the API's type
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = known->device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = known->base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(data) = known->bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<bool*>(data) = true;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  FAKE_ENTER("cuPointerGetAttributes", kPlainCall, "{} of {:#x}", count, address);
  bool known = false;
  {
    Machine& machine = TheMachine();
    MutexLock lock(machine.mutex);
    const Allocation* allocation = machine.memory.Find(address);
    known = allocation != nullptr && !allocation->freed;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (known && cuPointerGetAttribute(data[i], attributes[i], address) == CUDA_SUCCESS) continue;
    // Unknown pointers are no error here; what is asked is then nothing.
    if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *static_cast<unsigned*>(data[i]) = 0;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(data[i]) = -2;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT) *static_cast<void**>(data[i]) = nullptr;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
