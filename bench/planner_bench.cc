// The cost of planning: cold, cached, for a whole model, and on a mesh of a million ranks.
//
//   ./bazelw run //bench:planner_bench
//   tools/planner_instructions.sh      # instructions instead of time, which depends on other work
//
// "cold" plans a named mix of pairs (Mix below), one MakePlan each, and prints the median and the
// 99th percentile over the pairs; each pair counts with its fastest round.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/model.h"
#include "comm/redistribution/plan_cache.h"
#include "meshift/device_mesh.h"
#include "meshift/planner.h"
#include "meshift/planner_cache.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/verifier.h"
#include "testing/allocation_count.h"
#include "testing/random.h"

namespace meshift {
namespace {

struct Pair {
  Sharding from;
  Sharding to;
};

// The mix "v1" of a mesh: pairs of a bf16 tensor with sides of 16 .. 4096, half of them powers of
// two and half any number. Mesh dims are R or S(k) with equal chances, in any order of cuts; in
// every second pair each mesh dim of the source is P(sum) with a chance of one in three. Targets
// are never partial, and source and target always differ.
struct Mix {
  const char* name;
  const char* mesh;
  int tensor_rank;
  int pairs;
};
constexpr Mix kMixes[] = {
    {"2d", "dp=4,tp=8", 2, 400},
    {"3d", "pp=2,dp=4,tp=4", 3, 400},
    {"4d", "pp=2,dp=2,cp=4,tp=4", 3, 200},
    {"5d", "pp=2,dp=2,cp=2,ep=2,tp=4", 4, 100},
};

Sharding RandomSharding(const DeviceMesh& mesh, const TensorType& tensor, bool partial,
                        testkit::Random& random) {
  const auto rank = static_cast<int64_t>(tensor.shape.size());
  std::vector<Placement> placements;
  std::vector<Cuts> cuts(rank);
  for (int d = 0; d < mesh.NumDims(); ++d) {
    const int64_t k = random.Below(rank + 1);
    if (partial && random.OneIn(3)) {
      placements.push_back(Placement::Partial(ReduceOp::kSum));
    } else if (k == rank) {
      placements.push_back(Placement::Replicate());
    } else {
      placements.push_back(Placement::Shard(static_cast<int>(k)));
      cuts[k].push_back(d);
    }
  }
  for (Cuts& list : cuts) random.Shuffle(list);
  return Sharding::Create(mesh, tensor, std::move(placements), std::move(cuts)).value();
}

std::vector<Pair> MakePairs(const Mix& mix) {
  const DeviceMesh mesh = DeviceMesh::Parse(mix.mesh).value();
  std::vector<Pair> pairs;
  testkit::Random random(1);
  while (static_cast<int>(pairs.size()) < mix.pairs) {
    Shape shape(mix.tensor_rank);
    const bool powers = random.OneIn(2);
    for (int64_t& size : shape) {
      size = powers ? int64_t{16} << random.Below(9) : 16 + random.Below(4081);
    }
    const TensorType tensor{DType::kBF16, shape};
    Sharding from = RandomSharding(mesh, tensor, pairs.size() % 2 == 1, random);
    Sharding to = RandomSharding(mesh, tensor, false, random);
    if (!(from == to)) pairs.push_back({std::move(from), std::move(to)});
  }
  return pairs;
}

// Made once, so that one more run of a benchmark is only one more iteration.
const std::vector<Pair>& PairsOf(const Mix& mix) {
  static std::map<std::string, std::vector<Pair>> made;
  const auto [at, is_new] = made.try_emplace(mix.name);
  if (is_new) at->second = MakePairs(mix);
  return at->second;
}

double MicrosecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

double Percentile(std::vector<double> values, int percent) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, values.size() * percent / 100)];
}

// Each iteration plans (or verifies) the whole mix once.
template <typename Fn>
void OverPairs(benchmark::State& state, size_t pairs, const Fn& fn) {
  std::vector<double> fastest(pairs, 1e18);
  for (auto _ : state) {
    for (size_t i = 0; i < pairs; ++i) {
      const auto start = std::chrono::steady_clock::now();
      fn(i);
      fastest[i] = std::min(fastest[i], MicrosecondsSince(start));
    }
  }
  state.counters["median_us"] = Percentile(fastest, 50);
  state.counters["p99_us"] = Percentile(fastest, 99);
  state.counters["worst_us"] = Percentile(fastest, 100);
}

void Cold(benchmark::State& state, const Mix& mix, const char* topology) {
  const std::vector<Pair>& pairs = PairsOf(mix);
  const PlannerOptions options{.topology = Topology::Parse(topology).value()};
  OverPairs(state, pairs.size(), [&](size_t i) {
    benchmark::DoNotOptimize(MakePlan(pairs[i].from, pairs[i].to, options).value());
  });
}

void Verifying(benchmark::State& state, const Mix& mix) {
  std::vector<Plan> plans;
  for (const Pair& pair : PairsOf(mix)) plans.push_back(MakePlan(pair.from, pair.to).value());
  OverPairs(state, plans.size(), [&](size_t i) { benchmark::DoNotOptimize(Verify(plans[i])); });
}

// Plans that a PlannerCache already has.
void Remembered(benchmark::State& state) {
  const std::vector<Pair>& pairs = PairsOf(kMixes[1]);
  PlannerCache cache;
  for (const Pair& pair : pairs) cache.Find(pair.from, pair.to).value();
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(cache.Find(pairs[i].from, pairs[i].to));
    i = i + 1 == pairs.size() ? 0 : i + 1;
  }
  state.counters["plans"] = static_cast<double>(cache.stats().plans);
}

run_internal::PlanCache MakeCache() {
  return {/*rank=*/0,
          std::make_shared<PlannerCache>(),
          /*verify=*/false,
          /*max_bytes=*/int64_t{64} << 20,
          /*coalesce_bytes=*/0,
          [](const DeviceMesh&) { return absl::OkStatus(); }};
}

void CacheHit(benchmark::State& state) {
  const std::vector<Pair>& pairs = PairsOf(kMixes[1]);
  run_internal::PlanCache cache = MakeCache();
  for (const Pair& pair : pairs) {
    if (!cache.Find({&pair.from, &pair.to, std::nullopt}).ok()) {
      state.SkipWithError("a pair has no plan");
      return;
    }
  }
  size_t i = 0;
  for (auto _ : state) {
    const Pair& pair = pairs[i];
    benchmark::DoNotOptimize(cache.Find({&pair.from, &pair.to, std::nullopt}));
    i = i + 1 == pairs.size() ? 0 : i + 1;
  }
}

// All tensors of examples/models/deepseek-v3.json, from FSDP and TP to TP alone. Shardings are made
// beforehand; each iteration begins with an empty cache.
void Model(benchmark::State& state) {
  std::ifstream file("examples/models/deepseek-v3.json");
  std::stringstream text;
  text << file.rdbuf();
  const cli::Model model = cli::ParseModel(text.str()).value();
  const DeviceMesh mesh = DeviceMesh::Parse("fsdp=32,tp=8").value();
  std::vector<Pair> pairs;
  for (const cli::Parameter& parameter : model.parameters) {
    const std::string type = parameter.type.ToString();
    pairs.push_back({Sharding::Parse(type, mesh, cli::PlacementsFor("S(0),TP", parameter)).value(),
                     Sharding::Parse(type, mesh, cli::PlacementsFor("R,TP", parameter)).value()});
  }
  for (auto _ : state) {
    PlannerCache cache;
    for (const Pair& pair : pairs) benchmark::DoNotOptimize(cache.Find(pair.from, pair.to));
    state.counters["plans"] = static_cast<double>(cache.stats().searches);
  }
  state.counters["tensors"] = static_cast<double>(pairs.size());
}

// The same mesh dims with 8 ranks and with 2^20.
struct RanksCase {
  const char* name;
  const char* tensor;
  std::pair<const char*, const char*> placements[6];
};
constexpr RanksCase kRanksCases[] = {
    {"ranks",
     "bf16[1048576,1048576]",
     {{"P,P,R", "R,R,R"},
      {"S(0),S(1),R", "R,S(1),S(0)"},
      {"S(0),S(0),S(1)", "S(1),R,R"},
      {"P,S(0),P", "S(0),R,S(1)"},
      {"R,R,S(0)", "S(1),S(1),S(1)"},
      {"P,R,S(1)", "R,S(0),R"}}},
    // The last dim is cut unevenly; on 2^20 ranks most of its pieces are empty.
    {"uneven_ranks",
     "f32[1048576,1048576,63]",
     {{"P,P,S(2)", "R,R,S(2)"},
      {"S(0),S(2),R", "R,S(2),S(0)"},
      {"S(2),S(2),S(1)", "S(1),R,R"},
      {"P,S(2),P", "S(2),R,S(1)"},
      {"R,R,S(2)", "S(1),S(1),S(2)"},
      {"S(2)[1],S(2)[0],S(2)[2]", "S(1),R,S(1)"}}},
};
void Ranks(benchmark::State& state, const RanksCase& ranks, const char* text,
           const char* topology_text) {
  const DeviceMesh mesh = DeviceMesh::Parse(text).value();
  const Topology topology = Topology::Parse(topology_text).value();
  const TensorType tensor = TensorType::Parse(ranks.tensor).value();
  std::vector<Pair> pairs;
  for (const auto& [from, to] : ranks.placements) {
    const Sharding source = Sharding::Parse(tensor, mesh, from).value();
    pairs.push_back({source, source.WithPlacements(to).value()});
  }
  int64_t allocated = 0;
  OverPairs(state, pairs.size(), [&](size_t i) {
    const int64_t before = NumAllocations();
    benchmark::DoNotOptimize(MakePlan(pairs[i].from, pairs[i].to, {.topology = topology}).value());
    allocated = NumAllocations() - before;
  });
  state.counters["allocations_of_last"] = static_cast<double>(allocated);
}

// From a trainer's mesh to a server's: a matrix that FSDP cuts into rows goes to tensor parallelism
// with data-parallel replicas, and an expert's matrix to its expert's place.
void CrossMesh(benchmark::State& state) {
  const DeviceMesh trainer = DeviceMesh::Parse("ep=64,fsdp=32").value();
  const DeviceMesh server = DeviceMesh::Parse("dp=32,tp=8@2048-2303").value();
  const PlannerOptions options{.topology = Topology::Parse("nvlink=8").value()};
  struct Case {
    const char* tensor;
    const char* from;
    const char* to;
  };
  constexpr Case kCases[] = {
      {"bf16[7168,16384]", "S(0),S(0)", "R,S(1)"}, {"bf16[24576,1536]", "S(0),S(0)", "R,S(0)"},
      {"bf16[7168,2048]", "R,S(0)", "S(0),S(0)"},  {"bf16[7168]", "S(0),S(0)", "R,R"},
      {"bf16[7168,2048]", "P,S(0)", "R,S(1)"},     {"bf16[7168,2048]", "S(1),S(0)", "R,P"},
  };
  std::vector<Pair> pairs;
  for (const Case& c : kCases) {
    pairs.push_back({Sharding::Parse(c.tensor, trainer, c.from).value(),
                     Sharding::Parse(c.tensor, server, c.to).value()});
  }
  OverPairs(state, pairs.size(), [&](size_t i) {
    benchmark::DoNotOptimize(MakePlan(pairs[i].from, pairs[i].to, options).value());
  });
}

void Register() {
  for (const Mix& mix : kMixes) {
    for (const char* topology : {"flat", "h100"}) {
      benchmark::RegisterBenchmark(
          fmt::format("cold/{}/{}", mix.name, topology).c_str(),
          [&mix, topology](benchmark::State& state) { Cold(state, mix, topology); })
          ->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark(("verify/" + std::string(mix.name)).c_str(),
                                 [&mix](benchmark::State& state) { Verifying(state, mix); })
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("remembered/3d", Remembered)->Unit(benchmark::kNanosecond);
  benchmark::RegisterBenchmark("cache_hit/3d", CacheHit)->Unit(benchmark::kNanosecond);
  benchmark::RegisterBenchmark("cross_mesh/2048->256", CrossMesh)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("model/deepseek-v3", Model)->Unit(benchmark::kMillisecond);
  for (const RanksCase& ranks : kRanksCases) {
    for (const char* topology : {"flat", "h100"}) {
      for (const char* mesh : {"a=2,b=2,c=2", "a=64,b=128,c=128"}) {
        benchmark::RegisterBenchmark(fmt::format("{}/{}/{}", ranks.name, mesh, topology).c_str(),
                                     [&ranks, mesh, topology](benchmark::State& state) {
                                       Ranks(state, ranks, mesh, topology);
                                     })
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace
}  // namespace meshift

int main(int argc, char** argv) {
  meshift::Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
