// The cost of a redistribution on the MPI engine, relative to the same MPI calls made by hand. All
// ratios are from one run, with the two sides in turn.
//
//   ./bazelw run //bench:execute_bench            # mpirun -n 2 and -n 4 of this program
//   ./bazelw run //bench:execute_bench 1048576 all_gather    # only this size and operation
//   ./bazelw run //bench:execute_bench bounded               # with MpiEngineOptions::bounded_waits
//   ./bazelw run //bench:execute_bench record                # only the cost of the record of calls
//   ./bazelw run //bench:execute_bench broadcast reduce gather scatter    # from and to rank 0
//
// Bytes are those of the larger of a rank's two buffers, as nccl-tests counts. Columns, in us: the
// blocking and the non-blocking MPI call; the engine's call; the redistribution; the difference
// between the redistribution and the faster of the two MPI calls at that size. Then ratios: the
// time of the MPI call over that of the engine's call, and over that of the redistribution, with
// the quartiles of the latter over the rounds. If elements change places, the MPI side packs or
// unpacks with memcpy, and the last ratio is that of the all-to-all alone.
//
// A time is that of the slowest rank, at the fastest tenth of many rounds of several calls. In a
// round all variants run in turn, in random order. Ratios and differences are medians over the
// rounds, so that a disturbance that lasts longer than a round affects both sides.
//
// Submission is the calling thread's time until Redistribute returns. It is measured on an idle
// stream, where the call may do more than submit, right after a call of that size, which leaves its
// data in the caches; for comparison, the time of MPI itself to begin a non-blocking all-reduce of
// 4 bytes, and to begin the same call, which may already move some data. Warm: on an idle stream
// after small calls of the same kind. Then on a busy stream; on a busy stream with cold caches; and
// on an idle stream while another thread runs an all-reduce of 64 MiB on another stream (up to 64
// KiB).
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "bench/record_cost.h"
#include "meshift/device_mesh.h"
#include "meshift/mpi_engine.h"
#include "meshift/plan.h"
#include "meshift/plan_io.h"
#include "meshift/planner.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// Columns of the matrix whose columns move: rows of 4 KiB.
constexpr int64_t kColumns = 1024;
constexpr int64_t kSweepBytes = int64_t{64} << 20;

constexpr char kRow[] =
    "{:>5}  {:<14} {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>6}  {:>6}  {:>11}  {:>6}  {:>6}  "
    "{:>6}  {:>6}  {:>6}  {:>6}  {:>6}  {:>6}\n";

double Us(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

using Times = std::vector<double>;  // one per round

double Quantile(Times values, double part) {
  const auto place =
      values.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(values.size()) * part);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

// The machine may be busy with other work: takes the slowest of the fastest tenth of the rounds, so
// that a single lucky round decides nothing.
double Best(const Times& values) { return Quantile(values, 0.1); }
double Median(const Times& values) { return Quantile(values, 0.5); }

// fn(a, b) for each round.
template <typename Fn>
Times OfRounds(const Times& a, const Times& b, const Fn& fn) {
  Times result(a.size());
  std::transform(a.begin(), a.end(), b.begin(), result.begin(), fn);
  return result;
}
Times Ratios(const Times& a, const Times& b) { return OfRounds(a, b, std::divides<>()); }

// The time of a call is that of the slowest rank.
void TakeSlowestRank(Times* times) {
  MPI_Allreduce(MPI_IN_PLACE, times->data(), static_cast<int>(times->size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
}

// A measured redistribution, and the MPI calls that do the same.
struct Subject {
  const char* name;
  std::string tensor;
  std::string small;  // the same with little data
  const char* from;
  const char* to;
  std::function<absl::Status(Stream&)> engine;  // the same call of the engine; null: none
  std::function<void()> blocking;
  std::function<void(MPI_Request*)> non_blocking;
  std::function<void()> before;  // packing and unpacking around the MPI call
  std::function<void()> behind;
};

// The links of a host's memory, roughly: messages and local operations start at once. By the
// default topology, that of GPUs, a small gather takes longer than an all_gather and a slice.
absl::StatusOr<Topology> HostTopology() {
  return Topology::Create(
      {{.name = "host", .bandwidth_bytes_per_us = 10000, .latency_ns = 500}},
      {.message_latency_ns = 0, .copy_latency_ns = 0, .copy_bandwidth_bytes_per_us = 10000});
}

struct Submission {
  double idle = 0;
  double warm = 0;
  double busy = 0;
  double cold = 0;
  double beside = -1;  // not measured
};

// Times of the rounds, by variant.
struct Measured {
  Times blocking;      // MPI calls, with packing by hand
  Times non_blocking;  // including the wait
  Times bare_blocking;
  Times bare_polled;
  Times engine;  // empty: none
  Times own;
  Times submission;
  Times mpi_submission;
  Times mpi_begin;

  std::vector<Times*> Ways() {
    return {&blocking, &non_blocking, &bare_blocking,  &bare_polled, &engine,
            &own,      &submission,   &mpi_submission, &mpi_begin};
  }
};

class Bench {
 public:
  // `only`: names of operations; empty: all.
  Bench(Engine* engine, int ranks, std::vector<std::string> only)
      : engine_(*engine), ranks_(ranks), only_(std::move(only)), sweep_(kSweepBytes) {}

  // `bytes`: the larger of a rank's two buffers.
  absl::Status Run(int64_t bytes, int rounds, int calls);

 private:
  absl::Status RunOne(const Subject& subject, int64_t bytes, int rounds, int calls);
  // Submissions of rank 0 on a stream that waits for another rank, in us.
  absl::Status Submit(Redistributor& redistribute, const Redistribution& what, bool cold,
                      double* us);
  // One submission on an idle stream directly after small ones, in us.
  absl::Status SubmitWarm(Redistributor& redistribute, const Redistribution& what,
                          const Redistribution& small, double* us);
  // One submission during an all-reduce of 64 MiB, in us.
  absl::Status SubmitBeside(Redistributor& redistribute, const Redistribution& what, double* us);
  // All submission times except `idle`.
  absl::Status MeasureSubmission(Redistributor& redistribute, const Redistribution& what,
                                 const Redistribution& small, int rounds, bool beside,
                                 Submission* submit);
  void PrintRow(const Subject& subject, int64_t bytes, const Measured& times,
                const Submission& submit) const;
  // Adds the calls from and to rank 0: of `count` elements, or of `block` elements per rank.
  void AddRooted(int64_t count, int64_t block, std::vector<Subject>* subjects);
  // Copies the columns of a row-major matrix of `rows` rows into one block per rank, or back.
  void MoveColumns(int64_t rows, bool pack);

  // The time per call over `calls` calls, in us.
  double Time(int calls, const std::function<void()>& call) const {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    return Us(Clock::now() - begin) / calls;
  }

  Engine& engine_;
  const int ranks_;
  const std::vector<std::string> only_;
  std::vector<float> in_;
  std::vector<float> out_;
  std::vector<float> packed_;
  std::vector<char> sweep_;
  std::vector<float> large_in_;
  std::vector<float> large_out_;
  std::unique_ptr<Stream> held_;
};

absl::Status Bench::Run(int64_t bytes, int rounds, int calls) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  const int64_t block = std::max<int64_t>(count / ranks_, 1);
  // At least the size of small_matrix below.
  in_.assign(std::max({count, block * ranks_, int64_t{64} * ranks_ * ranks_}), 1.0F);
  out_.assign(in_.size(), 0.0F);
  packed_.assign(in_.size(), 0.0F);
  Communicator& world = *engine_.world();
  const int all = static_cast<int>(count);
  const int part = static_cast<int>(block);
  const std::vector<int> parts(ranks_, part);
  std::vector<int> places;
  for (int i = 0; i < ranks_; ++i) places.push_back(i * part);
  const auto all_to_all = [&](const float* in, float* out) {
    MPI_Alltoallv(in, parts.data(), places.data(), MPI_FLOAT, out, parts.data(), places.data(),
                  MPI_FLOAT, MPI_COMM_WORLD);
  };
  const auto all_to_all_non_blocking = [&](const float* in, float* out, MPI_Request* request) {
    MPI_Ialltoallv(in, parts.data(), places.data(), MPI_FLOAT, out, parts.data(), places.data(),
                   MPI_FLOAT, MPI_COMM_WORLD, request);
  };
  const std::string vector = fmt::format("f32[{}]", count);
  // Each rank has one of the tensor's `ranks` rows, or one of `ranks` parts of each row.
  const std::string rows = fmt::format("f32[{},{}]", ranks_, count);
  const std::string matrix = fmt::format("f32[{},{}]", ranks_ * count / kColumns, kColumns);
  const std::string small_vector = fmt::format("f32[{}]", ranks_ * 16);
  const std::string small_rows = fmt::format("f32[{},{}]", ranks_, ranks_ * 16);
  const std::string small_matrix = fmt::format("f32[{},{}]", ranks_ * 4, ranks_ * 16);
  std::vector<Subject> subjects = {
      {"all_reduce", vector, small_vector, "P", "R",
       [&](Stream& stream) {
         return world.AllReduce(in_.data(), out_.data(), count, DType::kF32, {}, stream);
       },
       [&] { MPI_Allreduce(in_.data(), out_.data(), all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
       [&](MPI_Request* request) {
         MPI_Iallreduce(in_.data(), out_.data(), all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, request);
       },
       nullptr, nullptr},
      {"all_gather", vector, small_vector, "S(0)", "R",
       [&](Stream& stream) {
         return world.AllGather(in_.data(), out_.data(), block, DType::kF32, stream);
       },
       [&] {
         MPI_Allgather(in_.data(), part, MPI_FLOAT, out_.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
       },
       [&](MPI_Request* request) {
         MPI_Iallgather(in_.data(), part, MPI_FLOAT, out_.data(), part, MPI_FLOAT, MPI_COMM_WORLD,
                        request);
       },
       nullptr, nullptr},
      {"reduce_scatter", vector, small_vector, "P", "S(0)",
       [&](Stream& stream) {
         return world.ReduceScatter(in_.data(), out_.data(), block, DType::kF32, {}, stream);
       },
       [&] {
         MPI_Reduce_scatter(in_.data(), out_.data(), parts.data(), MPI_FLOAT, MPI_SUM,
                            MPI_COMM_WORLD);
       },
       [&](MPI_Request* request) {
         MPI_Ireduce_scatter(in_.data(), out_.data(), parts.data(), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD, request);
       },
       nullptr, nullptr},
      {"all_to_all", rows, small_rows, "S(0)", "S(1)",
       [&](Stream& stream) {
         return world.AllToAll(in_.data(), out_.data(), block, DType::kF32, stream);
       },
       [&] { all_to_all(in_.data(), out_.data()); },
       [&](MPI_Request* request) { all_to_all_non_blocking(in_.data(), out_.data(), request); },
       nullptr, nullptr},
      {"+ packing", matrix, small_matrix, "S(0)", "S(1)", nullptr,
       [&] { all_to_all(packed_.data(), out_.data()); },
       [&](MPI_Request* request) { all_to_all_non_blocking(packed_.data(), out_.data(), request); },
       [&] { MoveColumns(count / kColumns, /*pack=*/true); }, nullptr},
      {"+ unpacking", matrix, small_matrix, "S(1)", "S(0)", nullptr,
       [&] { all_to_all(in_.data(), packed_.data()); },
       [&](MPI_Request* request) { all_to_all_non_blocking(in_.data(), packed_.data(), request); },
       nullptr, [&] { MoveColumns(count / kColumns, /*pack=*/false); }},
  };
  if (part < ranks_ * kColumns) subjects.resize(1);
  AddRooted(count, block, &subjects);
  for (const Subject& subject : subjects) {
    if (!only_.empty() && std::find(only_.begin(), only_.end(), subject.name) == only_.end()) {
      continue;
    }
    MESHIFT_RETURN_IF_ERROR(RunOne(subject, bytes, rounds, calls));
  }
  return absl::OkStatus();
}

void Bench::AddRooted(int64_t count, int64_t block, std::vector<Subject>* subjects) {
  const int all = static_cast<int>(count);
  const int part = static_cast<int>(block);
  const std::string vector = fmt::format("f32[{}]", count);
  const std::string blocks = fmt::format("f32[{}]", block * ranks_);
  const std::string small = fmt::format("f32[{}]", ranks_ * 16);
  const bool is_root = engine_.rank() == 0;
  // A redistribution leaves the source as it is, so the root also has a copy.
  const auto copy = [this, is_root, count] {
    if (is_root) std::memcpy(out_.data(), in_.data(), count * sizeof(float));
  };
  subjects->push_back({"broadcast", vector, small, "At(0)", "R", nullptr,
                       [this, all] { MPI_Bcast(out_.data(), all, MPI_FLOAT, 0, MPI_COMM_WORLD); },
                       [this, all](MPI_Request* request) {
                         MPI_Ibcast(out_.data(), all, MPI_FLOAT, 0, MPI_COMM_WORLD, request);
                       },
                       copy, nullptr});
  subjects->push_back(
      {"reduce", vector, small, "P", "At(0)", nullptr,
       [this, all] {
         MPI_Reduce(in_.data(), out_.data(), all, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
       },
       [this, all](MPI_Request* request) {
         MPI_Ireduce(in_.data(), out_.data(), all, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD, request);
       },
       nullptr, nullptr});
  subjects->push_back({"gather", blocks, small, "S(0)", "At(0)", nullptr,
                       [this, part] {
                         MPI_Gather(in_.data(), part, MPI_FLOAT, out_.data(), part, MPI_FLOAT, 0,
                                    MPI_COMM_WORLD);
                       },
                       [this, part](MPI_Request* request) {
                         MPI_Igather(in_.data(), part, MPI_FLOAT, out_.data(), part, MPI_FLOAT, 0,
                                     MPI_COMM_WORLD, request);
                       },
                       nullptr, nullptr});
  subjects->push_back({"scatter", blocks, small, "At(0)", "S(0)", nullptr,
                       [this, part] {
                         MPI_Scatter(in_.data(), part, MPI_FLOAT, out_.data(), part, MPI_FLOAT, 0,
                                     MPI_COMM_WORLD);
                       },
                       [this, part](MPI_Request* request) {
                         MPI_Iscatter(in_.data(), part, MPI_FLOAT, out_.data(), part, MPI_FLOAT, 0,
                                      MPI_COMM_WORLD, request);
                       },
                       nullptr, nullptr});
}

void Bench::MoveColumns(int64_t rows, bool pack) {
  const int64_t columns = kColumns / ranks_;
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    for (int64_t row = 0; row < rows; ++row) {
      float* const packed = packed_.data() + (rank * rows + row) * columns;
      const int64_t place = row * kColumns + rank * columns;
      if (pack) {
        std::memcpy(packed, in_.data() + place, columns * sizeof(float));
      } else {
        std::memcpy(out_.data() + place, packed, columns * sizeof(float));
      }
    }
  }
}

absl::Status Bench::Submit(Redistributor& redistribute, const Redistribution& what, bool cold,
                           double* us) {
  constexpr int kCalls = 8;
  if (held_ == nullptr) {
    MESHIFT_ASSIGN_OR_RETURN(held_, engine_.CreateStream());
  }
  const bool measures = engine_.rank() == 0;
  // The other ranks enter the barrier once this rank has submitted.
  if (!measures) MPI_Barrier(MPI_COMM_WORLD);
  MESHIFT_RETURN_IF_ERROR(engine_.world()->Barrier(*held_));
  Redistribution first = what;
  first.after = held_.get();
  MESHIFT_ASSIGN_OR_RETURN(RunHandle last, redistribute(first));
  double sum = 0;
  for (int i = 0; i < kCalls; ++i) {
    if (cold && measures) std::fill(sweep_.begin(), sweep_.end(), static_cast<char>(i));
    const auto begin = Clock::now();
    absl::StatusOr<RunHandle> run = redistribute(what);
    sum += Us(Clock::now() - begin);
    MESHIFT_RETURN_IF_ERROR(run.status());
    last = *std::move(run);
  }
  if (measures) MPI_Barrier(MPI_COMM_WORLD);
  *us = sum / kCalls;
  return last.Wait();
}

absl::Status Bench::SubmitWarm(Redistributor& redistribute, const Redistribution& what,
                               const Redistribution& small, double* us) {
  for (int i = 0; i < 16; ++i) {
    MESHIFT_ASSIGN_OR_RETURN(const RunHandle run, redistribute(small));
    MESHIFT_RETURN_IF_ERROR(run.Wait());
  }
  const auto begin = Clock::now();
  const absl::StatusOr<RunHandle> run = redistribute(what);
  *us = Us(Clock::now() - begin);
  return run.ok() ? run->Wait() : run.status();
}

absl::Status Bench::SubmitBeside(Redistributor& redistribute, const Redistribution& what,
                                 double* us) {
  constexpr int64_t kCount = kSweepBytes / static_cast<int64_t>(sizeof(float));
  large_in_.resize(kCount, 1.0F);
  large_out_.resize(kCount);
  MPI_Barrier(MPI_COMM_WORLD);
  MESHIFT_RETURN_IF_ERROR(engine_.world()->AllReduce(large_in_.data(), large_out_.data(), kCount,
                                                     DType::kF32, {}, *held_));
  absl::Status waited;
  std::thread waiter([&] { waited = engine_.Synchronize(*held_); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const auto begin = Clock::now();
  const absl::StatusOr<RunHandle> run = redistribute(what);
  *us = Us(Clock::now() - begin);
  const absl::Status status = run.ok() ? run->Wait() : run.status();
  waiter.join();
  return status.ok() ? waited : status;
}

absl::Status Bench::RunOne(const Subject& subject, int64_t bytes, int rounds, int calls) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse(fmt::format("d={}", ranks_)));
  MESHIFT_ASSIGN_OR_RETURN(const Topology topology, HostTopology());
  MESHIFT_ASSIGN_OR_RETURN(
      Redistributor redistribute,
      Redistributor::Create(mesh, &engine_,
                            {.planning = {.topology = topology}, .agreement = Agreement::kOff}));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from,
                           Sharding::Parse(subject.tensor, mesh, subject.from));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to, from.WithPlacements(subject.to));
  MESHIFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(from, to, {.topology = topology}));
  if (plan.steps().size() != 1) return Internal("{}: {}", subject.name, PlanToText(plan));
  const TensorView source =
      TensorView::Contiguous(in_.data(), DType::kF32, from.LocalBox(engine_.rank()).size);
  const TensorView target =
      TensorView::Contiguous(out_.data(), DType::kF32, to.LocalBox(engine_.rank()).size);
  const Redistribution what = {.from = from, .to = to, .source = source, .target = target};
  MESHIFT_ASSIGN_OR_RETURN(const Sharding small_from,
                           Sharding::Parse(subject.small, mesh, subject.from));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding small_to, small_from.WithPlacements(subject.to));
  const Redistribution small = {
      .from = small_from,
      .to = small_to,
      .source =
          TensorView::Contiguous(in_.data(), DType::kF32, small_from.LocalBox(engine_.rank()).size),
      .target =
          TensorView::Contiguous(out_.data(), DType::kF32, small_to.LocalBox(engine_.rank()).size)};
  absl::Status status;
  Clock::duration submitting{};
  const auto wait_for = [&](const absl::StatusOr<RunHandle>& run) {
    if (status.ok()) status = run.ok() ? run->Wait() : run.status();
  };
  const auto ours = [&] { wait_for(redistribute(what)); };
  const auto ours_timed = [&] {
    const auto begin = Clock::now();
    const absl::StatusOr<RunHandle> run = redistribute(what);
    submitting += Clock::now() - begin;
    wait_for(run);
  };
  const auto bare = [&] { subject.blocking(); };
  const auto bare_non_blocking = [&] {
    MPI_Request request = MPI_REQUEST_NULL;
    subject.non_blocking(&request);
    for (int done = 0; done == 0;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  };
  const bool packs = subject.before != nullptr || subject.behind != nullptr;
  const auto with_packing = [&](const std::function<void()>& call) {
    if (subject.before != nullptr) subject.before();
    call();
    if (subject.behind != nullptr) subject.behind();
  };
  MESHIFT_ASSIGN_OR_RETURN(const auto stream, engine_.CreateStream());
  const auto of_engine = [&] {
    if (status.ok()) status = subject.engine(*stream);
    if (status.ok()) status = engine_.Synchronize(*stream);
  };
  const auto begin_with_mpi = [&] {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto begin = Clock::now();
    subject.non_blocking(&request);
    submitting += Clock::now() - begin;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  const auto submit_to_mpi = [&] {
    float in = 1;
    float out = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    const auto begin = Clock::now();
    MPI_Iallreduce(&in, &out, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    submitting += Clock::now() - begin;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  Measured times;
  const auto submits = [&](Times* of, const std::function<void()>& way) {
    submitting = {};
    way();
    of->push_back(Us(submitting) / calls);
  };
  // In turns, since each leaves the caches to the next.
  std::vector<std::function<void()>> ways = {
      [&] { times.blocking.push_back(Time(calls, [&] { with_packing(bare); })); },
      [&] { times.non_blocking.push_back(Time(calls, [&] { with_packing(bare_non_blocking); })); },
      [&] { times.own.push_back(Time(calls, ours)); },
      [&] { submits(&times.submission, [&] { Time(calls, ours_timed); }); },
      [&] {
        submits(&times.mpi_submission, [&] {
          Time(calls, [&] {
            bare();
            submit_to_mpi();
          });
        });
      },
      [&] { submits(&times.mpi_begin, [&] { Time(calls, begin_with_mpi); }); }};
  if (subject.engine != nullptr)
    ways.push_back([&] { times.engine.push_back(Time(calls, of_engine)); });
  if (packs) {
    ways.push_back([&] { times.bare_blocking.push_back(Time(calls, bare)); });
    ways.push_back([&] { times.bare_polled.push_back(Time(calls, bare_non_blocking)); });
  }
  for (int i = 0; i < 3; ++i) {
    for (const auto& way : ways) way();
  }
  for (Times* of : times.Ways()) of->clear();
  std::vector<size_t> order(ways.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(1);
  for (int round = 0; round < rounds; ++round) {
    // The same order on all ranks. In a fixed order each variant would always follow the same other
    // one, which leaves the caches in a certain state.
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t way : order) ways[way]();
  }
  MESHIFT_RETURN_IF_ERROR(status);
  Submission submit{.idle = Best(times.submission)};
  MESHIFT_RETURN_IF_ERROR(
      MeasureSubmission(redistribute, what, small, rounds, /*beside=*/bytes <= 64 << 10, &submit));
  for (Times* of : {&times.blocking, &times.non_blocking, &times.bare_blocking, &times.bare_polled,
                    &times.engine, &times.own}) {
    TakeSlowestRank(of);
  }
  if (engine_.rank() == 0) PrintRow(subject, bytes, times, submit);
  return absl::OkStatus();
}

absl::Status Bench::MeasureSubmission(Redistributor& redistribute, const Redistribution& what,
                                      const Redistribution& small, int rounds, bool beside,
                                      Submission* submit) {
  Times warm;
  for (int round = 0; round < rounds; ++round) {
    MESHIFT_RETURN_IF_ERROR(SubmitWarm(redistribute, what, small, &warm.emplace_back()));
  }
  submit->warm = Best(warm);
  for (const bool cold : {false, true}) {
    double& best = cold ? submit->cold : submit->busy;
    for (int round = 0; round < std::max(rounds / 4, 10); ++round) {
      double us = 0;
      MESHIFT_RETURN_IF_ERROR(Submit(redistribute, what, cold, &us));
      best = round == 0 ? us : std::min(best, us);
    }
  }
  for (int round = 0; beside && round < 20; ++round) {
    double us = 0;
    MESHIFT_RETURN_IF_ERROR(SubmitBeside(redistribute, what, &us));
    submit->beside = round == 0 ? us : std::min(submit->beside, us);
  }
  return absl::OkStatus();
}

void Bench::PrintRow(const Subject& subject, int64_t bytes, const Measured& times,
                     const Submission& submit) const {
  const bool blocks = Median(times.blocking) <= Median(times.non_blocking);
  const Times& mpi = blocks ? times.blocking : times.non_blocking;
  const Times& bare = blocks ? times.bare_blocking : times.bare_polled;
  const Times ratios = Ratios(mpi, times.own);
  // Empty if not measured.
  const auto text = [](const Times& of, double (*figure)(const Times&)) {
    return of.empty() ? "" : fmt::format("{:.2f}", figure(of));
  };
  const auto ratio = [&](const Times& of, const Times& over) {
    return of.empty() || over.empty() ? "" : fmt::format("{:.2f}", Median(Ratios(of, over)));
  };
  fmt::print(kRow, ranks_, subject.name, bytes, text(times.blocking, Best),
             text(times.non_blocking, Best), text(times.engine, Best), text(times.own, Best),
             text(OfRounds(times.own, mpi, std::minus<>()), Median), ratio(mpi, times.engine),
             text(ratios, Median),
             fmt::format("{:.2f}-{:.2f}", Quantile(ratios, 0.25), Quantile(ratios, 0.75)),
             ratio(bare, times.own), fmt::format("{:.2f}", submit.idle),
             text(times.mpi_submission, Best), text(times.mpi_begin, Best),
             fmt::format("{:.2f}", submit.warm), fmt::format("{:.2f}", submit.busy),
             fmt::format("{:.2f}", submit.cold),
             submit.beside < 0 ? "" : fmt::format("{:.2f}", submit.beside));
  std::fflush(stdout);
}

// `sizes`, `operations`: only these; empty: all.
absl::Status RunAll(const std::vector<int64_t>& sizes, std::vector<std::string> operations) {
  const bool bounded = std::erase(operations, "bounded") > 0;
  const bool all = operations.empty();
  if (std::erase(operations, "record") > 0 || (all && sizes.empty())) {
    MESHIFT_RETURN_IF_ERROR(PrintRecordCost());
    if (!all && operations.empty()) return absl::OkStatus();
  }
  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           CreateMpiEngine({.bounded_waits = bounded}));
  const int ranks = static_cast<int>(engine->world_size());
  if (engine->rank() == 0) {
    fmt::print(kRow, "ranks", "op", "bytes", "MPI, us", "MPI_I, us", "engine", "total", "added",
               "engine", "total", "half of it", "bare", "idle", "MPI", "MPI_I", "warm", "busy",
               "cold", "beside");
  }
  Bench bench(engine.get(), ranks, std::move(operations));
  struct Size {
    int64_t bytes;
    int rounds;
    int calls;
  };
  for (const auto& [bytes, rounds, calls] :
       {Size{8, 200, 100}, Size{64 << 10, 200, 20}, Size{1 << 20, 200, 8}, Size{64 << 20, 80, 1}}) {
    if (!sizes.empty() && std::find(sizes.begin(), sizes.end(), bytes) == sizes.end()) continue;
    MESHIFT_RETURN_IF_ERROR(bench.Run(bytes, rounds, calls));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  std::vector<int64_t> sizes;
  std::vector<std::string> operations;
  for (int i = 1; i < argc; ++i) {
    const int64_t size = std::strtoll(argv[i], nullptr, 10);
    if (size > 0) {
      sizes.push_back(size);
    } else {
      operations.emplace_back(argv[i]);
    }
  }
  auto session = meshift::MpiSession::Start();
  const absl::Status status =
      session.ok() ? meshift::RunAll(sizes, std::move(operations)) : session.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "execute_bench: {}\n", meshift::Message(status));
  meshift::MpiSession::Leave(1);
}
