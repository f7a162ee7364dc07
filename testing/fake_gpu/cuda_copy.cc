// Copies and fills in streams.
#include <cstring>
#include <memory>
#include <vector>

#include "testing/fake_gpu/cuda_api.h"

namespace meshift::fake {
namespace {

// Whether the driver has allocated or registered the address. Needs the lock.
bool Known(uint64_t address) {
  Machine& machine = TheMachine();
  const Allocation* allocation = machine.memory.Find(address);
  return machine.memory.IsDevice(address) ||
         (allocation != nullptr && address < allocation->base + allocation->bytes);
}

struct Copy {
  const char* name;
  uint64_t dst;
  uint64_t src;
  uint64_t bytes;
};

Work CopyWork(const Copy& copy, bool dst_known, bool src_known) {
  std::vector<Access> accesses;
  if (src_known) accesses.push_back({.address = copy.src, .bytes = copy.bytes, .write = false});
  if (dst_known) accesses.push_back({.address = copy.dst, .bytes = copy.bytes, .write = true});
  return SimpleWork(copy.name, accesses, [copy] {
    const DeviceMemory& memory = TheMachine().memory;
    std::memmove(memory.Bytes(copy.dst), memory.Bytes(copy.src), copy.bytes);
  });
}

// As cuMemcpyAsync: the call reads pageable host memory before it returns, and waits until it has
// written such memory.
CUresult CopyInStream(const Copy& copy, CUstream handle) {
  if (copy.bytes == 0) return CUDA_SUCCESS;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream(copy.name, handle, &stream));
  const bool dst_known = Known(copy.dst);
  const bool src_known = Known(copy.src);
  Work work = CopyWork(copy, dst_known, src_known);
  const bool pageable = !dst_known || !src_known;
  if (pageable && stream->capture != nullptr) {
    machine.Invalidate(stream->capture,
                       fmt::format("{} of pageable host memory in a capture", copy.name));
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (pageable && machine.recorder.Hot()) {
    machine.recorder.Violation(
        fmt::format("{} of pageable host memory on the hot path: it may block", copy.name));
  }
  if (!src_known) {
    auto staged = std::make_shared<std::vector<char>>(copy.bytes);
    std::memcpy(staged->data(), reinterpret_cast<const void*>(copy.src), copy.bytes);
    work = SimpleWork(copy.name, work.accesses, [copy, staged] {
      std::memcpy(TheMachine().memory.Bytes(copy.dst), staged->data(), copy.bytes);
    });
  }
  FAKE_RETURN_IF_ERROR(SubmitChecked(stream, work));
  return dst_known ? CUDA_SUCCESS : AwaitPoint(lock, stream->tail, stream->context);
}

CUresult RequireDevice(const char* name, uint64_t address, uint64_t bytes) {
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  if (bytes == 0 || Known(address)) return CUDA_SUCCESS;
  machine.recorder.Violation(fmt::format("{}: {:#x} is not device memory", name, address));
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult RequireHost(const char* name, const void* memory, uint64_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(memory);
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  if (bytes == 0 || !machine.memory.IsDevice(address)) return CUDA_SUCCESS;
  machine.recorder.Violation(fmt::format("{}: {:#x} is not host memory", name, address));
  return CUDA_ERROR_INVALID_VALUE;
}

uint64_t AddressOf(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

}  // namespace
}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemcpyAsync", kPlainCall, "{:#x} <- {:#x}, {} bytes", dst, src, bytes);
  return CopyInStream({"cuMemcpyAsync", dst, src, bytes}, stream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemcpyHtoDAsync", kPlainCall, "{:#x}, {} bytes", dst, bytes);
  FAKE_RETURN_IF_ERROR(RequireDevice("cuMemcpyHtoDAsync", dst, bytes));
  FAKE_RETURN_IF_ERROR(RequireHost("cuMemcpyHtoDAsync", src, bytes));
  return CopyInStream({"cuMemcpyHtoDAsync", dst, AddressOf(src), bytes}, stream);
}

CUresult cuMemcpyDtoHAsync(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemcpyDtoHAsync", kPlainCall, "{:#x}, {} bytes", src, bytes);
  FAKE_RETURN_IF_ERROR(RequireDevice("cuMemcpyDtoHAsync", src, bytes));
  FAKE_RETURN_IF_ERROR(RequireHost("cuMemcpyDtoHAsync", dst, bytes));
  return CopyInStream({"cuMemcpyDtoHAsync", AddressOf(dst), src, bytes}, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemcpyDtoDAsync", kPlainCall, "{:#x} <- {:#x}, {} bytes", dst, src, bytes);
  FAKE_RETURN_IF_ERROR(RequireDevice("cuMemcpyDtoDAsync", dst, bytes));
  FAKE_RETURN_IF_ERROR(RequireDevice("cuMemcpyDtoDAsync", src, bytes));
  return CopyInStream({"cuMemcpyDtoDAsync", dst, src, bytes}, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream handle) {
  FAKE_ENTER("cuMemsetD8Async", kPlainCall, "{:#x} {} times {}", dst, count, value);
  FAKE_RETURN_IF_ERROR(RequireDevice("cuMemsetD8Async", dst, count));
  if (count == 0) return CUDA_SUCCESS;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuMemsetD8Async", handle, &stream));
  const std::vector<Access> accesses = {{.address = dst, .bytes = count, .write = true}};
  return SubmitChecked(stream, SimpleWork("cuMemsetD8Async", accesses, [=] {
                         std::memset(TheMachine().memory.Bytes(dst), value, count);
                       }));
}

}  // extern "C"
