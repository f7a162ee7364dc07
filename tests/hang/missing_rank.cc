// Writes the records of a job of four ranks, of which one has not made the last call.
//
//   missing_rank FOLDER RANK
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

constexpr int64_t kRanks = 4;

absl::Status Run(const std::string& folder, int64_t missing) {
  MESHIFT_ASSIGN_OR_RETURN(const auto peers, Bootstrap::InProcess(kRanks));
  std::vector<ControlChannel*> control;
  for (const auto& peer : peers) control.push_back(peer->control());
  MESHIFT_ASSIGN_OR_RETURN(const auto world,
                           LocalWorld::Create({.num_ranks = kRanks, .control = control}));
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse("a=2,b=2"));
  // An all-gather of blocks of different sizes, an all-to-all, a reduce-scatter, an all-reduce.
  struct Case {
    const char* from;
    const char* to;
  };
  constexpr Case kCases[] = {
      {"S(0),R", "R,R"}, {"S(0),R", "S(1),R"}, {"P,R", "S(0),R"}, {"P,P", "R,R"}};
  std::vector<std::vector<float>> memory(2 * kRanks, std::vector<float>(64, 1.0F));
  std::vector<Redistributor> redistribute;
  for (int64_t r = 0; r < kRanks; ++r) {
    MESHIFT_RETURN_IF_ERROR(world->engine(r)->SetRecord({.dump_folder = folder}));
    MESHIFT_ASSIGN_OR_RETURN(
        Redistributor made,
        Redistributor::Create(mesh, world->engine(r), {.agreement = Agreement::kOff}));
    redistribute.push_back(std::move(made));
  }
  const auto call = [&](int64_t rank, const Case& which) -> absl::StatusOr<RunHandle> {
    MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[5,6]", mesh, which.from));
    MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements(which.to));
    return redistribute[rank](
        {.from = from,
         .to = to,
         .source =
             TensorView::Contiguous(memory[2 * rank].data(), DType::kF32, from.LocalBox(rank).size),
         .target = TensorView::Contiguous(memory[2 * rank + 1].data(), DType::kF32,
                                          to.LocalBox(rank).size)});
  };
  for (int round = 0; round < 3; ++round) {
    for (const Case& which : kCases) {
      std::vector<RunHandle> runs;
      for (int64_t r = 0; r < kRanks; ++r) {
        MESHIFT_ASSIGN_OR_RETURN(RunHandle run, call(r, which));
        runs.push_back(std::move(run));
      }
      for (const RunHandle& run : runs) MESHIFT_RETURN_IF_ERROR(run.Wait());
    }
  }
  MESHIFT_RETURN_IF_ERROR(
      world->engine(0)->SetTimeouts(Timeouts::Of(std::chrono::milliseconds(300))));
  for (int64_t r = 0; r < kRanks; ++r) {
    if (r != missing) MESHIFT_RETURN_IF_ERROR(call(r, kCases[3]).status());
  }
  // No thread waits; the watchdog ends the job, and each rank's record exists before its error is
  // seen.
  for (int64_t r = 0; r < kRanks; ++r) {
    absl::Status status;
    while (status.ok()) {
      status = redistribute[r].Prepare(absl::Span<const Plan>());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    fmt::print("rank {}: {}\n", r, status.ToString());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = meshift::Run(argv[1], std::atoll(argv[2]));
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
