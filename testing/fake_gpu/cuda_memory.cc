// Allocation and pointers.
#include <cstdlib>
#include <cstring>
#include <map>

#include "testing/fake_gpu/cuda_api.h"

namespace meshift::fake {
namespace {

// Pools are opaque handles.
struct Pools {
  Mutex mutex;
  std::map<CUmemoryPool, int> devices;
  uintptr_t next = 0x2000;
};
Pools& ThePools() {
  static Pools& pools = *new Pools();
  return pools;
}

// The device of a pool; -1, with a violation, if there is none.
int DeviceOf(const char* function, CUmemoryPool pool) {
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

// The live allocation that begins at an address; otherwise null, with a violation.
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
  if (host != (allocation->kind == MemoryKind::kHost)) {
    machine.recorder.Violation(
        fmt::format("{}: {:#x} was not allocated for it", function, address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A free waits for the work of the device, which may still use the memory.
  machine.AwaitDevice(lock, allocation->device);
  machine.memory.Free(allocation);
  if (host) std::free(reinterpret_cast<void*>(address));
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

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* result, size_t bytes, CUmemoryPool pool,
                                 CUstream handle) {
  constexpr const char* kFunction = "cuMemAllocFromPoolAsync";
  FAKE_ENTER(kFunction, kAllocates, "{} bytes", bytes);
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  if (DeviceOf(kFunction, pool) != context->device) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  Stream* stream = nullptr;
  {
    MutexLock lock(machine.mutex);
    FAKE_RETURN_IF_ERROR(FindStream(kFunction, handle, &stream));
    if (stream->capture != nullptr) {
      machine.Invalidate(stream->capture,
                         fmt::format("{} while the stream is captured", kFunction));
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  FAKE_RETURN_IF_ERROR(AllocateNow(kFunction, bytes, MemoryKind::kPool, result));
  // Other streams must order their work after the allocation: for races it counts as a write.
  MutexLock lock(machine.mutex);
  Work work = WaitWork("the allocation");
  work.accesses = {{.address = *result, .bytes = bytes, .write = true}};
  machine.Submit(stream, work);
  return CUDA_SUCCESS;
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
  // Work issued from now on must not use the memory; earlier work still may.
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

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  FAKE_ENTER("cuMemPoolSetAttribute", kPlainCall, "{}", static_cast<int>(attribute));
  return pool == nullptr || value == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** result, size_t bytes, unsigned int flags) {
  FAKE_ENTER("cuMemHostAlloc", kAllocates, "{} bytes, flags {}", bytes, flags);
  if (result == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  FAKE_RETURN_IF_ERROR(RefuseInCapture("cuMemHostAlloc"));
  const uint64_t whole = (bytes + 4095) / 4096 * 4096;
  *result = std::aligned_alloc(4096, whole);
  if (*result == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(*result, static_cast<int>(machine.random.Below(255)) + 1, whole);
  machine.memory.AddHost(reinterpret_cast<uint64_t>(*result), bytes, context->device);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* memory) {
  FAKE_ENTER("cuMemFreeHost", kAllocates | kSynchronises, "{}", memory);
  return FreeNow("cuMemFreeHost", reinterpret_cast<uint64_t>(memory), /*host=*/true);
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  FAKE_ENTER("cuPointerGetAttribute", kPlainCall, "{} of {:#x}", static_cast<int>(attribute),
             address);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  const Allocation* known = machine.memory.Find(address);
  if (known == nullptr || known->freed) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) =
          known->kind == MemoryKind::kHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = known->device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = known->base;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // extern "C"
