// FSDP's two redistributions beside tensor parallelism, for one layer of Llama 3 8B at full size:
// f32 shards are gathered in bf16, and bf16 gradients are summed in f32 and scattered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/gradient.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/testing.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

using ::testing::AllOf;
using testkit::IsProven;
using testkit::KeepsReplicasEqual;
using testkit::MovesAtMost;
using testkit::RedistributeAndCheck;
using testkit::Takes;

struct Parameter {
  std::string name;
  std::string shape;
  std::string shard;   // on fsdp=8,tp=2: tensor parallelism cuts first
  std::string weight;  // the weights that a rank computes with
};

const Parameter kNorm = {"input_layernorm", "[4096]", "S(0),R", "R,R"};
const Parameter kKeys = {"k_proj", "[1024,4096]", "S(0)[1],S(0)[0]", "R,S(0)"};

std::vector<Parameter> Matrices() {
  return {kKeys,
          {"q_proj", "[4096,4096]", "S(0)[1],S(0)[0]", "R,S(0)"},
          {"o_proj", "[4096,4096]", "S(0),S(1)", "R,S(1)"},
          {"gate_proj", "[14336,4096]", "S(0)[1],S(0)[0]", "R,S(0)"},
          {"down_proj", "[4096,14336]", "S(0),S(1)", "R,S(1)"}};
}

Sharding On(const std::string& tensor, const std::string& placements) {
  return Sharding::Parse(tensor, *DeviceMesh::Parse("fsdp=8,tp=2"), placements).value();
}
Sharding Shard(const Parameter& p) { return On("f32" + p.shape, p.shard); }
Sharding Weight(const Parameter& p) { return On("bf16" + p.shape, p.weight); }

RedistributionPair Gradient(const Parameter& p) {
  return GradientOf(Shard(p), Weight(p), {.summed_over = {"fsdp"}}).value();
}

TEST(FsdpPair, IsOneGatherAndOneReduceScatter) {
  for (const char* topology : {"flat", "h100", "nvlink=2"}) {
    for (const Parameter& p : Matrices()) {
      PlannerOptions options{.topology = *Topology::Parse(topology)};
      const int64_t bytes = 2 * Weight(p).MaxLocalElements();
      EXPECT_THAT(MakePlan(Shard(p), Weight(p), options),
                  AllOf(IsProven(), KeepsReplicasEqual(), Takes({"cast{bf16}", "all_gather{fsdp}"}),
                        MovesAtMost(bytes / 8 * 7)))
          << p.name << " " << topology;
      const RedistributionPair gradient = Gradient(p);
      EXPECT_THAT(MakePlan(gradient.from, gradient.to, options),
                  AllOf(IsProven(), KeepsReplicasEqual(),
                        Takes({"reduce_scatter{fsdp}", "cast{f32}"}), MovesAtMost(bytes / 8 * 7)))
          << p.name << " " << topology;
      options.reduce_dtype = DType::kF32;
      EXPECT_THAT(MakePlan(gradient.from, gradient.to, options),
                  AllOf(IsProven(), KeepsReplicasEqual(),
                        Takes({"cast{f32}", "reduce_scatter{fsdp}"}), MovesAtMost(bytes / 4 * 7)))
          << p.name << " " << topology;
    }
  }
}

// The gradient of a parameter that tensor parallelism replicates must not be summed once per
// coordinate of tp, since those sums may have different bits.
TEST(FsdpPair, ReplicatedParametersKeepThePromiseToo) {
  EXPECT_THAT(MakePlan(Shard(kNorm), Weight(kNorm)), Takes({"cast{bf16}", "all_gather{fsdp}"}));
  const RedistributionPair gradient = Gradient(kNorm);
  PlannerOptions options{.reduce_dtype = DType::kF32};
  EXPECT_THAT(MakePlan(gradient.from, gradient.to, options),
              AllOf(IsProven(), KeepsReplicasEqual()));
  options.reproducibility = Reproducibility::kNone;
  EXPECT_THAT(MakePlan(gradient.from, gradient.to, options),
              AllOf(IsProven(), Takes({"cast{f32}", "reduce_scatter{fsdp}"})));
}

// The whole layer is in meshift run --model examples/models/llama3-8b.json, as README.md shows.
TEST(FsdpPair, GivesWhatTheDefinitionSays) {
  for (const Parameter& p : {kNorm, kKeys}) {
    const RedistributionPair gradient = Gradient(p);
    const RedistributionPair forward{Shard(p), Weight(p)};
    for (const auto& [pair, reduce_dtype] :
         {std::pair(forward, std::optional<DType>()), std::pair(gradient, std::optional<DType>()),
          std::pair(gradient, std::optional(DType::kF32))}) {
      const auto result = RedistributeAndCheck(
          {.from = pair.from, .to = pair.to, .planner = {.reduce_dtype = reduce_dtype}});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->ok()) << p.name << ": " << result->ToString();
      EXPECT_EQ(result->bytes_counted, result->bytes_planned);
    }
  }
}

}  // namespace
}  // namespace meshift
