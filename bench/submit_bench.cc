// What a cached redistribution costs the thread that asks for it, besides the calls of the engine:
// look-up of the plan, checks of the views, the program, the handle.
//
//   ./bazelw run //bench:submit_bench
#include <benchmark/benchmark.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/control/bootstrap.h"
#include "comm/engine/testing_noop_engine.h"
#include "comm/redistributor.h"
#include "comm/tensor/tensor_view.h"
#include "mesh/device_mesh.h"
#include "placement/sharding.h"

namespace meshift {
namespace {

struct Example {
  const char* name;
  const char* mesh;
  const char* tensor;
  const char* from;
  const char* to;
};
constexpr Example kExamples[] = {
    {"all_reduce", "dp=8", "f32[1024]", "P", "R"},
    {"all_gather", "fsdp=8,tp=4", "bf16[4096,4096]", "S(0),S(1)", "R,S(1)"},
    {"all_gather_uneven", "fsdp=8", "bf16[1001,7]", "S(0)", "R"},
    {"reduce_scatter", "fsdp=8,tp=4", "f32[4096,4096]", "P,S(1)", "S(0),S(1)"},
    {"all_to_all", "cp=8", "bf16[64,64,128]", "S(0)", "S(1)"},
    {"slice_all_reduce_gather", "dp=4,tp=2", "f32[1024,64]", "P,R", "R,R"},
};

// How a call is made: with views of other strides, behind something, or posted to the peers.
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

// Lists of so many tensors, half of them gathered, half of them summed.
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

void RegisterAll() {
  benchmark::RegisterBenchmark("list", SubmitList)->Arg(2)->Arg(16)->Arg(291);

  for (const Example& example : kExamples) {
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
