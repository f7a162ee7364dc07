#include "bench/record_cost.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/mpi_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "testing/allocation_count.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 400;
constexpr int kCalls = 100;
constexpr int kWarmUp = 3000;  // calls; more than the record keeps

struct Side {
  std::unique_ptr<Engine> engine;
  std::optional<Redistributor> redistribute;
  std::vector<double> submission;  // ns per call, by round
  std::vector<double> whole;       // the same, including the wait
  int64_t allocations = 0;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double MedianMore(const std::vector<double>& with, const std::vector<double>& without) {
  std::vector<double> more(with.size());
  for (size_t i = 0; i < with.size(); ++i) more[i] = with[i] - without[i];
  return Median(std::move(more));
}

absl::Status Round(Side& side, const Redistribution& what, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  Clock::duration submitting{};
  const int64_t before = NumAllocations();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) {
    const auto submit = Clock::now();
    const absl::StatusOr<RunHandle> run = (*side.redistribute)(what);
    submitting += Clock::now() - submit;
    MESHIFT_RETURN_IF_ERROR(run.ok() ? run->Wait() : run.status());
  }
  const auto ns = [&](Clock::duration time) {
    return static_cast<double>(std::chrono::nanoseconds(time).count()) / calls;
  };
  const double whole = ns(Clock::now() - begin);
  side.allocations += NumAllocations() - before;
  side.whole.push_back(whole);
  side.submission.push_back(ns(submitting));
  return absl::OkStatus();
}

}  // namespace

absl::Status PrintRecordCost() {
  int ranks = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (const unsigned cores = std::thread::hardware_concurrency();
      static_cast<unsigned>(ranks) > cores) {
    if (rank == 0) fmt::print("record, {} ranks: left out, of {} cores\n", ranks, cores);
    return absl::OkStatus();
  }
  Side sides[2];
  std::optional<DeviceMesh> mesh;
  for (const int on : {0, 1}) {
    MESHIFT_ASSIGN_OR_RETURN(sides[on].engine, CreateMpiEngine());
    MESHIFT_RETURN_IF_ERROR(sides[on].engine->SetRecord({.calls = on == 0 ? 0 : 2000}));
    MESHIFT_ASSIGN_OR_RETURN(
        mesh, DeviceMesh::Parse(fmt::format("d={}", sides[on].engine->world_size())));
    MESHIFT_ASSIGN_OR_RETURN(
        Redistributor made,
        Redistributor::Create(*mesh, sides[on].engine.get(), {.agreement = Agreement::kOff}));
    sides[on].redistribute.emplace(std::move(made));
  }
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from, Sharding::Parse("f32[2]", *mesh, "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements("R"));
  float in[2] = {1, 1};
  float out[2] = {};
  const Redistribution what = {.from = from,
                               .to = to,
                               .source = TensorView::Contiguous(in, DType::kF32, {2}),
                               .target = TensorView::Contiguous(out, DType::kF32, {2})};
  for (Side& side : sides) {
    MESHIFT_RETURN_IF_ERROR(Round(side, what, kWarmUp));
    side = Side{.engine = std::move(side.engine),
                .redistribute = std::move(side.redistribute),
                .submission = {},
                .whole = {}};
  }
  for (int round = 0; round < kRounds; ++round) {
    for (const int turn : {0, 1}) {
      MESHIFT_RETURN_IF_ERROR(Round(sides[(round + turn) % 2], what, kCalls));
    }
  }
  if (sides[0].engine->rank() != 0) return absl::OkStatus();
  const Side& off = sides[0];
  const Side& on = sides[1];
  fmt::print(
      "record, {} ranks, all_reduce of 8 bytes: submission {:.0f} ns without, {:.0f} with, {:+.0f} "
      "in the median of {} rounds; with the wait {:.0f}, {:.0f}, {:+.0f}; allocations {}, {}\n",
      off.engine->world_size(), Median(off.submission), Median(on.submission),
      MedianMore(on.submission, off.submission), kRounds, Median(off.whole), Median(on.whole),
      MedianMore(on.whole, off.whole), off.allocations, on.allocations);
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace meshift
