// One rank of a job in which one rank, the culprit, stops taking part. The others wait for their
// work outside of the redistributor, and record how they ended.
//
//   hang_worker ENGINE FAULT CULPRIT TIMEOUT_MS FOLDER
//
// ENGINE: mpi, under mpirun; nccl, with torchrun's variables. FAULT: stopped (by a signal), never
// (it sleeps instead of calling), loop (it spins instead of calling), kernel (its stream has
// endless work before the call), error (it reports why it leaves), exit (it just ends). Each other
// rank writes FOLDER/ended.RANK, "MS CALL MESSAGE", with the time between the fault and its end.
// Records go to FOLDER too. Then all wait to be killed, so that no rank ends others by leaving.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/mpi_engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "tests/hang/endless_work.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int64_t kCallsBefore = 5;
constexpr int64_t kElements = 64;

struct Arguments {
  std::string engine;
  std::string fault;
  int64_t culprit = 0;
  milliseconds timeout{1000};
  std::string folder;
};

struct Rank {
  std::unique_ptr<MpiSession> session;
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<Engine> engine;
};

absl::StatusOr<Rank> Join(const Arguments& arguments) {
  Rank rank;
  if (arguments.engine == "nccl") {
    MESHIFT_ASSIGN_OR_RETURN(rank.bootstrap, Bootstrap::FromTorchrun());
    MESHIFT_ASSIGN_OR_RETURN(rank.engine, StartNcclEngine(rank.bootstrap.get(), {}));
  } else {
    MESHIFT_ASSIGN_OR_RETURN(MpiSession session, MpiSession::Start());
    rank.session = std::make_unique<MpiSession>(std::move(session));
    MESHIFT_ASSIGN_OR_RETURN(rank.bootstrap, MpiBootstrap());
    MESHIFT_ASSIGN_OR_RETURN(rank.engine, CreateMpiEngine({.control = rank.bootstrap->control(),
                                                           .bounded_waits = true}));
  }
  MESHIFT_RETURN_IF_ERROR(rank.engine->SetRecord({.dump_folder = arguments.folder}));
  return rank;
}

[[noreturn]] void WaitToBeKilled() {
  for (;;) pause();
}

absl::Status Run(const Arguments& arguments) {
  MESHIFT_ASSIGN_OR_RETURN(Rank me, Join(arguments));
  Engine& engine = *me.engine;
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh,
                           DeviceMesh::Parse(fmt::format("a={}", engine.world_size())));
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(mesh, &engine));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from,
                           Sharding::Parse(fmt::format("f32[{}]", kElements), mesh, "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  MESHIFT_ASSIGN_OR_RETURN(const auto in, engine.Allocate(4 * kElements));
  MESHIFT_ASSIGN_OR_RETURN(const auto out, engine.Allocate(4 * kElements));
  MESHIFT_ASSIGN_OR_RETURN(const auto consumer, engine.CreateStream());
  MESHIFT_ASSIGN_OR_RETURN(const auto producer, engine.CreateStream());
  const auto call = [&](Stream* after) {
    return redistribute({.from = from,
                         .to = to,
                         .source = TensorView::Contiguous(in->data(), DType::kF32, {kElements}),
                         .target = TensorView::Contiguous(out->data(), DType::kF32, {kElements}),
                         .after = after});
  };
  for (int64_t i = 0; i < kCallsBefore; ++i) {
    MESHIFT_ASSIGN_OR_RETURN(const RunHandle run, call(nullptr));
    MESHIFT_RETURN_IF_ERROR(run.Wait());
  }
  MESHIFT_RETURN_IF_ERROR(engine.SetTimeouts(Timeouts::Of(arguments.timeout)));
  MESHIFT_RETURN_IF_ERROR(me.bootstrap->Exchange("").status());
  const Clock::time_point begin = Clock::now();
  Stream* after = nullptr;
  if (engine.rank() == arguments.culprit) {
    std::ofstream(arguments.folder + "/culprit") << getpid();
    if (arguments.fault == "stopped") raise(SIGSTOP);
    if (arguments.fault == "never") WaitToBeKilled();
    if (arguments.fault == "loop") {
      for (std::atomic<uint64_t> turns = 0;; ++turns) {
      }
    }
    if (arguments.fault == "exit") std::_Exit(1);
    if (arguments.fault == "error") {
      me.bootstrap->Leave(Internal("an error of its own"));
      WaitToBeKilled();
    }
    MESHIFT_RETURN_IF_ERROR(PutEndlessWork(engine, *producer));
    after = producer.get();
  }
  // As in frameworks: a stream waits for the work, and the host for a later event on that stream.
  absl::Status status;
  int64_t made = 0;
  while (status.ok() && Clock::now() - begin < std::chrono::seconds(30)) {
    absl::StatusOr<RunHandle> run = call(made == 0 ? after : nullptr);
    status = run.status();
    if (!status.ok()) break;
    ++made;
    status = run->Wait(*consumer);
    if (!status.ok()) break;
    const absl::StatusOr<std::shared_ptr<Event>> mark = engine.Record(*consumer);
    status = mark.status();
    while (status.ok() && (*mark)->ReachedNs() < 0 &&
           Clock::now() - begin < std::chrono::seconds(30)) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  const std::string name = fmt::format("{}/ended.{}", arguments.folder, engine.rank());
  {
    std::ofstream file(name + ".new");
    file << took.count() << " " << kCallsBefore << " " << status.ToString() << "\n";
  }
  std::rename((name + ".new").c_str(), name.c_str());
  WaitToBeKilled();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const absl::Status status =
      meshift::Run({.engine = argv[1],
                    .fault = argv[2],
                    .culprit = std::atoll(argv[3]),
                    .timeout = std::chrono::milliseconds(std::atoll(argv[4])),
                    .folder = argv[5]});
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
