// 1,000 calls over 40 distinct shardings on one mesh make each distinct group once, in the first
// round.
#include <fmt/format.h>
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "comm/program/lowering.h"
#include "meshift/device_mesh.h"
#include "meshift/mpi_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "testing/internal/mpi/rank_main.h"

namespace meshift {
namespace {

constexpr int64_t kShardings = 40;
constexpr int64_t kRounds = 25;

// The first 40 shardings of a tensor on the mesh.
std::vector<Sharding> Sources(const DeviceMesh& mesh) {
  const std::vector<std::string> kinds = {"P", "R", "S(0)", "S(1)"};
  std::vector<Sharding> sources;
  for (int64_t i = 0; std::ssize(sources) < kShardings; ++i) {
    const std::string text =
        fmt::format("{},{},{}", kinds[i / 16 % 4], kinds[i / 4 % 4], kinds[i % 4]);
    sources.push_back(Sharding::Parse("f32[16,24]", mesh, text).value());
  }
  return sources;
}

absl::Status Run() {
  MESHIFT_ASSIGN_OR_RETURN(const auto bootstrap, MpiBootstrap());
  MESHIFT_ASSIGN_OR_RETURN(const auto engine, CreateMpiEngine({.control = bootstrap->control()}));
  if (engine->world_size() != 8) return InvalidArgument("{} ranks", engine->world_size());
  MESHIFT_ASSIGN_OR_RETURN(const DeviceMesh mesh, DeviceMesh::Parse("a=2,b=2,c=2"));
  MESHIFT_ASSIGN_OR_RETURN(Redistributor redistribute, Redistributor::Create(mesh, engine.get()));
  const std::vector<Sharding> sources = Sources(mesh);
  const Sharding to = Sharding::Parse("f32[16,24]", mesh, "R,R,R").value();
  std::vector<float> in(16 * 24, 1.0F);
  std::vector<float> out(16 * 24);
  // The distinct groups of the plans, by their ranks; the root group exists already.
  std::set<std::vector<int64_t>> groups;
  int64_t created = 0;
  for (int64_t round = 0; round < kRounds; ++round) {
    for (const Sharding& from : sources) {
      MESHIFT_ASSIGN_OR_RETURN(
          const RunHandle run,
          redistribute({.from = from,
                        .to = to,
                        .source = TensorView::Contiguous(in.data(), DType::kF32,
                                                         from.LocalBox(engine->rank()).size),
                        .target = TensorView::Contiguous(out.data(), DType::kF32, {16, 24})}));
      MESHIFT_RETURN_IF_ERROR(run.Wait());
      if (round > 0) continue;
      MESHIFT_ASSIGN_OR_RETURN(const Plan plan, redistribute.Prepare(from, to));
      MESHIFT_ASSIGN_OR_RETURN(const Program program, Lower(plan, engine->rank()));
      for (const ProgramGroup& group : program.groups) {
        if (group.ranks.size() < 8) groups.insert({group.ranks.begin(), group.ranks.end()});
      }
    }
    const GroupCacheStats stats = redistribute.stats().groups;
    if (round == 0) created = stats.created;
    if (stats.created != std::ssize(groups) || stats.created != created) {
      return Internal("round {}: {} groups created, where plans name {}", round, stats.created,
                      groups.size());
    }
  }
  const RedistributorStats stats = redistribute.stats();
  if (stats.calls != kShardings * kRounds) return Internal("{} calls", stats.calls);
  if (stats.plans_made != kShardings) return Internal("{} plans made", stats.plans_made);
  if (created < 5) return Internal("only {} groups", created);
  if (engine->rank() == 0) {
    fmt::print("{} calls, {} plans, {} groups\n", stats.calls, stats.plans_made, created);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshift

int main() { return meshift::RunAsRank("group_test", meshift::Run); }
