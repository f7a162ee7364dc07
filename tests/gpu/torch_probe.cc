#include "tests/gpu/torch_probe.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "tests/gpu/one_device.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

std::string Variable(const char* name, const char* otherwise = "") {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

constexpr const char* kHostScript = R"(
import os, statistics, time
import torch, torch.distributed as dist
torch.cuda.set_device(0)
device = torch.device("cuda", 0)
dist.init_process_group("nccl", device_id=device)
data = torch.zeros(2, device=device)
times = []
for round in range(11):
    for _ in range(5):
        begin = time.perf_counter()
        dist.all_reduce(data)
        if round > 0:
            times.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
if dist.get_rank() == 0:
    with open(os.environ["MESHIFT_PROBE_RESULT"], "w") as file:
        file.write("torch.distributed.all_reduce %.1f us" % (1e6 * statistics.median(times)))
dist.destroy_process_group()
)";

// {0}, {1}: the addresses for the communicator's and the stream's handle; {2}: the store's port.
constexpr const char* kLendScript = R"(
import ctypes, os
import torch, torch.distributed as dist
torch.cuda.set_device(0)
meshift_device = torch.device("cuda", 0)
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:{2}", rank=int(os.environ["RANK"]),
                        world_size=int(os.environ["WORLD_SIZE"]), device_id=meshift_device)
meshift_data = torch.zeros(2, device=meshift_device)
dist.all_reduce(meshift_data)
torch.cuda.synchronize()
meshift_stream = torch.cuda.Stream()
meshift_backend = dist.distributed_c10d._get_default_group()._get_backend(meshift_device)
ctypes.c_uint64.from_address({0}).value = meshift_backend._comm_ptr()
ctypes.c_uint64.from_address({1}).value = meshift_stream.cuda_stream
)";

// The Python interpreter in this process.
class Python {
 public:
  static absl::StatusOr<std::unique_ptr<Python>> Start() {
    const std::string library = Variable("MESHIFT_LIBPYTHON");
    if (library.empty()) {
      return absl::UnimplementedError("that Python has no shared library to load");
    }
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) {
      return absl::UnimplementedError(fmt::format("cannot load {}: {}", library, dlerror()));
    }
    std::unique_ptr<Python> python(new Python());
    const auto find = [&](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(handle, name));
      return *function != nullptr;
    };
    void (*initialize)(int) = nullptr;
    if (!find("Py_InitializeEx", &initialize) || !find("PyRun_SimpleString", &python->run_) ||
        !find("PyEval_SaveThread", &python->save_) ||
        !find("PyEval_RestoreThread", &python->restore_)) {
      return absl::UnimplementedError(fmt::format("{} is not a Python library", library));
    }
    setenv("PYTHONHOME", Variable("MESHIFT_PYTHON_HOME").c_str(), 1);
    setenv("PYTHONPATH", Variable("MESHIFT_PYTHON_PATH").c_str(), 1);
    initialize(0);
    return python;
  }

  // On failure the traceback is on stderr.
  absl::Status Run(const std::string& program) {
    if (thread_ != nullptr) restore_(std::exchange(thread_, nullptr));
    if (run_(program.c_str()) == 0) return absl::OkStatus();
    return Internal("Python has failed");
  }
  // Lets PyTorch's own threads use the interpreter meanwhile.
  void LetGo() { thread_ = save_(); }

 private:
  Python() = default;

  int (*run_)(const char*) = nullptr;
  void* (*save_)() = nullptr;
  void (*restore_)(void*) = nullptr;
  void* thread_ = nullptr;
};

// Makes 1,000 redistributions, or as many as time allows, on the lent communicator.
absl::StatusOr<int> CallEngine(const NcclLent& lent, Bootstrap& bootstrap) {
  constexpr int kCalls = 1000;
  constexpr int kRound = 50;
  constexpr std::chrono::seconds kBudget(6);
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, NcclEngine::FromLent(lent));
  const int64_t ranks = engine->world_size();
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Create({{"x", ranks}}));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[2]", mesh, "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  MESHIFT_ASSIGN_OR_RETURN(
      Redistributor redistribute,
      Redistributor::Create(mesh, engine.get(), {.agreement = Agreement::kOff}));
  MESHIFT_ASSIGN_OR_RETURN(const auto source, engine->Allocate(8));
  MESHIFT_ASSIGN_OR_RETURN(const auto target, engine->Allocate(8));
  MESHIFT_ASSIGN_OR_RETURN(const auto stream, engine->CreateStream());
  const float ones[2] = {1, 1};
  MESHIFT_RETURN_IF_ERROR(engine->CopyIn(ones, source->data(), sizeof(ones), *stream));
  MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));
  const TensorView in = TensorView::Contiguous(source->data(), from.dtype(), Shape{2});
  const TensorView out = TensorView::Contiguous(target->data(), from.dtype(), Shape{2});
  const auto begin = Clock::now();
  int calls = 0;
  while (calls < kCalls) {
    RunHandle last;
    for (int i = 0; i < kRound; ++i, ++calls) {
      MESHIFT_ASSIGN_OR_RETURN(last,
                               redistribute({.from = from, .to = to, .source = in, .target = out}));
    }
    MESHIFT_RETURN_IF_ERROR(last.Wait());
    // Rank 0 decides for all.
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> late,
                             bootstrap.Exchange(Clock::now() - begin > kBudget ? "late" : ""));
    if (!late[0].empty()) break;
  }
  float got[2] = {};
  MESHIFT_RETURN_IF_ERROR(engine->CopyOut(target->data(), got, sizeof(got), *stream));
  MESHIFT_RETURN_IF_ERROR(engine->Synchronize(*stream));
  const auto want = static_cast<float>(ranks);
  if (got[0] != want || got[1] != want) {
    return Internal("{} and {} instead of {}", got[0], got[1], want);
  }
  return calls;
}

absl::StatusOr<std::string> ProbeLent(bool blocking) {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, Bootstrap::FromTorchrun());
  MESHIFT_ASSIGN_OR_RETURN(const int free, FreePort());
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<std::string> ports,
                           bootstrap->Exchange(std::to_string(free)));
  setenv("TORCH_NCCL_USE_COMM_NONBLOCKING", blocking ? "0" : "1", 1);
  MESHIFT_ASSIGN_OR_RETURN(const auto python, Python::Start());
  uint64_t communicator = 0;
  uint64_t stream = 0;
  MESHIFT_RETURN_IF_ERROR(
      python->Run(fmt::format(fmt::runtime(kLendScript), reinterpret_cast<uintptr_t>(&communicator),
                              reinterpret_cast<uintptr_t>(&stream), ports[0])));
  python->LetGo();
  MESHIFT_ASSIGN_OR_RETURN(const int calls,
                           CallEngine({.communicator = reinterpret_cast<void*>(communicator),
                                       .stream = reinterpret_cast<void*>(stream)},
                                      *bootstrap));
  MESHIFT_RETURN_IF_ERROR(
      python->Run("dist.all_reduce(meshift_data)\n"
                  "torch.cuda.synchronize()\n"
                  "dist.destroy_process_group()\n"));
  MESHIFT_RETURN_IF_ERROR(bootstrap->Exchange("").status());
  return fmt::format(
      "{} calls on a {} communicator that PyTorch lent are right, and so is its own "
      "call after them",
      calls, blocking ? "blocking" : "non-blocking");
}

}  // namespace

absl::StatusOr<std::string> ProbeTorchHost() {
  const std::string python = Variable("MESHIFT_PYTHON", "python3");
  execlp(python.c_str(), python.c_str(), "-c", kHostScript, static_cast<char*>(nullptr));
  return absl::UnimplementedError(fmt::format("cannot start {}: {}", python, std::strerror(errno)));
}

absl::StatusOr<std::string> ProbeLentBlocking() { return ProbeLent(/*blocking=*/true); }
absl::StatusOr<std::string> ProbeLentNonBlocking() { return ProbeLent(/*blocking=*/false); }

std::string TorchFactsScript() {
  return R"(
import os, sys, sysconfig
try:
    import torch
except Exception as error:
    print("no PyTorch:", str(error).splitlines()[0])
    sys.exit(1)
if not torch.cuda.is_available():
    print("PyTorch", torch.__version__, "sees no GPU")
    sys.exit(2)
library = os.path.join(sysconfig.get_config_var("LIBDIR") or "",
                       sysconfig.get_config_var("INSTSONAME") or "")
print("torch", torch.__version__)
print(library if ".so" in library and os.path.isfile(library) else "")
print(sys.base_prefix)
print(":".join(folder for folder in sys.path if folder))
)";
}

std::vector<std::string> PythonFacts::Environment() const {
  return {"MESHIFT_PYTHON=" + program, "MESHIFT_LIBPYTHON=" + library,
          "MESHIFT_PYTHON_HOME=" + home, "MESHIFT_PYTHON_PATH=" + path};
}

}  // namespace meshift
