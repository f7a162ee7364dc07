// Modules, libraries and launches. A module's image is not looked at beyond its first bytes: which
// kernels there are is what kernels.h says.
#include <cstring>
#include <memory>
#include <set>

#include "testing/fake_gpu/cuda_api.h"
#include "testing/fake_gpu/kernels.h"

namespace meshift::fake {
namespace {

struct Module {
  Context* context = nullptr;  // null: of a library
  bool unloaded = false;
};

// A kernel of a module.
struct Function {
  const Kernel* kernel = nullptr;
  Module* module = nullptr;
};

// Guarded by the machine's lock. Objects stay when they are unloaded.
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

// Whether a fat binary has machine code, which is of the toolkit that the stand-in is of.
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

CUresult Load(const char* name, const void* image, Context* context, Module** result) {
  if (image == nullptr || result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!LooksLikeCode(image)) return CUDA_ERROR_INVALID_IMAGE;
  Machine& machine = TheMachine();
  const int version = machine.options.driver_version;
  if (version != 0 && version / 1000 < CUDA_VERSION / 1000 && HasMachineCode(image)) {
    return CUDA_ERROR_INVALID_IMAGE;  // of a newer toolkit
  }
  MutexLock lock(machine.mutex);
  FAKE_RETURN_IF_ERROR(RefuseInCapture(name));
  auto* module = new Module();
  module->context = context;
  TheCode().modules.insert(module);
  *result = module;
  return CUDA_SUCCESS;
}

CUresult Unload(const char* name, Module* module) {
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  FAKE_RETURN_IF_ERROR(RefuseInCapture(name));
  if (!TheCode().modules.contains(module) || module->unloaded) return CUDA_ERROR_INVALID_HANDLE;
  module->unloaded = true;
  return CUDA_SUCCESS;
}

CUresult GetFunction(Module* module, const char* name, Function** result) {
  if (name == nullptr || result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  Code& code = TheCode();
  if (!code.modules.contains(module) || module->unloaded) return CUDA_ERROR_INVALID_HANDLE;
  const Kernel* kernel = FindKernel(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  std::unique_ptr<Function>& function = code.functions[{module, kernel}];
  if (function == nullptr) function.reset(new Function{.kernel = kernel, .module = module});
  code.known.insert(function.get());
  *result = function.get();
  return CUDA_SUCCESS;
}

struct Dims {
  unsigned x, y, z;
};

CUresult Launch(const char* name, CUfunction handle, Dims grid, Dims block, unsigned shared,
                CUstream stream_handle, void** params, void** extra) {
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  const auto* function = reinterpret_cast<const Function*>(handle);
  if (!TheCode().known.contains(function)) return CUDA_ERROR_INVALID_HANDLE;
  const Kernel& kernel = *function->kernel;
  const auto violation = [&](const std::string& text) {
    machine.recorder.Violation(fmt::format("{} of {}: {}", name, kernel.name, text));
  };
  if (function->module->unloaded) {
    violation("its module was unloaded");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Stream* stream = nullptr;
  FAKE_RETURN_IF_ERROR(FindStream(name, stream_handle, &stream));
  if (stream->context != context ||
      (function->module->context != nullptr && function->module->context != context)) {
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
  auto copy = std::make_shared<std::vector<char>>(kernel.param_bytes);
  if (params != nullptr) {
    if (params[0] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(copy->data(), params[0], kernel.param_bytes);
  } else if (extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
      if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<size_t*>(extra[1]);
    }
    if (buffer == nullptr || bytes != kernel.param_bytes) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(copy->data(), buffer, bytes);
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
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

CUresult FunctionAttribute(int* value, CUfunction_attribute attribute) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = 90;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return CUDA_SUCCESS;
  }
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
  return Load("cuModuleLoadData", image, context, reinterpret_cast<Module**>(result));
}

CUresult cuModuleLoadDataEx(CUmodule* result, const void* image, unsigned int num_options,
                            CUjit_option* options, void** values) {
  FAKE_ENTER("cuModuleLoadDataEx", kAllocates, "{} options", num_options);
  if (num_options > 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  return Load("cuModuleLoadDataEx", image, context, reinterpret_cast<Module**>(result));
}

CUresult cuModuleLoadFatBinary(CUmodule* result, const void* image) {
  FAKE_ENTER("cuModuleLoadFatBinary", kAllocates, "");
  Context* context = nullptr;
  FAKE_RETURN_IF_ERROR(CurrentContext(&context));
  return Load("cuModuleLoadFatBinary", image, context, reinterpret_cast<Module**>(result));
}

CUresult cuModuleUnload(CUmodule module) {
  FAKE_ENTER("cuModuleUnload", kAllocates, "");
  return Unload("cuModuleUnload", reinterpret_cast<Module*>(module));
}

CUresult cuModuleGetFunction(CUfunction* result, CUmodule module, const char* name) {
  FAKE_ENTER("cuModuleGetFunction", kPlainCall, "{}", name == nullptr ? "" : name);
  return GetFunction(reinterpret_cast<Module*>(module), name, reinterpret_cast<Function**>(result));
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  FAKE_ENTER("cuModuleGetLoadingMode", kPlainCall, "");
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* result, const void* code, CUjit_option* jit_options,
                           void** jit_values, unsigned int num_jit, CUlibraryOption* options,
                           void** values, unsigned int num_options) {
  FAKE_ENTER("cuLibraryLoadData", kAllocates, "{} options", num_jit + num_options);
  static_cast<void>(jit_options);
  static_cast<void>(jit_values);
  static_cast<void>(options);
  static_cast<void>(values);
  return Load("cuLibraryLoadData", code, nullptr, reinterpret_cast<Module**>(result));
}

CUresult cuLibraryUnload(CUlibrary library) {
  FAKE_ENTER("cuLibraryUnload", kAllocates, "");
  return Unload("cuLibraryUnload", reinterpret_cast<Module*>(library));
}

CUresult cuLibraryGetKernel(CUkernel* result, CUlibrary library, const char* name) {
  FAKE_ENTER("cuLibraryGetKernel", kPlainCall, "{}", name == nullptr ? "" : name);
  return GetFunction(reinterpret_cast<Module*>(library), name,
                     reinterpret_cast<Function**>(result));
}

CUresult cuLibraryGetModule(CUmodule* result, CUlibrary library) {
  FAKE_ENTER("cuLibraryGetModule", kPlainCall, "");
  *result = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* result, CUkernel kernel) {
  FAKE_ENTER("cuKernelGetFunction", kPlainCall, "");
  *result = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  FAKE_ENTER("cuFuncGetAttribute", kPlainCall, "{}", static_cast<int>(attribute));
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return FunctionAttribute(value, attribute);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  FAKE_ENTER("cuFuncSetAttribute", kPlainCall, "{} {}", static_cast<int>(attribute), value);
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  FAKE_ENTER("cuFuncGetName", kPlainCall, "");
  Machine& machine = TheMachine();
  MutexLock lock(machine.mutex);
  const auto* known = reinterpret_cast<const Function*>(function);
  if (!TheCode().known.contains(known)) return CUDA_ERROR_INVALID_HANDLE;
  *name = known->kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  FAKE_ENTER("cuFuncLoad", kAllocates, "");
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t shared) {
  FAKE_ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor", kPlainCall, "{} {}", threads, shared);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = threads > 1024 ? 0 : 2048 / threads;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                        unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                        CUstream stream, void** params, void** extra) {
  FAKE_ENTER("cuLaunchKernel", kPlainCall, "grid {} {} {} block {} {} {} shared {} stream {}", gx,
             gy, gz, bx, by, bz, shared, static_cast<void*>(stream));
  return Launch("cuLaunchKernel", function, {gx, gy, gz}, {bx, by, bz}, shared, stream, params,
                extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                          void** extra) {
  FAKE_ENTER("cuLaunchKernelEx", kPlainCall, "");
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Launch("cuLaunchKernelEx", function,
                {config->gridDimX, config->gridDimY, config->gridDimZ},
                {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes,
                config->hStream, params, extra);
}

}  // extern "C"
