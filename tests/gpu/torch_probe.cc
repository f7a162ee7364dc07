#include "tests/gpu/torch_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace meshift {
namespace {

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

// Arguments: the library of torch_lent.cc; 1 if groups are split from the communicator, else 0.
constexpr const char* kLendScript = R"(
import ctypes, os, sys
import torch, torch.distributed as dist
calls = 500
may_split = int(sys.argv[2])
torch.cuda.set_device(0)
device = torch.device("cuda", 0)
dist.init_process_group("nccl", device_id=device)
data = torch.ones(2, device=device)
dist.all_reduce(data)
torch.cuda.synchronize()
stream = torch.cuda.Stream()
backend = dist.distributed_c10d._get_default_group()._get_backend(device)
# The NCCL that PyTorch has loaded.
nccl = ctypes.CDLL(os.environ.get("MESHIFT_NCCL_LIBRARY") or "libnccl.so.2")
error = ctypes.create_string_buffer(4096)
if ctypes.CDLL(sys.argv[1]).meshift_call_on_lent(
        ctypes.c_void_p(backend._comm_ptr()), ctypes.c_void_p(stream.cuda_stream),
        ctypes.cast(nccl.ncclAllReduce, ctypes.c_void_p), may_split, calls, error,
        ctypes.c_size_t(len(error))) != 0:
    print(error.value.decode(), file=sys.stderr, flush=True)
    os._exit(1)
dist.all_reduce(data)
torch.cuda.synchronize()
ranks = int(os.environ["WORLD_SIZE"])
assert data.tolist() == [ranks * ranks] * 2, data
if dist.get_rank() == 0:
    with open(os.environ["MESHIFT_PROBE_RESULT"], "w") as file:
        file.write("%d calls on %s communicator that PyTorch lent are right, and so is its own call after them"
                   % (calls, sys.argv[3]))
dist.destroy_process_group()
)";

// Becomes Python; returns only if that fails.
absl::Status BecomePython(const char* script, std::vector<const char*> arguments) {
  const std::string python = Variable("MESHIFT_PYTHON", "python3");
  arguments.insert(arguments.begin(), {python.c_str(), "-c", script});
  arguments.push_back(nullptr);
  execvp(python.c_str(), const_cast<char* const*>(arguments.data()));
  return absl::UnimplementedError(fmt::format("cannot start {}: {}", python, std::strerror(errno)));
}

absl::Status ProbeLent(bool blocking, bool may_split, const char* kind) {
  setenv("TORCH_NCCL_USE_COMM_NONBLOCKING", blocking ? "0" : "1", 1);
  // A fault prints Python's stack.
  setenv("PYTHONFAULTHANDLER", "1", 1);
  std::error_code error;
  const std::string library =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "libtorch_lent.so";
  return BecomePython(kLendScript, {library.c_str(), may_split ? "1" : "0", kind});
}

}  // namespace

absl::StatusOr<std::string> ProbeTorchHost() { return BecomePython(kHostScript, {}); }
absl::StatusOr<std::string> ProbeLentBlocking() {
  return ProbeLent(/*blocking=*/true, /*may_split=*/false, "a blocking");
}
absl::StatusOr<std::string> ProbeLentNonBlocking() {
  return ProbeLent(/*blocking=*/false, /*may_split=*/false, "a non-blocking");
}
absl::StatusOr<std::string> ProbeLentSplit() {
  return ProbeLent(/*blocking=*/true, /*may_split=*/true, "a group split from a blocking");
}

std::string TorchFactsScript() {
  return R"(
import sys
try:
    import torch
except Exception as error:
    print("no PyTorch:", str(error).splitlines()[0])
    sys.exit(1)
if not torch.cuda.is_available():
    print("PyTorch", torch.__version__, "sees no GPU")
    sys.exit(2)
)";
}

}  // namespace meshift
