// Modules and kernel launches. Only the first bytes of a module's image are examined; kernels.h
// defines the kernels.
#include <cstring>
#include <memory>
#include <set>

#include "testing/fake_gpu/cuda_api.h"
#include "testing/fake_gpu/kernels.h"

namespace meshift::fake {
namespace {

struct Module {
  Context* context = nullptr;
  bool unloaded = false;
};

// A kernel of a module.
struct Function {
  const Kernel* kernel = nullptr;
  Module* module = nullptr;
};

// Guarded by the machine's lock. Objects are kept after they are unloaded.
struct Code {
  std::set<Module*> modules;
  std::map<std::pair<Module*, const Kernel*>, std::unique_ptr<Function>> functions;
  std::set<const Function*> known;
};

Code& TheCode() {
  static Code& code = *new Code();
  return code;
}

bool LooksLikeCode(const void* image) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  constexpr uint32_t kFatbin = 0xba55ed50;
  constexpr uint32_t kFatbinWrapper = 0x466243b1;
  constexpr uint32_t kElf = 0x464c457f;
  // PTX is text, and begins with a comment or a directive.
  const char first = static_cast<char>(magic & 0xff);
  return magic == kFatbin || magic == kFatbinWrapper || magic == kElf || first == '/' ||
         first == '.' || first == '\n';
}

// Whether a fat binary contains machine code, which belongs to the stand-in's toolkit version.
bool HasMachineCode(const void* image) {
  constexpr uint32_t kFatbin = 0xba55ed50;
  constexpr uint16_t kElf = 2;
  struct Header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes;
  } header;
  std::memcpy(&header, image, sizeof(header));
  if (header.magic != kFatbin) return false;
  struct Entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;
  } entry;
  const char* at = static_cast<const char*>(image) + header.header_bytes;
  const char* const end = at + header.bytes;
  for (; at < end; at += entry.header_bytes + entry.bytes) {
    std::memcpy(&entry, at, sizeof(entry));
    if (entry.kind == kElf) return true;
  }
  return false;
}

struct Dims {
  unsigned x, y, z;
};

CUresult Launch(CUfunction handle, Dims grid, Dims block, unsigned shared, CUstream stream_handle,
                void** params) {
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  const auto* function = reinterpret_cast<const Function*>(handle);
  if (!TheCode().known.contains(function)) return CUDA_ERROR_INVALID_HANDLE;
  const Kernel& kernel = *function->kernel;
  const auto violation = [&](const std::string& text) {
    machine.recorder.Violation(fmt::format("cuLaunchKernel of {}: {}", kernel.name, text));
  };
  if (function->module->unloaded) {
    violation("its module was unloaded");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream("cuLaunchKernel", stream_handle, &stream));
  if (stream->context != context || function->module->context != context) {
    violation("the function, the stream and the current context are not of one context");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 ||
      grid.x > 2147483647U || grid.y > 65535 || grid.z > 65535) {
    violation("a grid or a block of a size that a device refuses");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (block.x != kernel.threads || block.y != 1 || block.z != 1 || grid.y != 1 || grid.z != 1 ||
      shared != 0) {
    violation(
        fmt::format("the kernel is for blocks of {} threads, one dimension and no dynamic "
                    "shared memory, not {} x {} x {} and {} bytes",
                    kernel.threads, block.x, block.y, block.z, shared));
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (params == nullptr || params[0] == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto copy = std::make_shared<std::vector<char>>(kernel.param_bytes);
  std::memcpy(copy->data(), params[0], kernel.param_bytes);
  std::vector<Access> accesses;
  if (const std::string error = kernel.describe(copy->data(), &accesses); !error.empty()) {
    violation("wrong parameters: " + error);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!machine.CheckAccesses(kernel.name.c_str(), accesses, context->device)) {
    // As on a device: the launch succeeds, and everything later fails.
    context->sticky_error = CUDA_ERROR_ILLEGAL_ADDRESS;
    return CUDA_SUCCESS;
  }
  const Work work = SimpleWork(kernel.name.c_str(), std::move(accesses), [copy, run = kernel.run] {
    run(copy->data(), TheMachine().memory);
  });
  return machine.Submit(stream, work) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

}  // namespace
}  // namespace meshift::fake

using namespace meshift::fake;  // NOLINT: the functions below implement a C API
using meshift::MutexLock;

extern "C" {

CUresult cuModuleLoadData(CUmodule* result, const void* image) {
  FAKE_ENTER("cuModuleLoadData", kAllocates, "");
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  if (image == nullptr || result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!LooksLikeCode(image)) return CUDA_ERROR_INVALID_IMAGE;
  Machine& machine = TheMachine();
  const int version = machine.options.driver_version;
  if (version != 0 && version / 1000 < CUDA_VERSION / 1000 && HasMachineCode(image)) {
    return CUDA_ERROR_INVALID_IMAGE;  // the image is of a newer toolkit
  }
  MutexLock lock(machine.mutex);
  FAKE_RETURN_IF_ERROR(RefuseInCapture("cuModuleLoadData"));
  auto* module = new Module();
  module->context = context;
  TheCode().modules.insert(module);
  *result = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule handle) {
  FAKE_ENTER("cuModuleUnload", kAllocates, "");
  MutexLock lock(TheMachine().mutex);
  FAKE_RETURN_IF_ERROR(RefuseInCapture("cuModuleUnload"));
  auto* module = reinterpret_cast<Module*>(handle);
  if (!TheCode().modules.contains(module) || module->unloaded) return CUDA_ERROR_INVALID_HANDLE;
  module->unloaded = true;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* result, CUmodule handle, const char* name) {
  FAKE_ENTER("cuModuleGetFunction", kPlainCall, "{}", name == nullptr ? "" : name);
  if (name == nullptr || result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheMachine().mutex);
  Code& code = TheCode();
  auto* module = reinterpret_cast<Module*>(handle);
  if (!code.modules.contains(module) || module->unloaded) return CUDA_ERROR_INVALID_HANDLE;
  const Kernel* kernel = FindKernel(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  std::unique_ptr<Function>& function = code.functions[{module, kernel}];
  if (function == nullptr) function.reset(new Function{.kernel = kernel, .module = module});
  code.known.insert(function.get());
  *result = reinterpret_cast<CUfunction>(function.get());
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  FAKE_ENTER("cuFuncLoad", kAllocates, "");
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                        unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                        CUstream stream, void** params, void** extra) {
  FAKE_ENTER("cuLaunchKernel", kPlainCall, "grid {} {} {} block {} {} {} shared {} stream {}", gx,
             gy, gz, bx, by, bz, shared, static_cast<void*>(stream));
  if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // the other way to pass parameters
  return Launch(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, params);
}

}  // extern "C"
