// Meshift's plans beside those of PyTorch's DTensor, XLA and Shardy (tests/data/README.md): never
// more collectives than the best right plan among theirs, unless the promise about bits needs them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "planner/planner.h"
#include "planner/verifier.h"

namespace meshift {
namespace {

using Json = nlohmann::json;

Json ReadCases(const std::string& name) {
  std::ifstream file("tests/data/" + name);
  EXPECT_TRUE(file.good()) << name;
  return Json::parse(file)["cases"];
}

Sharding MakeSharding(const DeviceMesh& mesh, const TensorType& tensor, const Json& json) {
  std::vector<Placement> placements(mesh.NumDims(), Placement::Replicate());
  std::vector<Cuts> cuts(tensor.shape.size());
  for (size_t k = 0; k < json["shard"].size(); ++k) {
    for (const Json& name : json["shard"][k]) {
      const int d = *mesh.FindDim(name.get<std::string>());
      placements[d] = Placement::Shard(static_cast<int>(k));
      cuts[k].push_back(d);
    }
  }
  for (const auto& [name, op] : json["partial"].items()) {
    placements[*mesh.FindDim(name)] = Placement::Partial(*ParseReduceOp(op.get<std::string>()));
  }
  return *Sharding::Create(mesh, tensor, std::move(placements), std::move(cuts));
}

struct Pair {
  Sharding from;
  Sharding to;
};

Pair MakePair(const Json& json) {
  std::vector<DeviceMesh::Dim> dims;
  for (const Json& dim : json["mesh"]) {
    dims.push_back({dim[0].get<std::string>(), dim[1].get<int64_t>()});
  }
  const DeviceMesh mesh = *DeviceMesh::Create(dims);
  Shape shape;
  for (const Json& size : json["shape"]) shape.push_back(size.get<int64_t>());
  const std::map<int, DType> by_bytes = {{2, DType::kBF16}, {4, DType::kF32}, {8, DType::kC64}};
  const DType dtype = by_bytes.at(json["elem_bytes"].get<int>());
  const TensorType tensor = *TensorType::Create(dtype, shape);
  return {MakeSharding(mesh, tensor, json["src"]), MakeSharding(mesh, tensor, json["dst"])};
}

struct Tally {
  int cases = 0;
  int fewer = 0;              // under `none`
  int more_for_replicas = 0;  // under the default promise
  int64_t bytes = 0;          // ours under `none`, where the peer's are known
  int64_t peer_bytes = 0;
  std::map<std::string, int> ops;

  // `best`: the fewest collectives of a right plan of the peers.
  void Compare(const std::string& name, const Pair& pair, int best, std::optional<int64_t> sent) {
    SCOPED_TRACE(name);
    const auto none = MakePlan(pair.from, pair.to, {.reproducibility = Reproducibility::kNone});
    const auto replicas = MakePlan(pair.from, pair.to);
    ASSERT_TRUE(none.ok()) << none.status();
    ASSERT_TRUE(replicas.ok()) << replicas.status();
    for (const Plan* plan : {&*none, &*replicas}) {
      const Verdict verdict = Verify(*plan);
      EXPECT_TRUE(verdict.ok()) << verdict.fault->rule << ": " << verdict.fault->message;
    }
    ++cases;
    EXPECT_LE(none->total().collectives, best);
    fewer += none->total().collectives < best ? 1 : 0;
    if (sent) {
      bytes += none->total().bytes_sent;
      peer_bytes += *sent;
    }
    for (const Step& step : replicas->steps()) ++ops[std::string(Name(step.op))];
    EXPECT_EQ(replicas->kept(), Reproducibility::kReplicas);
    if (replicas->total().collectives > best) {
      // Only where the cheapest plan of all computes a sum more than once.
      EXPECT_EQ(none->kept(), Reproducibility::kNone);
      ++more_for_replicas;
    }
  }
  void Print(const std::string& suite) const {
    fmt::print(
        "{}: {} cases, fewer collectives than the best peer in {}, more under the default "
        "promise in {}; bytes {} against {}; ops",
        suite, cases, fewer, more_for_replicas, bytes, peer_bytes);
    for (const auto& [op, count] : ops) fmt::print(" {} {}", op, count);
    fmt::print("\n");
  }
};

TEST(PeerCasesTest, DTensorCounts) {
  Tally tally;
  for (const Json& json : ReadCases("dtensor_counts.json")) {
    tally.Compare(json["name"], MakePair(json), json["collectives"].get<int>(), std::nullopt);
  }
  EXPECT_EQ(tally.cases, 151);
  tally.Print("dtensor_counts");
}

TEST(PeerCasesTest, Live2x2) {
  Tally tally;
  for (const Json& json : ReadCases("live_2x2.json")) {
    std::optional<int> best;
    std::optional<int64_t> bytes;
    for (const auto& [peer, plan] : json["peers"].items()) {
      if (plan.contains("wrong")) continue;
      const int collectives = plan["collectives"].get<int>();
      const auto sent = plan["bytes_sent_max"].get<int64_t>();
      if (!best || collectives < *best || (collectives == *best && sent < *bytes)) {
        best = collectives;
        bytes = sent;
      }
    }
    if (best) tally.Compare(json["name"], MakePair(json), *best, bytes);
  }
  EXPECT_GE(tally.cases, 800);
  tally.Print("live_2x2");
}

}  // namespace
}  // namespace meshift
