// The cost of a cached redistribution for the calling thread, besides the engine's calls: look-up
// of the plan, checks of the views, the program, the handle.
//
//   ./bazelw run //bench:submit_bench
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/allocation_count.h"
#include "testing/internal/noop_engine.h"

namespace meshift {
namespace {

struct Example {
  const char* name;
  const char* mesh;
  const char* tensor;
  const char* from;
  const char* to;
};
int64_t CpuNs() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

constexpr Example kExamples[] = {
    {"all_reduce", "dp=8", "f32[1024]", "P", "R"},
    {"all_gather", "fsdp=8,tp=4", "bf16[4096,4096]", "S(0),S(1)", "R,S(1)"},
    {"all_gather_uneven", "fsdp=8", "bf16[1001,7]", "S(0)", "R"},
    {"reduce_scatter", "fsdp=8,tp=4", "f32[4096,4096]", "P,S(1)", "S(0),S(1)"},
    {"all_to_all", "cp=8", "bf16[64,64,128]", "S(0)", "S(1)"},
    {"slice_all_reduce_gather", "dp=4,tp=2", "f32[1024,64]", "P,R", "R,R"},
};

// How a call is made: with strided views, after an event, with a ticket, or posted to the peers.
enum class How { kPlain, kStrided, kAfter, kTicket, kPosted };

void Submit(benchmark::State& state, const Example& example, How how) {
  const DeviceMesh mesh = DeviceMesh::Parse(example.mesh).value();
  const auto peers = Bootstrap::InProcess(mesh.NumRanks()).value();
  NoopEngine engine(1, mesh.NumRanks(), how == How::kPosted ? peers[1]->control() : nullptr);
  Redistributor redistribute =
      Redistributor::Create(mesh, &engine, {.agreement = Agreement::kOff}).value();
  const Sharding from = Sharding::Parse(example.tensor, mesh, example.from).value();
  const Sharding to = from.WithPlacements(example.to).value();
  std::vector<char> in(size_t{1} << 26);
  std::vector<char> out(size_t{1} << 26);
  TensorView source = TensorView::Contiguous(in.data(), from.dtype(), from.LocalBox(1).size);
  const TensorView target = TensorView::Contiguous(out.data(), to.dtype(), to.LocalBox(1).size);
  if (how == How::kStrided) {
    for (int64_t& stride : source.strides) stride *= 2;
  }
  const auto producer = engine.CreateStream().value();
  int64_t ticket = 0;
  for (auto _ : state) {
    absl::StatusOr<RunHandle> run =
        redistribute({.from = from,
                      .to = to,
                      .source = source,
                      .target = target,
                      .after = how == How::kAfter ? producer.get() : nullptr,
                      .ticket = how == How::kTicket ? std::optional(ticket++) : std::nullopt});
    if (!run.ok()) return state.SkipWithError(run.status().ToString().c_str());
    benchmark::DoNotOptimize(run);
  }
}

// Lists of this many tensors, half of them gathered, half of them summed.
void SubmitList(benchmark::State& state) {
  const DeviceMesh mesh = DeviceMesh::Parse("fsdp=8").value();
  NoopEngine engine(1, mesh.NumRanks());
  Redistributor redistribute = Redistributor::Create(mesh, &engine).value();
  const Sharding whole = Sharding::Parse("bf16[64,32]", mesh, "R").value();
  const Sharding cut = whole.WithPlacements("S(0)").value();
  const Sharding partial = whole.WithPlacements("P").value();
  std::vector<std::vector<char>> memory;
  std::vector<Redistribution> list;
  for (int64_t i = 0; i < state.range(0); ++i) {
    const Sharding& from = i % 2 == 0 ? cut : partial;
    const Sharding& to = i % 2 == 0 ? whole : cut;
    const auto view = [&](const Sharding& sharding) {
      memory.emplace_back(size_t{1} << 12);
      return TensorView::Contiguous(memory.back().data(), sharding.dtype(),
                                    sharding.LocalBox(1).size);
    };
    const TensorView source = view(from);
    list.push_back({.from = from, .to = to, .source = source, .target = view(to)});
  }
  for (auto _ : state) {
    absl::StatusOr<RunHandle> run = redistribute(list);
    if (!run.ok()) return state.SkipWithError(run.status().ToString().c_str());
    benchmark::DoNotOptimize(run);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// The cost of the record and its watchdog for a call: alternates rounds with and without them.
void Record(benchmark::State& state, const Example& example) {
  constexpr int kCalls = 3000;  // per round; more than the record keeps
  const DeviceMesh mesh = DeviceMesh::Parse(example.mesh).value();
  const Sharding from = Sharding::Parse(example.tensor, mesh, example.from).value();
  const Sharding to = from.WithPlacements(example.to).value();
  std::vector<char> in(size_t{1} << 26);
  std::vector<char> out(size_t{1} << 26);
  const TensorView source = TensorView::Contiguous(in.data(), from.dtype(), from.LocalBox(1).size);
  const TensorView target = TensorView::Contiguous(out.data(), to.dtype(), to.LocalBox(1).size);
  struct Side {
    std::unique_ptr<NoopEngine> engine;
    std::optional<Redistributor> redistribute;
    std::vector<double> rounds;  // ns per call
    int64_t allocations = 0;
  };
  Side sides[2];
  for (const int on : {0, 1}) {
    sides[on].engine = std::make_unique<NoopEngine>(1, mesh.NumRanks());
    if (!sides[on].engine->SetRecord({.calls = on == 0 ? 0 : 2000}).ok()) std::abort();
    sides[on].redistribute = Redistributor::Create(mesh, sides[on].engine.get()).value();
  }
  const auto round = [&](Side& side) {
    const int64_t before = NumAllocations();
    const int64_t begin = CpuNs();
    for (int i = 0; i < kCalls; ++i) {
      absl::StatusOr<RunHandle> run =
          (*side.redistribute)({.from = from, .to = to, .source = source, .target = target});
      if (!run.ok()) std::abort();
      benchmark::DoNotOptimize(run);
    }
    const int64_t allocations = NumAllocations() - before;
    side.rounds.push_back(static_cast<double>(CpuNs() - begin) / kCalls);
    return allocations;
  };
  for (Side& side : sides) round(side);  // caches are filled
  for (auto _ : state) {
    for (Side& side : sides) side.allocations += round(side);
  }
  const auto median = [](std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  };
  std::vector<double> more;
  for (size_t i = 0; i < sides[0].rounds.size(); ++i) {
    more.push_back(sides[1].rounds[i] - sides[0].rounds[i]);
  }
  state.counters["off_ns"] = median(sides[0].rounds);
  state.counters["on_ns"] = median(sides[1].rounds);
  state.counters["record_ns"] = median(more);
  state.counters["allocations"] = static_cast<double>(sides[1].allocations);
}

void RegisterAll() {
  benchmark::RegisterBenchmark("list", SubmitList)->Arg(2)->Arg(16)->Arg(291);

  for (const Example& example : kExamples) {
    benchmark::RegisterBenchmark((std::string(example.name) + "/record").c_str(),
                                 [&example](benchmark::State& state) { Record(state, example); });
    for (const auto& [name, how] :
         {std::pair("", How::kPlain), std::pair("/strided", How::kStrided),
          std::pair("/after", How::kAfter), std::pair("/ticket", How::kTicket),
          std::pair("/posted", How::kPosted)}) {
      benchmark::RegisterBenchmark(
          (std::string(example.name) + name).c_str(),
          [&example, how = how](benchmark::State& state) { Submit(state, example, how); });
    }
  }
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  meshift::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
