#include "tests/gpu/probe_steps.h"

#include <cuda.h>
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "comm/nccl/environment.h"
#include "meshift/status.h"
#include "tests/gpu/host_time.h"
#include "tests/gpu/raw_comm.h"
#include "tests/gpu/torch_probe.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = RawComm::Kind;

int64_t MsSince(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
}

absl::Status Differ(std::string_view what, float got, float want) {
  return Internal("{}: {} instead of {}", what, got, want);
}

// --- 1. The cost of a call for the host.

absl::StatusOr<std::string> ProbeHost() {
  constexpr std::chrono::milliseconds kBudget(1500);
  MESHIFT_ASSIGN_OR_RETURN(const auto rank, RawRank::Create());
  MESHIFT_ASSIGN_OR_RETURN(const CUdeviceptr data, rank->Allocate(8));
  MESHIFT_RETURN_IF_ERROR(rank->Put({0, 0}, data));
  std::string text = "host time of ncclAllReduce:";
  for (const Kind kind : RawComm::kKinds) {
    MESHIFT_ASSIGN_OR_RETURN(const auto comm, RawComm::Create(*rank, kind));
    MESHIFT_ASSIGN_OR_RETURN(const double us,
                             MedianUs(
                                 rank->bootstrap(), [&] { return comm->AllReduce(data, 2); },
                                 [&] { return rank->Synchronize(); }, kBudget));
    text += fmt::format("{} {} {:.1f} us", kind == Kind::kBlocking ? "" : ",", Name(kind), us);
    MESHIFT_RETURN_IF_ERROR(comm->End());
  }
  MESHIFT_RETURN_IF_ERROR(rank->Free(data));
  return text;
}

// --- 2. Capture.

// A captured graph that can be launched.
class Graph {
 public:
  explicit Graph(RawRank& rank) : rank_(rank) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { End().IgnoreError(); }

  template <typename Work>
  absl::Status Capture(CUstreamCaptureMode mode, const Work& work) {
    MESHIFT_RETURN_IF_ERROR(rank_.cuda().StreamBeginCapture(rank_.stream(), mode));
    const absl::Status worked = work();
    const absl::Status ended = rank_.cuda().StreamEndCapture(rank_.stream(), &graph_);
    MESHIFT_RETURN_IF_ERROR(worked);
    MESHIFT_RETURN_IF_ERROR(ended);
    return rank_.cuda().GraphInstantiate(&exec_, graph_, 0ULL);
  }
  absl::Status Launch() {
    MESHIFT_RETURN_IF_ERROR(rank_.cuda().GraphLaunch(exec_, rank_.stream()));
    return rank_.Synchronize();
  }
  absl::Status End() {
    if (exec_ != nullptr) {
      MESHIFT_RETURN_IF_ERROR(rank_.cuda().GraphExecDestroy(std::exchange(exec_, nullptr)));
    }
    if (graph_ == nullptr) return absl::OkStatus();
    return rank_.cuda().GraphDestroy(std::exchange(graph_, nullptr));
  }

 private:
  RawRank& rank_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

// Every rank holds one; the in-place all-reduce of each launch multiplies it by the number of
// ranks.
absl::Status LaunchAndCompare(RawRank& rank, Graph& graph, absl::Span<const CUdeviceptr> buffers) {
  for (const CUdeviceptr buffer : buffers) MESHIFT_RETURN_IF_ERROR(rank.Put({1}, buffer));
  auto want = 1.0F;
  for (int launch = 0; launch < 3; ++launch) {
    MESHIFT_RETURN_IF_ERROR(graph.Launch());
    want *= static_cast<float>(rank.ranks());
    for (const CUdeviceptr buffer : buffers) {
      MESHIFT_ASSIGN_OR_RETURN(const std::vector<float> got, rank.Get(buffer, 1));
      if (got[0] != want) return Differ("after a launch", got[0], want);
    }
  }
  return absl::OkStatus();
}

// Whether NCCL waits for a graph when its communicator is finalized.
absl::StatusOr<std::string> FinalizeBeforeGraph(RawRank& rank, CUdeviceptr data) {
  MESHIFT_ASSIGN_OR_RETURN(const auto comm, RawComm::Create(rank, Kind::kNonBlocking));
  Graph graph(rank);
  MESHIFT_RETURN_IF_ERROR(
      graph.Capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, [&] { return comm->AllReduce(data, 1); }));
  MESHIFT_RETURN_IF_ERROR(LaunchAndCompare(rank, graph, {data}));
  const ncclResult_t begun = rank.nccl().CommFinalize(comm->handle());
  MESHIFT_RETURN_IF_ERROR(rank.nccl().Check(begun, "ncclCommFinalize", comm->handle()));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  MESHIFT_ASSIGN_OR_RETURN(const ncclResult_t state, comm->State());
  MESHIFT_RETURN_IF_ERROR(graph.End());
  MESHIFT_RETURN_IF_ERROR(comm->Settle(begun, "ncclCommFinalize"));
  MESHIFT_RETURN_IF_ERROR(
      rank.nccl().Check(rank.nccl().CommDestroy(comm->handle()), "ncclCommDestroy"));
  return state == ncclInProgress ? "waits for its graph" : "does not wait for its graph";
}

absl::StatusOr<std::string> ProbeCapture() {
  constexpr std::array kModes = {std::pair{CU_STREAM_CAPTURE_MODE_GLOBAL, "global"},
                                 std::pair{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread-local"},
                                 std::pair{CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed"}};
  MESHIFT_ASSIGN_OR_RETURN(const auto rank, RawRank::Create());
  MESHIFT_ASSIGN_OR_RETURN(const CUdeviceptr data, rank->Allocate(4));
  MESHIFT_ASSIGN_OR_RETURN(const CUdeviceptr other, rank->Allocate(4));
  for (const Kind kind : RawComm::kKinds) {
    MESHIFT_ASSIGN_OR_RETURN(const auto comm, RawComm::Create(*rank, kind));
    for (const auto& mode : kModes) {
      Graph graph(*rank);
      absl::Status status = graph.Capture(mode.first, [&] { return comm->AllReduce(data, 1); });
      if (status.ok()) status = LaunchAndCompare(*rank, graph, {data});
      if (status.ok()) status = graph.End();
      if (!status.ok()) {
        return absl::Status(status.code(), fmt::format("{} in {} mode: {}", Name(kind), mode.second,
                                                       Message(status)));
      }
    }
    MESHIFT_RETURN_IF_ERROR(comm->End());
  }
  {
    MESHIFT_ASSIGN_OR_RETURN(const auto first, RawComm::Create(*rank, Kind::kHybrid));
    MESHIFT_ASSIGN_OR_RETURN(const auto second, RawComm::Create(*rank, Kind::kHybrid));
    Graph graph(*rank);
    MESHIFT_RETURN_IF_ERROR(
        graph.Capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, [&]() -> absl::Status {
          MESHIFT_RETURN_IF_ERROR(first->AllReduce(data, 1));
          return second->AllReduce(other, 1);
        }));
    MESHIFT_RETURN_IF_ERROR(LaunchAndCompare(*rank, graph, {data, other}));
    MESHIFT_RETURN_IF_ERROR(graph.End());
    MESHIFT_RETURN_IF_ERROR(first->End());
    MESHIFT_RETURN_IF_ERROR(second->End());
  }
  MESHIFT_ASSIGN_OR_RETURN(const std::string waits, FinalizeBeforeGraph(*rank, data));
  MESHIFT_RETURN_IF_ERROR(rank->Free(data));
  MESHIFT_RETURN_IF_ERROR(rank->Free(other));
  return fmt::format(
      "three launches each are right: blocking, non-blocking and hybrid in global, thread-local "
      "and relaxed mode, two communicators in one graph; to finalize {}",
      waits);
}

// --- 3. Abort, and a rank that dies.

struct Ended {
  int64_t left_ms = 0;   // until the kernel had ended on the device
  int64_t abort_ms = 0;  // until the abort returned
};

// Aborts from another thread, as a watchdog does.
absl::StatusOr<Ended> AbortAndWatch(RawRank& rank, RawComm& comm) {
  Ended ended{.left_ms = -1};
  const auto begin = Clock::now();
  absl::Status aborted;
  std::thread aborter([&] {
    aborted = rank.UseHere();
    if (aborted.ok()) aborted = comm.Abort();
    ended.abort_ms = MsSince(begin);
  });
  while (MsSince(begin) < 4000) {
    if (rank.cuda().StreamQuery(rank.stream()).ok()) {
      ended.left_ms = MsSince(begin);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  aborter.join();
  MESHIFT_RETURN_IF_ERROR(aborted);
  if (ended.left_ms < 0) return Internal("the kernel has not left the device 4 s after the abort");
  return ended;
}

absl::StatusOr<std::string> ProbeAbort() {
  constexpr size_t kBytes = 16 << 20;
  MESHIFT_ASSIGN_OR_RETURN(const auto rank, RawRank::Create());
  MESHIFT_ASSIGN_OR_RETURN(const auto comm, RawComm::Create(*rank, Kind::kHybrid));
  MESHIFT_ASSIGN_OR_RETURN(const CUdeviceptr data, rank->Allocate(kBytes));
  MESHIFT_RETURN_IF_ERROR(
      rank->cuda().MemsetD8Async(data, static_cast<unsigned char>(0), kBytes, rank->stream()));
  // Run both once with this size, since NCCL makes an algorithm's connections in its first call.
  MESHIFT_RETURN_IF_ERROR(comm->AllReduce(data, kBytes / sizeof(float)));
  MESHIFT_RETURN_IF_ERROR(rank->Synchronize());
  std::string text;
  if (rank->rank() == 0) {
    MESHIFT_RETURN_IF_ERROR(comm->AllReduce(data, kBytes / sizeof(float)));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (rank->cuda().StreamQuery(rank->stream()).ok()) {
      return Internal("the all-reduce has ended although its peer has not launched");
    }
    MESHIFT_ASSIGN_OR_RETURN(const Ended ended, AbortAndWatch(*rank, *comm));
    const auto begin = Clock::now();
    MESHIFT_RETURN_IF_ERROR(rank->Free(data));
    text = fmt::format(
        "a kernel whose peer never launches left the device {} ms after the abort began, which "
        "took {} ms; its memory was freed in {} ms",
        ended.left_ms, ended.abort_ms, MsSince(begin));
  }
  // The peer does nothing but waits here all the time.
  MESHIFT_RETURN_IF_ERROR(rank->Barrier());
  if (rank->rank() == 0) return text;
  MESHIFT_RETURN_IF_ERROR(comm->Abort());
  MESHIFT_RETURN_IF_ERROR(rank->Free(data));
  return text;
}

absl::StatusOr<std::string> ProbeKilledRank() {
  constexpr size_t kCount = 256 << 10;
  constexpr int64_t kPatienceMs = 3000;
  MESHIFT_ASSIGN_OR_RETURN(const auto rank, RawRank::Create());
  MESHIFT_ASSIGN_OR_RETURN(const auto comm, RawComm::Create(*rank, Kind::kHybrid));
  MESHIFT_ASSIGN_OR_RETURN(const CUdeviceptr data, rank->Allocate(kCount * sizeof(float)));
  MESHIFT_RETURN_IF_ERROR(rank->Put(std::vector<float>(kCount, 0), data));
  MESHIFT_RETURN_IF_ERROR(rank->Barrier());
  const auto begin = Clock::now();
  constexpr int64_t kDiesAfterMs = 200;
  if (rank->rank() == 1) {
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(kDiesAfterMs));
      kill(getpid(), SIGKILL);
    }).detach();
  }
  // Repeat until a call does not end.
  ncclResult_t state = ncclSuccess;
  bool hangs = false;
  while (!hangs && state == ncclSuccess && MsSince(begin) < kDiesAfterMs + kPatienceMs) {
    if (const absl::Status called = comm->AllReduce(data, kCount); !called.ok()) {
      // A call may be the first to report the error.
      MESHIFT_ASSIGN_OR_RETURN(state, comm->State());
      if (state == ncclSuccess) return called;
      break;
    }
    while (!rank->cuda().StreamQuery(rank->stream()).ok()) {
      MESHIFT_ASSIGN_OR_RETURN(state, comm->State());
      hangs = MsSince(begin) >= kDiesAfterMs + kPatienceMs;
      if (hangs || state != ncclSuccess) break;
    }
  }
  const int64_t seen_ms = MsSince(begin) - kDiesAfterMs;
  if (rank->rank() == 1) return Internal("rank 1 lives");
  if (!hangs && state == ncclSuccess) return Internal("no call hangs although rank 1 is dead");
  MESHIFT_ASSIGN_OR_RETURN(const Ended ended, AbortAndWatch(*rank, *comm));
  MESHIFT_RETURN_IF_ERROR(rank->Free(data));
  const std::string seen = hangs ? fmt::format("NCCL said nothing for {} ms", kPatienceMs)
                                 : fmt::format("NCCL said so after {} ms ({})", seen_ms,
                                               rank->nccl().GetErrorString(state));
  return fmt::format("of a rank that was killed in a collective {}; the abort took {} ms", seen,
                     ended.abort_ms);
}

// --- 5. Windows.

absl::StatusOr<std::string> ProbeWindows() {
  MESHIFT_ASSIGN_OR_RETURN(const auto rank, RawRank::Create());
  const NcclLibrary& nccl = rank->nccl();
  if (nccl.MemAlloc == nullptr || nccl.CommWindowRegister == nullptr) {
    return absl::UnimplementedError("this NCCL has no windows");
  }
  MESHIFT_ASSIGN_OR_RETURN(const auto comm, RawComm::Create(*rank, Kind::kHybrid));
  // The send buffer, then the receive buffer, at equal offsets on all ranks.
  constexpr size_t kCount = 1 << 18;
  const auto n = static_cast<size_t>(rank->ranks());
  const size_t bytes = kCount * (n + 1) * sizeof(float);
  void* memory = nullptr;
  MESHIFT_RETURN_IF_ERROR(nccl.Check(nccl.MemAlloc(&memory, bytes), "ncclMemAlloc"));
  ncclWindow_t window = nullptr;
  MESHIFT_RETURN_IF_ERROR(comm->Settle(
      nccl.CommWindowRegister(comm->handle(), memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC),
      "ncclCommWindowRegister"));
  const auto mine = reinterpret_cast<CUdeviceptr>(memory);
  const CUdeviceptr all = mine + kCount * sizeof(float);
  MESHIFT_RETURN_IF_ERROR(
      rank->Put(std::vector<float>(kCount, static_cast<float>(rank->rank() + 1)), mine));
  MESHIFT_RETURN_IF_ERROR(
      comm->Settle(nccl.AllGather(memory, reinterpret_cast<void*>(all), kCount, ncclFloat32,
                                  comm->handle(), reinterpret_cast<cudaStream_t>(rank->stream())),
                   "ncclAllGather"));
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<float> got, rank->Get(all, kCount * n));
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t from = i / kCount;
    const auto want = static_cast<float>(from + 1);
    if (got[i] != want) return Differ(fmt::format("element {} gathered", i), got[i], want);
  }
  const bool registered = window != nullptr;
  if (registered) {
    MESHIFT_RETURN_IF_ERROR(comm->Settle(nccl.CommWindowDeregister(comm->handle(), window),
                                         "ncclCommWindowDeregister"));
  }
  MESHIFT_RETURN_IF_ERROR(rank->Barrier());
  MESHIFT_RETURN_IF_ERROR(nccl.Check(nccl.MemFree(memory), "ncclMemFree"));
  MESHIFT_RETURN_IF_ERROR(comm->End());
  return fmt::format("memory of ncclMemAlloc, {}, an all-gather of {} MiB in it is right",
                     registered ? "a window" : "no window (a null handle)", bytes >> 20);
}

// --- 6. Bits.

// Contributions of an all-reduce on four ranks: their sums differ by order.
constexpr std::array<float, 4> kContributions = {1e8F, 3, -1e8F, 1.5F};

struct Bits {
  bool alike = true;        // all elements of all sizes have equal bits
  std::vector<float> sums;  // the sums found, sorted and distinct
};

absl::StatusOr<Bits> LookAtBits(RawRank& rank) {
  MESHIFT_ASSIGN_OR_RETURN(const auto comm, RawComm::Create(rank, Kind::kHybrid));
  constexpr size_t kMost = 1 << 20;
  MESHIFT_ASSIGN_OR_RETURN(const CUdeviceptr data, rank.Allocate(kMost * sizeof(float)));
  const float mine = kContributions[static_cast<size_t>(rank.rank()) % kContributions.size()];
  Bits bits;
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{64}, size_t{1000},
                             size_t{4096}, size_t{65537}, kMost}) {
    MESHIFT_RETURN_IF_ERROR(rank.Put(std::vector<float>(count, mine), data));
    MESHIFT_RETURN_IF_ERROR(comm->AllReduce(data, count));
    MESHIFT_ASSIGN_OR_RETURN(const std::vector<float> got, rank.Get(data, count));
    for (const float sum : got) {
      if (bits.sums.empty() || sum != bits.sums.back()) bits.sums.push_back(sum);
    }
  }
  std::sort(bits.sums.begin(), bits.sums.end());
  bits.sums.erase(std::unique(bits.sums.begin(), bits.sums.end()), bits.sums.end());
  bits.alike = bits.sums.size() == 1;
  MESHIFT_RETURN_IF_ERROR(rank.Free(data));
  MESHIFT_RETURN_IF_ERROR(comm->End());
  return bits;
}

std::string Refusal(const RawRank& rank) {
  return WhatBreaks(CheckNcclEnvironment(NcclProfile::kBatchInvariant,
                                         NcclVersion::FromCode(rank.nccl().version()),
                                         NcclEnvironment(Environment::Process())));
}

absl::StatusOr<std::string> ProbeBits() {
  MESHIFT_ASSIGN_OR_RETURN(const auto rank, RawRank::Create());
  MESHIFT_ASSIGN_OR_RETURN(const Bits bits, LookAtBits(*rank));
  const std::vector<float> possible = PossibleSums({kContributions.begin(), kContributions.end()});
  for (const float sum : bits.sums) {
    if (!std::binary_search(possible.begin(), possible.end(), sum)) {
      return Internal("{} is the sum in no order of adding", sum);
    }
  }
  // If env --check accepts the environment, the promise must hold.
  const std::string refusal = Refusal(*rank);
  const std::string seen =
      bits.alike ? fmt::format("all elements of 1 to 2^20 have one sum ({})", bits.sums[0])
                 : fmt::format("{} different sums", bits.sums.size());
  if (!bits.alike && refusal.empty()) {
    return Internal("by tree on one channel, which env --check takes for batch-invariant: {}",
                    seen);
  }
  return fmt::format("by tree on one channel {}; env --check {}", seen,
                     refusal.empty() ? "passes" : fmt::format("refuses: {}", refusal));
}

absl::StatusOr<std::string> ProbeBitsOfChannels() {
  MESHIFT_ASSIGN_OR_RETURN(const auto rank, RawRank::Create());
  MESHIFT_ASSIGN_OR_RETURN(const Bits bits, LookAtBits(*rank));
  const std::string refusal = Refusal(*rank);
  if (refusal.empty()) return Internal("env --check passes NCCL_MAX_CTAS=16");
  return fmt::format("with NCCL_MAX_CTAS=16 sums are {}; env --check refuses: {}",
                     bits.alike ? "equal" : "different", refusal);
}

constexpr std::chrono::seconds kTorchLimit(25);  // the import takes long

constexpr ProbeStep kSteps[] = {
    {.name = "host", .run = ProbeHost},
    {.name = "host_torch", .limit = kTorchLimit, .torch = true, .run = ProbeTorchHost},
    {.name = "capture", .run = ProbeCapture},
    {.name = "abort", .run = ProbeAbort},
    {.name = "killed", .killed_rank = 1, .run = ProbeKilledRank},
    {.name = "lent_blocking", .limit = kTorchLimit, .torch = true, .run = ProbeLentBlocking},
    {.name = "lent_nonblocking", .limit = kTorchLimit, .torch = true, .run = ProbeLentNonBlocking},
    {.name = "lent_split", .limit = kTorchLimit, .torch = true, .run = ProbeLentSplit},
    {.name = "windows", .run = ProbeWindows},
    {.name = "bits", .ranks = 4, .batch_invariant = true, .run = ProbeBits},
    {.name = "bits_16_ctas",
     .ranks = 4,
     .max_ctas = 16,
     .batch_invariant = true,
     .run = ProbeBitsOfChannels},
};

}  // namespace

absl::Span<const ProbeStep> ProbeSteps() { return kSteps; }

std::vector<float> PossibleSums(const std::vector<float>& values) {
  // Indexed by the set of added values, as bits.
  const size_t sets = size_t{1} << values.size();
  std::vector<std::vector<float>> sums(sets);
  for (size_t set = 1; set < sets; ++set) {
    if ((set & (set - 1)) == 0) {
      sums[set].push_back(values[static_cast<size_t>(__builtin_ctzll(set))]);
      continue;
    }
    for (size_t part = (set - 1) & set; part > 0; part = (part - 1) & set) {
      for (const float a : sums[part]) {
        for (const float b : sums[set & ~part]) sums[set].push_back(a + b);
      }
    }
    std::sort(sums[set].begin(), sums[set].end());
    sums[set].erase(std::unique(sums[set].begin(), sums[set].end()), sums[set].end());
  }
  return sums[sets - 1];
}

}  // namespace meshift
