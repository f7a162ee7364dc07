// Ranks that disagree, are late, or die: all other ranks get an error within the time-out plus one
// second. Each rank is a process.
//
//   fault_test disagree     # one rank has another target, shape, dtype or mesh, or is late
//   fault_test kill N       # rank N mod 4 kills itself: between calls if N mod 8 < 4, else within
//                           # a large call. The survivors report and leave (fault_test.sh)
//   fault_test kill N bounded         # with MpiEngineOptions::bounded_waits
//   fault_test kill N bounded hang    # and survivors hang in their next call of MPI
//
// MESHIFT_FAULT_ROUNDS is the number of rounds per fault. With testing/side_by_side.sh each part
// runs its share of them.
#include <fmt/format.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/mpi_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "testing/internal/mpi/hang.h"
#include "testing/internal/mpi/world.h"
#include "testing/internal/stopwatch.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using Duration = std::chrono::nanoseconds;

enum class Fault { kNone, kTarget, kShape, kDtype, kMesh, kLate, kKilled, kKilledInside };

// Expires only if a rank is late.
constexpr milliseconds kTimeout(1000);

int64_t NumberOf(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

// Each round makes its own job, since a failed engine cannot be reused.
struct Rank {
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<Engine> engine;
  static absl::StatusOr<Rank> Create(milliseconds timeout, bool bounded) {
    Rank rank;
    MESHIFT_ASSIGN_OR_RETURN(rank.bootstrap, MpiBootstrap());
    MESHIFT_ASSIGN_OR_RETURN(rank.engine, CreateMpiEngine({.timeout = timeout,
                                                           .control = rank.bootstrap->control(),
                                                           .bounded_waits = bounded}));
    return rank;
  }
};

// Makes calls until one fails, at most `calls`; from call `at` on rank `culprit` has the fault.
absl::Status Work(Redistributor& redistribute, const DeviceMesh& mesh, int64_t rank, Fault fault,
                  int64_t culprit, int64_t at, int64_t calls) {
  // Another thread kills the rank while it is in a call of a few ms.
  const bool inside = fault == Fault::kKilledInside;
  const int64_t count = inside ? int64_t{1} << 20 : 64;
  std::vector<float> in(count, 1.0F);
  std::vector<float> out(count);
  std::thread killer;
  if (inside && rank == culprit) {
    killer = std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      kill(getpid(), SIGKILL);
    });
    killer.detach();
  }
  const bool two_dims = mesh.NumDims() == 2;
  for (int64_t call = 0; call < calls; ++call) {
    const bool faulty = rank == culprit && call >= at;
    if (faulty && fault == Fault::kLate) std::this_thread::sleep_for(2 * kTimeout);
    if (faulty && fault == Fault::kKilled) kill(getpid(), SIGKILL);
    const bool other_shape = faulty && fault == Fault::kShape;
    const DType dtype = faulty && fault == Fault::kDtype ? DType::kBF16 : DType::kF32;
    MESHIFT_ASSIGN_OR_RETURN(
        const Sharding from,
        Sharding::Parse(fmt::format("{}[{}]", Name(dtype), other_shape ? 60 : count), mesh,
                        two_dims ? "P,P" : "P"));
    const char* const to_text = two_dims ? "R,R" : "R";
    MESHIFT_ASSIGN_OR_RETURN(
        const Sharding to,
        from.WithPlacements(faulty && fault == Fault::kTarget ? "S(0)" : to_text));
    MESHIFT_ASSIGN_OR_RETURN(
        const RunHandle run,
        redistribute(
            {.from = from,
             .to = to,
             .source = TensorView::Contiguous(in.data(), dtype, from.LocalBox(rank).size),
             .target = TensorView::Contiguous(out.data(), dtype, to.LocalBox(rank).size)}));
    MESHIFT_RETURN_IF_ERROR(run.Wait());
  }
  return absl::OkStatus();
}

int64_t Ms(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

// OK if an innocent rank got the right error in time.
absl::Status Judge(const absl::Status& got, Duration took, Fault fault) {
  if (got.ok()) return Internal("no error");
  if (took > kTimeout + milliseconds(1000))
    return Internal("an error only after {} ms: {}", Ms(took), got.ToString());
  const bool disagreement = fault == Fault::kTarget || fault == Fault::kShape ||
                            fault == Fault::kDtype || fault == Fault::kMesh;
  if (disagreement && got.code() != absl::StatusCode::kFailedPrecondition) {
    return Internal("not named as a disagreement: {}", got.ToString());
  }
  if (fault == Fault::kLate && got.code() != absl::StatusCode::kDeadlineExceeded) {
    return Internal("not named as a time-out: {}", got.ToString());
  }
  return absl::OkStatus();
}

// The last error and the longest time on an innocent rank.
struct Seen {
  std::string example;
  Duration longest{};
};

// A barrier that sleeps between polls: other parts of the test need the cores, and their time is
// measured too.
void Meet() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) std::this_thread::sleep_for(milliseconds(1));
  }
}

struct How {
  bool bounded = false;
  bool hang = false;
};

// Once this process is gone, survivors hang in the engine's next call of MPI.
pid_t killed = 0;

void HangOnceKilled(int64_t culprit) {
  killed = getpid();
  MPI_Bcast(&killed, sizeof killed, MPI_BYTE, static_cast<int>(culprit), MPI_COMM_WORLD);
  HangIn("*", [] { return kill(killed, 0) != 0; });
}

absl::Status Round(Fault fault, int64_t round, Seen* seen, const How& how = {}) {
  Meet();
  MESHIFT_ASSIGN_OR_RETURN(Rank rank, Rank::Create(kTimeout, how.bounded));
  const int64_t n = rank.engine->world_size();
  const int64_t culprit = round % n;
  const bool other_mesh = fault == Fault::kMesh && rank.engine->rank() == culprit;
  MESHIFT_ASSIGN_OR_RETURN(
      const DeviceMesh mesh,
      DeviceMesh::Parse(other_mesh ? fmt::format("a=2,b={}", n / 2) : fmt::format("d={}", n)));
  // In every second round the ranks do not agree on calls before they run. Not for kMesh, which
  // would be detected too late, since the call is the same.
  const bool agrees = round % 2 == 0 || fault == Fault::kMesh;
  MESHIFT_ASSIGN_OR_RETURN(
      std::optional<Redistributor> redistribute,
      Redistributor::Create(
          mesh, rank.engine.get(),
          {.agreement = agrees ? Agreement::kFirstCalls : Agreement::kOff, .timeout = kTimeout}));
  const int64_t at = fault == Fault::kMesh ? 0 : round % 3;
  absl::Status status =
      Work(*redistribute, mesh, rank.engine->rank(), Fault::kNone, culprit, 0, at);
  if (!status.ok()) return Annotate(status, "before the fault");
  // The barrier: a fault may end peers' calls that are still running, or even their Create.
  if (how.hang) HangOnceKilled(culprit);
  MPI_Barrier(MPI_COMM_WORLD);
  const Stopwatch stopwatch;
  status = Work(*redistribute, mesh, rank.engine->rank(), fault, culprit, 0,
                fault == Fault::kKilledInside ? 10000 : 1);
  const Duration took = stopwatch.Took();
  const bool is_killed = fault == Fault::kKilled || fault == Fault::kKilledInside;
  if (rank.engine->rank() != culprit) {
    seen->example = Message(status);
    seen->longest = std::max(seen->longest, took);
    MESHIFT_RETURN_IF_ERROR(Judge(status, took, fault));
  }
  // Every later call fails too.
  if (!status.ok() &&
      redistribute
          ->Prepare(Sharding::Parse("f32[64]", mesh, other_mesh ? "P,P" : "P").value(),
                    Sharding::Parse("f32[64]", mesh, other_mesh ? "R,R" : "R").value())
          .ok()) {
    return Internal("a call after an error is not refused");
  }
  if (!is_killed) Meet();  // the hub ends with rank 0's bootstrap
  if (!how.bounded) return absl::OkStatus();
  // With bounded waits the destructors return in time too.
  const int64_t me = rank.engine->rank();
  redistribute.reset();
  rank.engine = nullptr;
  const Duration left = stopwatch.Took();
  if (me != culprit && left > kTimeout + milliseconds(1000)) {
    return Internal("an error after {} ms, and the end only after {} ms", Ms(took), Ms(left));
  }
  seen->longest = std::max(seen->longest, left);
  return absl::OkStatus();
}

absl::Status Disagree() {
  const int64_t rounds = NumberOf("MESHIFT_FAULT_ROUNDS", 100);
  const int64_t first = NumberOf("TEST_SHARD_INDEX", 0);
  const int64_t shards = NumberOf("TEST_TOTAL_SHARDS", 1);
  if (first >= rounds) return InvalidArgument("{} rounds are fewer than shards", rounds);
  for (const auto& [fault, name] :
       {std::pair(Fault::kTarget, "another target"), std::pair(Fault::kShape, "another shape"),
        std::pair(Fault::kDtype, "another dtype"), std::pair(Fault::kMesh, "another mesh"),
        std::pair(Fault::kLate, "one rank late")}) {
    Seen seen;
    int64_t made = 0;
    for (int64_t round = first; round < rounds; round += shards, ++made) {
      MESHIFT_RETURN_IF_ERROR(
          Annotate(Round(fault, round, &seen), fmt::format("{}, round {}", name, round)));
    }
    int64_t longest = Ms(seen.longest);
    MPI_Allreduce(MPI_IN_PLACE, &longest, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (WorldRank() == (first + 1) % WorldSize()) {
      fmt::print("{}: {} rounds, {} ms at most; the last: {}\n", name, made, longest, seen.example);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  auto session = meshift::MpiSession::Start();
  absl::Status status = session.status();
  meshift::Seen seen;
  if (status.ok() && what == "kill") {
    const int64_t round = argc > 2 ? std::atoll(argv[2]) : 0;
    const meshift::How how{.bounded = argc > 3, .hang = argc > 4};
    status = meshift::Round(round % 8 < 4 ? meshift::Fault::kKilled : meshift::Fault::kKilledInside,
                            round, &seen, how);
    if (status.ok()) {
      fmt::print("survivor: {} ms: {}\n", meshift::Ms(seen.longest), seen.example);
    }
  } else if (status.ok()) {
    status = meshift::Disagree();
  }
  if (!status.ok()) {
    const int rank = session.ok() ? meshift::WorldRank() : 0;
    fmt::print(stderr, "fault_test, rank {}: {}\n", rank, meshift::Message(status));
  }
  std::fflush(nullptr);
  // Finalising would wait for the rank that is gone.
  if (what == "kill" || !status.ok()) meshift::MpiSession::Leave(status.ok() ? 0 : 1);
  return 0;
}
