// The calls that an adapter of a framework needs, one function each. docs/from_your_framework.md
// shows these functions, and the tests run them. The framework's tensors are std::vectors here.
//
//   ./bazelw run //examples:from_your_framework
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "meshift/meshift.h"
#include "meshift/mpi_engine.h"
#include "meshift/nccl_engine.h"

namespace {

using meshift::DeviceMesh;
using meshift::Engine;
using meshift::Redistribution;
using meshift::Redistributor;
using meshift::RunHandle;
using meshift::ShardedTensor;
using meshift::Sharding;
using meshift::Stream;

// The work of every rank.
using Work = absl::Status (*)(Engine* engine);

// Ranks are processes on CPUs, started by mpirun.
absl::Status OverMpi(Work work) {
  MESHIFT_ASSIGN_OR_RETURN(const auto job, meshift::MpiJob::Start());
  const absl::Status status = work(job->engine());
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::fflush(nullptr);
    job->Leave(1);  // the others know already; MPI_Finalize would wait for them
  }
  return status;
}

// Ranks are processes with a GPU each, started by torchrun.
absl::Status OverNccl(Work work) {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, meshift::Bootstrap::FromTorchrun());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, meshift::StartNcclEngine(bootstrap.get()));
  return work(engine.get());
}

// Ranks are threads: for tests, without a launcher and without a GPU.
absl::Status InProcess(int64_t num_ranks, Work work) {
  MESHIFT_ASSIGN_OR_RETURN(const auto world, meshift::LocalWorld::Create({.num_ranks = num_ranks}));
  std::vector<absl::Status> statuses(num_ranks);
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    ranks.emplace_back([&, rank] { statuses[rank] = work(world->engine(rank)); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& status : statuses) MESHIFT_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// One tensor: shards of rows become shards of columns. `weight` is only read.
absl::StatusOr<std::vector<float>> ToColumns(Redistributor& redistribute,
                                             const std::vector<float>& weight) {
  MESHIFT_ASSIGN_OR_RETURN(const Sharding rows,
                           Sharding::Parse("f32[6,4]", redistribute.mesh(), "S(0)"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding columns, rows.WithPlacements("S(1)"));
  std::vector<float> local(columns.LocalBox(redistribute.rank()).NumElements());
  MESHIFT_ASSIGN_OR_RETURN(const RunHandle run,
                           redistribute({.from = rows,
                                         .to = columns,
                                         .source = redistribute.View(rows, weight.data()),
                                         .target = redistribute.View(columns, local.data())}));
  MESHIFT_RETURN_IF_ERROR(run.Wait());
  return local;
}

// All parameters in one call: small ones share collectives.
absl::Status GatherAll(Redistributor& redistribute, const std::vector<Sharding>& shardings,
                       const std::vector<std::vector<float>>& shards,
                       std::vector<std::vector<float>>* whole) {
  std::vector<Redistribution> list;
  for (size_t i = 0; i < shardings.size(); ++i) {
    MESHIFT_ASSIGN_OR_RETURN(const Sharding replicas, shardings[i].WithPlacements("R"));
    (*whole)[i].resize(replicas.LocalBox(redistribute.rank()).NumElements());
    list.push_back({.from = shardings[i],
                    .to = replicas,
                    .source = redistribute.View(shardings[i], shards[i].data()),
                    .target = redistribute.View(replicas, (*whole)[i].data())});
  }
  MESHIFT_ASSIGN_OR_RETURN(const RunHandle run, redistribute(list));
  return run.Wait();
}

// In place: source and target share one buffer, which is large enough for both.
absl::Status SumInPlace(Redistributor& redistribute, std::vector<float>* gradient) {
  MESHIFT_ASSIGN_OR_RETURN(const Sharding sums,
                           Sharding::Parse("f32[6,4]", redistribute.mesh(), "P"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding replicas, sums.WithPlacements("R"));
  const meshift::TensorView view = redistribute.View(sums, gradient->data());
  MESHIFT_ASSIGN_OR_RETURN(
      const RunHandle run,
      redistribute({.from = sums, .to = replicas, .source = view, .target = view}));
  return run.Wait();
}

// Overlap: the call waits for the work now queued on `compute`, later work on `compute` waits for
// the call, and the host waits for neither.
absl::Status Overlap(Redistributor& redistribute, Engine* engine, Stream& compute) {
  MESHIFT_ASSIGN_OR_RETURN(const Sharding shards,
                           Sharding::Parse("bf16[6,4]", redistribute.mesh(), "S(0)"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding replicas, shards.WithPlacements("R"));
  MESHIFT_ASSIGN_OR_RETURN(const ShardedTensor in, redistribute.Empty(shards));
  MESHIFT_ASSIGN_OR_RETURN(const ShardedTensor out, redistribute.Empty(replicas));
  MESHIFT_RETURN_IF_ERROR(engine->FillZero(in.data(), in.size_bytes(), compute));
  MESHIFT_ASSIGN_OR_RETURN(const RunHandle run, redistribute({.from = shards,
                                                              .to = replicas,
                                                              .source = in.view(),
                                                              .target = out.view(),
                                                              .after = &compute}));
  MESHIFT_RETURN_IF_ERROR(run.Wait(compute));
  // ... kernels on `compute` that read `out` ...
  return engine->Synchronize(compute);  // before `in` and `out` are freed
}

// The gradient of a forward gather, if each rank of "tp" saw different data.
absl::StatusOr<meshift::Plan> PlanOfGradient(const Redistributor& redistribute) {
  MESHIFT_ASSIGN_OR_RETURN(const Sharding shard,
                           Sharding::Parse("f32[6,4]", redistribute.mesh(), "S(0)"));
  MESHIFT_ASSIGN_OR_RETURN(const Sharding weight, shard.WithPlacements("R"));
  MESHIFT_ASSIGN_OR_RETURN(const meshift::RedistributionPair backward,
                           meshift::GradientOf(shard, weight, {.summed_over = {"tp"}}));
  return meshift::MakePlan(backward.from, backward.to);  // a reduce_scatter
}

// An error about arguments has no effect: the next call works.
absl::Status RefuseAndGoOn(Redistributor& redistribute) {
  std::vector<float> buffer(24);
  MESHIFT_ASSIGN_OR_RETURN(const Sharding replicas,
                           Sharding::Parse("f32[6,4]", redistribute.mesh(), "R"));
  const auto in = redistribute.View(replicas, static_cast<const float*>(buffer.data()));
  const absl::StatusOr<RunHandle> run = redistribute(
      {.from = replicas, .to = replicas, .source = in, .target = in});  // `in` is only read
  if (!absl::IsInvalidArgument(run.status())) return absl::InternalError("it was not refused");
  return SumInPlace(redistribute, &buffer);
}

absl::Status Expect(bool holds, std::string_view what) {
  return holds ? absl::OkStatus() : absl::InternalError(std::string(what) + " is wrong");
}

absl::Status All(Engine* engine) {
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Create({{"tp", 2}}));
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(mesh, engine));
  const auto rank = static_cast<float>(redistribute.rank());

  const std::vector<float> rows(12, rank);
  MESHIFT_ASSIGN_OR_RETURN(const std::vector<float> columns, ToColumns(redistribute, rows));
  MESHIFT_RETURN_IF_ERROR(
      Expect(columns == std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, "ToColumns"));

  std::vector<Sharding> shardings;
  std::vector<std::vector<float>> shards;
  for (int64_t size = 2; size < 6; size += 2) {
    MESHIFT_ASSIGN_OR_RETURN(Sharding sharding,
                             Sharding::Parse({meshift::DType::kF32, {size}}, mesh, "S(0)"));
    shardings.push_back(std::move(sharding));
    shards.emplace_back(size / 2, rank);
  }
  std::vector<std::vector<float>> whole(shardings.size());
  MESHIFT_RETURN_IF_ERROR(GatherAll(redistribute, shardings, shards, &whole));
  MESHIFT_RETURN_IF_ERROR(
      Expect(whole == std::vector<std::vector<float>>{{0, 1}, {0, 0, 1, 1}}, "GatherAll"));

  std::vector<float> gradient(24, rank + 1);
  MESHIFT_RETURN_IF_ERROR(SumInPlace(redistribute, &gradient));
  MESHIFT_RETURN_IF_ERROR(Expect(gradient == std::vector<float>(24, 3), "SumInPlace"));

  MESHIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> compute, engine->CreateStream());
  MESHIFT_RETURN_IF_ERROR(Overlap(redistribute, engine, *compute));

  MESHIFT_ASSIGN_OR_RETURN(const meshift::Plan plan, PlanOfGradient(redistribute));
  MESHIFT_RETURN_IF_ERROR(
      Expect(plan.steps().size() == 1 && plan.steps()[0].op == meshift::StepOp::kReduceScatter,
             "PlanOfGradient"));
  return RefuseAndGoOn(redistribute);
}

}  // namespace

// from_your_framework [mpi|nccl]: on that engine, in a job of two ranks; default: in this process.
int main(int argc, char** argv) {
  const std::string_view engine = argc > 1 ? argv[1] : "local";
  const absl::Status status = engine == "mpi"    ? OverMpi(All)
                              : engine == "nccl" ? OverNccl(All)
                                                 : InProcess(2, All);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
