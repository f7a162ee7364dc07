// The cost of a single stream for all groups, against a stream per group.
//
//   ./bazelw run //bench:streams_bench     # the local engine, then 4 processes over MPI
//
// Four ranks, on a mesh of 2 x 2. Each rank starts an all-reduce of group A (over `a`), then a
// short one of group B (over `b`), computes on the host with B's result, and waits for A's. A is
// slow because
//   late    its input on rank 0 is produced 5 ms late, by work on another stream, or
//   large   it moves 16 MiB.
// Both modes run in turn, in one process. Medians over the rounds, on rank 0, in us: from the start
// of a round until B's result exists, and until all is done. Then the ratios, single / per group.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/mpi_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRanks = 4;
constexpr int64_t kSmall = 1024;
constexpr int64_t kLarge = int64_t{4} << 20;
constexpr std::chrono::milliseconds kLate(5);
constexpr std::chrono::milliseconds kCompute(4);

constexpr char kRow[] = "{:<6} {:<6} {:>12} {:>12} {:>8} {:>12} {:>12} {:>8}\n";

double Us(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Times {
  std::vector<double> result;  // until B's result exists
  std::vector<double> all;
};

class Bench {
 public:
  static absl::StatusOr<Bench> Create(Engine* engine);
  absl::Status Run(bool late, int rounds);

 private:
  Bench(Engine* engine, DeviceMesh mesh) : engine_(engine), mesh_(std::move(mesh)) {}
  // Source and target of a sum over one mesh dim, for a tensor that is cut over the other.
  absl::StatusOr<std::pair<Sharding, Sharding>> Sum(char dim, int64_t local_count) const;
  absl::StatusOr<RunHandle> Reduce(Redistributor& redistribute, char dim, std::vector<float>& in,
                                   std::vector<float>& out, Stream* after = nullptr);
  absl::Status Round(Redistributor& redistribute, bool late, Times* times);

  Engine* engine_;
  DeviceMesh mesh_;
  std::vector<Redistributor> modes_;  // per group, single
  std::unique_ptr<Stream> producer_;
};

absl::StatusOr<Bench> Bench::Create(Engine* engine) {
  MESHIFT_ASSIGN_OR_RETURN(DeviceMesh mesh, DeviceMesh::Parse("a=2,b=2"));
  Bench bench(engine, std::move(mesh));
  for (const StreamMode mode : {StreamMode::kPerGroup, StreamMode::kSingleStream}) {
    MESHIFT_ASSIGN_OR_RETURN(
        Redistributor redistribute,
        Redistributor::Create(bench.mesh_, engine,
                              {.agreement = Agreement::kOff, .expert = {.streams = mode}}));
    bench.modes_.push_back(std::move(redistribute));
  }
  MESHIFT_ASSIGN_OR_RETURN(bench.producer_, engine->CreateStream());
  return bench;
}

absl::StatusOr<std::pair<Sharding, Sharding>> Bench::Sum(char dim, int64_t local_count) const {
  MESHIFT_ASSIGN_OR_RETURN(const Sharding from,
                           Sharding::Parse(fmt::format("f32[{}]", 2 * local_count), mesh_,
                                           dim == 'a' ? "P,S(0)" : "S(0),P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding to,
                           from.WithPlacements(dim == 'a' ? "R,S(0)" : "S(0),R"));
  return std::pair(from, to);
}

absl::StatusOr<RunHandle> Bench::Reduce(Redistributor& redistribute, char dim,
                                        std::vector<float>& in, std::vector<float>& out,
                                        Stream* after) {
  const auto count = static_cast<int64_t>(in.size());
  MESHIFT_ASSIGN_OR_RETURN(const auto sum, Sum(dim, count));
  return redistribute({.from = sum.first,
                       .to = sum.second,
                       .source = TensorView::Contiguous(in.data(), DType::kF32, {count}),
                       .target = TensorView::Contiguous(out.data(), DType::kF32, {count}),
                       .after = after});
}

// The host's work takes a fixed time, like a kernel of the device, whatever else the machine does.
void Compute() {
  const auto end = Clock::now() + kCompute;
  while (Clock::now() < end) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

absl::Status Bench::Round(Redistributor& redistribute, bool late, Times* times) {
  const int64_t rank = engine_->rank();
  std::vector<float> in_a(late ? kSmall : kLarge, 1.0F);
  std::vector<float> out_a(in_a.size());
  std::vector<float> in_b(kSmall, static_cast<float>(rank));
  std::vector<float> out_b(kSmall);
  // All begin together.
  MESHIFT_RETURN_IF_ERROR(engine_->world()->Barrier(*producer_));
  MESHIFT_RETURN_IF_ERROR(engine_->Synchronize(*producer_));
  const auto begin = Clock::now();
  // The producer's work on rank 0 ends when the other ranks enter a barrier.
  absl::Status barrier;
  std::thread others;
  if (late && rank == 0) {
    MESHIFT_RETURN_IF_ERROR(engine_->world()->Barrier(*producer_));
  } else if (late) {
    others = std::thread([&] {
      std::this_thread::sleep_until(begin + kLate);
      barrier = engine_->world()->Barrier(*producer_);
    });
  }
  const auto run = [&]() -> absl::Status {
    MESHIFT_ASSIGN_OR_RETURN(const RunHandle a, Reduce(redistribute, 'a', in_a, out_a,
                                                       rank == 0 ? producer_.get() : nullptr));
    MESHIFT_ASSIGN_OR_RETURN(const RunHandle b, Reduce(redistribute, 'b', in_b, out_b));
    MESHIFT_RETURN_IF_ERROR(b.Wait());
    times->result.push_back(Us(Clock::now() - begin));
    Compute();
    return a.Wait();
  };
  const absl::Status status = run();
  times->all.push_back(Us(Clock::now() - begin));
  if (others.joinable()) others.join();
  MESHIFT_RETURN_IF_ERROR(status);
  MESHIFT_RETURN_IF_ERROR(barrier);
  MESHIFT_RETURN_IF_ERROR(engine_->Synchronize(*producer_));
  const float want = rank < 2 ? 1.0F : 5.0F;
  if (out_a.back() != 2.0F || out_b.back() != want) return Internal("a sum is wrong");
  return absl::OkStatus();
}

absl::Status Bench::Run(bool late, int rounds) {
  std::array<Times, 2> times;
  for (Redistributor& redistribute : modes_) {
    MESHIFT_ASSIGN_OR_RETURN(const auto a, Sum('a', late ? kSmall : kLarge));
    MESHIFT_ASSIGN_OR_RETURN(const auto b, Sum('b', kSmall));
    MESHIFT_RETURN_IF_ERROR(redistribute.Prepare(a.first, a.second).status());
    MESHIFT_RETURN_IF_ERROR(redistribute.Prepare(b.first, b.second).status());
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < modes_.size(); ++i) {
      MESHIFT_RETURN_IF_ERROR(Round(modes_[i], late, &times[i]));
    }
  }
  if (engine_->rank() != 0) return absl::OkStatus();
  const double result = Median(times[0].result);
  const double result_single = Median(times[1].result);
  const double all = Median(times[0].all);
  const double all_single = Median(times[1].all);
  const auto us = [](double value) { return fmt::format("{:.0f}", value); };
  const auto ratio = [](double value) { return fmt::format("{:.2f}", value); };
  fmt::print(kRow, engine_->name(), late ? "late" : "large", us(result), us(result_single),
             ratio(result_single / result), us(all), us(all_single), ratio(all_single / all));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status RunRank(Engine* engine) {
  MESHIFT_ASSIGN_OR_RETURN(Bench bench, Bench::Create(engine));
  MESHIFT_RETURN_IF_ERROR(bench.Run(/*late=*/true, /*rounds=*/51));
  return bench.Run(/*late=*/false, /*rounds=*/15);
}

absl::Status RunLocal() {
  fmt::print(kRow, "engine", "A is", "B per group", "B single", "ratio", "all, group", "all single",
             "ratio");
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstraps, Bootstrap::InProcess(kRanks));
  LocalWorldOptions options{.num_ranks = kRanks};
  for (const auto& bootstrap : bootstraps) options.control.push_back(bootstrap->control());
  MESHIFT_ASSIGN_OR_RETURN(const auto world, LocalWorld::Create(options));
  std::array<absl::Status, kRanks> statuses;
  std::vector<std::thread> ranks;
  for (int64_t r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, r] { statuses[r] = RunRank(world->engine(r)); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& status : statuses) MESHIFT_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status RunMpi() {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  if (engine->world_size() != kRanks) {
    return InvalidArgument("{} ranks are not {}", engine->world_size(), kRanks);
  }
  MESHIFT_RETURN_IF_ERROR(RunRank(engine.get()));
  return bootstrap->Exchange("").status();  // no rank leaves before all are done
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "mpi") {
    auto session = meshift::MpiSession::Start();
    const absl::Status status = session.ok() ? meshift::RunMpi() : session.status();
    if (status.ok()) return 0;
    fmt::print(stderr, "streams_bench: {}\n", meshift::Message(status));
    meshift::MpiSession::Leave(1);
  }
  const absl::Status status = meshift::RunLocal();
  if (status.ok()) return 0;
  fmt::print(stderr, "streams_bench: {}\n", meshift::Message(status));
  return 1;
}
