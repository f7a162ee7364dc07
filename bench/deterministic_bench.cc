// The cost of the ordered all-reduce of meshift/deterministic.h, against the engine's own and
// against the rank reference.
//
//   ./bazelw run //bench:deterministic_bench     # bytes; then mpirun -n 4 and -n 8 of this program
//
// Bytes are counted from the calls that each form makes (bench/traffic.h): the largest numbers that
// a rank receives and sends, and the latter over 2 (n-1)/n of the tensor, which a ring sends. For
// domains of 8 ranks: the largest numbers that a rank sends inside its domain and that a domain
// sends to others, over the tensor's bytes. "blocked" is the plan with a reduce_block of 8, which
// adds in order inside each domain, then the domains' sums in order.
//
// Times are those of one call and the wait for it, in us: from several calls in a row until all
// ranks are done, the best of several rounds, with the modes in turn. accumulate_in_f32 is on, so
// the engine's own all-reduce of bf16 moves f32.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "bench/traffic.h"
#include "comm/program/byte_count.h"
#include "comm/program/lowering.h"
#include "comm/program/program.h"
#include "meshift/deterministic.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/mpi_engine.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "meshift/topology.h"
#include "testing/internal/noop_engine.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using Mode = DeterministicMode;

constexpr std::array<Mode, 3> kModes = {Mode::kNative, Mode::kOrdered, Mode::kRankReference};
constexpr std::array<int64_t, 3> kBytes = {int64_t{64} << 10, int64_t{1} << 20, int64_t{64} << 20};
constexpr int64_t kDomain = 8;

constexpr char kByteRow[] = "{:>5}  {:>9}  {:<14}  {:>12}  {:>12}  {:>12}  {:>8}\n";
constexpr char kLevelRow[] = "{:>5}  {:<8}  {:<7}  {:>16}  {:>18}\n";

absl::Status AllReduce(Engine& engine, Communicator& group, Mode mode, const TensorView& in,
                       const TensorView& out, const Workspace& workspace, Stream& stream) {
  return DeterministicAllReduce(engine, group, in, out, {.mode = mode}, workspace, stream).status();
}

// Addresses for tensors and, after them, a workspace. The memory is never accessed.
constexpr uintptr_t kAddress = uintptr_t{1} << 20;
TensorView Untouched(DType dtype, int64_t count) {
  return TensorView::Contiguous(reinterpret_cast<void*>(kAddress), dtype, {count});
}
Workspace UntouchedWorkspace() {
  constexpr int64_t kBehind = int64_t{1} << 40;
  return {.data = reinterpret_cast<void*>(kAddress + kBehind), .bytes = kBehind};
}

// Counts the bytes that `mode` sends between all ranks.
absl::StatusOr<Traffic> Count(int64_t ranks, Mode mode, DType dtype, int64_t bytes, Gather gather) {
  Traffic traffic(ranks);
  std::vector<int64_t> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    NoopEngine engine(rank, ranks);
    Stream stream;
    TrafficCommunicator group(all, static_cast<int>(rank), gather, &traffic);
    const TensorView tensor = Untouched(dtype, bytes / Bytes(dtype, 1));
    MESHIFT_RETURN_IF_ERROR(
        AllReduce(engine, group, mode, tensor, tensor, UntouchedWorkspace(), stream));
  }
  return traffic;
}

// Counts the bytes of an all-reduce in blocks of a domain's ranks, from the programs of its
// redistribution.
absl::StatusOr<Traffic> CountBlocked(int64_t ranks, DType dtype, int64_t bytes, Gather gather) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Create({{"a", ranks}}));
  MESHIFT_ASSIGN_OR_RETURN(const TensorType tensor,
                           TensorType::Create(dtype, {bytes / Bytes(dtype, 1)}));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse(tensor, mesh, "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  MESHIFT_ASSIGN_OR_RETURN(const Topology topology,
                           Topology::Parse(fmt::format("nvlink={}", kDomain)));
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(from, to,
                                                     {.reproducibility = Reproducibility::kOrdered,
                                                      .topology = topology,
                                                      .reduce_block = kDomain}));
  if (!plan.steps()[0].reduce_stages) {
    return Internal("the plan of {} ranks is not in stages", ranks);
  }
  Traffic traffic(ranks);
  Stream stream;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    MESHIFT_ASSIGN_OR_RETURN(const Program program, Lower(plan, rank));
    for (const Instruction& instruction : program.instructions) {
      if (instruction.group < 0) continue;
      const RankList& ranks = program.groups[instruction.group].ranks;
      const std::vector<int64_t> members(ranks.begin(), ranks.end());
      const auto member = std::find(members.begin(), members.end(), rank) - members.begin();
      TrafficCommunicator group(members, static_cast<int>(member), gather, &traffic);
      std::vector<PeerMessage> sends;
      for (int i = 0; i < instruction.sends.size; ++i) {
        const ProgramMessage& message = program.messages[instruction.sends.first + i];
        sends.push_back({message.peer, nullptr, message.count});
      }
      if (instruction.kind == Instruction::Kind::kSendRecv) {
        MESHIFT_RETURN_IF_ERROR(group.SendRecv(sends, {}, instruction.dtype, stream));
      } else if (instruction.kind == Instruction::Kind::kAllGather) {
        MESHIFT_RETURN_IF_ERROR(
            group.AllGather(nullptr, nullptr, instruction.count, instruction.dtype, stream));
      } else {
        return Internal("{} is not counted", Name(instruction.kind));
      }
    }
  }
  return traffic;
}

absl::Status PrintBytes() {
  fmt::print("Bytes that a rank receives and sends, f32\n");
  fmt::print(kByteRow, "ranks", "bytes", "mode", "received", "sent", "a ring's", "ratio");
  for (const int64_t ranks : {4, 8, 5, 40}) {
    for (const int64_t bytes : kBytes) {
      const int64_t ring = AllReduceBytes(bytes, ranks);
      for (const Mode mode : kModes) {
        MESHIFT_ASSIGN_OR_RETURN(const Traffic traffic,
                                 Count(ranks, mode, DType::kF32, bytes, Gather::kRing));
        const int64_t sent = traffic.PerRank();
        fmt::print(kByteRow, ranks, bytes, Name(mode), traffic.ReceivedPerRank(), sent, ring,
                   fmt::format("{:.4f}", static_cast<double>(sent) / static_cast<double>(ring)));
      }
    }
  }
  constexpr int64_t kTensor = kBytes.back();
  fmt::print("\nDomains of {}: bytes over the tensor's\n", kDomain);
  fmt::print(kLevelRow, "ranks", "form", "gather", "inside, per rank", "across, per domain");
  const auto row = [&](int64_t ranks, const char* form, const char* gather,
                       const Traffic& traffic) {
    const auto over = [](int64_t bytes) {
      return fmt::format("{:.3f}", static_cast<double>(bytes) / static_cast<double>(kTensor));
    };
    fmt::print(kLevelRow, ranks, form, gather, over(traffic.InsidePerRank(kDomain)),
               over(traffic.PerDomain(kDomain)));
  };
  for (const int64_t ranks : {8, 16, 32, 64}) {
    MESHIFT_ASSIGN_OR_RETURN(const Traffic flat,
                             Count(ranks, Mode::kNative, DType::kF32, kTensor, Gather::kRing));
    row(ranks, "flat", "ring", flat);
    for (const auto& [gather, name] :
         {std::pair(Gather::kRing, "ring"), std::pair(Gather::kDirect, "direct")}) {
      MESHIFT_ASSIGN_OR_RETURN(const Traffic ordered,
                               Count(ranks, Mode::kOrdered, DType::kF32, kTensor, gather));
      row(ranks, "ordered", name, ordered);
      if (ranks == kDomain) continue;  // one block
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        MESHIFT_ASSIGN_OR_RETURN(const Traffic blocked,
                                 CountBlocked(ranks, dtype, kTensor, gather));
        row(ranks, dtype == DType::kF32 ? "blocked" : "of bf16", name, blocked);
      }
    }
  }
  fmt::print("\n");
  return absl::OkStatus();
}

constexpr char kTimeRow[] = "{:>5}  {:<5}  {:>9}  {:>10}  {:>10}  {:>10}  {:>15}  {:>17}\n";

absl::Status Time(Engine& engine, DType dtype, int64_t bytes, int rounds, int calls) {
  Communicator& world = *engine.world();
  MESHIFT_ASSIGN_OR_RETURN(const auto stream, engine.CreateStream());
  std::vector<char> in(bytes, 0);
  std::vector<char> out(bytes, 0);
  const int64_t count = bytes / Bytes(dtype, 1);
  const TensorView source = TensorView::Contiguous(in.data(), dtype, {count});
  const TensorView target = TensorView::Contiguous(out.data(), dtype, {count});
  std::array<double, kModes.size()> best;
  best.fill(std::numeric_limits<double>::infinity());
  std::array<std::unique_ptr<Buffer>, kModes.size()> workspaces;
  for (size_t i = 0; i < kModes.size(); ++i) {
    MESHIFT_ASSIGN_OR_RETURN(const int64_t need,
                             DeterministicWorkspace(world, source, target, {.mode = kModes[i]}));
    MESHIFT_ASSIGN_OR_RETURN(workspaces[i], engine.Allocate(need));
  }
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < kModes.size(); ++i) {
      const Workspace workspace{.data = workspaces[i]->data(),
                                .bytes = workspaces[i]->size_bytes()};
      MESHIFT_RETURN_IF_ERROR(world.Barrier(*stream));
      MESHIFT_RETURN_IF_ERROR(engine.Synchronize(*stream));
      const auto begin = Clock::now();
      for (int call = 0; call < calls; ++call) {
        MESHIFT_RETURN_IF_ERROR(
            AllReduce(engine, world, kModes[i], source, target, workspace, *stream));
        MESHIFT_RETURN_IF_ERROR(engine.Synchronize(*stream));
      }
      MESHIFT_RETURN_IF_ERROR(world.Barrier(*stream));
      MESHIFT_RETURN_IF_ERROR(engine.Synchronize(*stream));
      const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
      if (round >= 0) best[i] = std::min(best[i], took.count() / calls);
    }
  }
  if (engine.rank() != 0) return absl::OkStatus();
  const auto us = [](double value) { return fmt::format("{:.0f}", value); };
  const auto ratio = [](double value) { return fmt::format("{:.2f}", value); };
  fmt::print(kTimeRow, world.size(), Name(dtype), bytes, us(best[0]), us(best[1]), us(best[2]),
             ratio(best[1] / best[0]), ratio(best[1] / best[2]));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status PrintTimes() {
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, CreateMpiEngine());
  if (engine->rank() == 0) {
    fmt::print(kTimeRow, "ranks", "dtype", "bytes", "native us", "ordered", "reference",
               "ordered/native", "ordered/reference");
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    MESHIFT_RETURN_IF_ERROR(Time(*engine, dtype, kBytes[0], /*rounds=*/40, /*calls=*/10));
    MESHIFT_RETURN_IF_ERROR(Time(*engine, dtype, kBytes[1], /*rounds=*/20, /*calls=*/4));
    MESHIFT_RETURN_IF_ERROR(Time(*engine, dtype, kBytes[2], /*rounds=*/8, /*calls=*/1));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) == "bytes") {
    const absl::Status status = meshift::PrintBytes();
    if (status.ok()) return 0;
    fmt::print(stderr, "deterministic_bench: {}\n", meshift::Message(status));
    return 1;
  }
  auto session = meshift::MpiSession::Start();
  const absl::Status status = session.ok() ? meshift::PrintTimes() : session.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "deterministic_bench: {}\n", meshift::Message(status));
  meshift::MpiSession::Leave(1);
}
