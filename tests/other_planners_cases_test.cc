// Compares Meshift's plans with those of PyTorch's DTensor, XLA and Shardy (tests/data/README.md):
// never more collectives than the best correct plan among theirs, unless the promise about bits
// needs them.
#include "tests/other_planners_cases.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "meshift/planner.h"
#include "meshift/verifier.h"

namespace meshift {
namespace {

std::vector<PeerCase> Read(const std::string& name) {
  absl::StatusOr<std::vector<PeerCase>> cases = ReadPeerCases("tests/data/" + name);
  EXPECT_TRUE(cases.ok()) << cases.status();
  return cases.ok() ? *std::move(cases) : std::vector<PeerCase>();
}

struct Tally {
  int cases = 0;
  int fewer = 0;              // under `none`
  int more_for_replicas = 0;  // under the default promise
  int64_t bytes = 0;          // ours under `none`, if the peer's are known
  int64_t peer_bytes = 0;
  std::map<std::string, int> ops;

  // `best`: the fewest collectives of a correct plan of the peers.
  void Compare(const PeerCase& pair, int64_t best, std::optional<int64_t> sent) {
    SCOPED_TRACE(pair.name);
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
      // Only if the cheapest plan computes a sum more than once.
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
  for (const PeerCase& one : Read("dtensor_counts.json")) {
    tally.Compare(one, one.collectives, std::nullopt);
  }
  EXPECT_EQ(tally.cases, 151);
  tally.Print("dtensor_counts");
}

TEST(PeerCasesTest, Live2x2) {
  Tally tally;
  for (const PeerCase& one : Read("live_2x2.json")) {
    std::optional<std::pair<int64_t, int64_t>> best;  // collectives, bytes
    for (const auto& [peer, plan] : one.peers) {
      if (plan.is_wrong) continue;
      const std::pair<int64_t, int64_t> cost{plan.collectives, plan.bytes_sent};
      if (!best || cost < *best) best = cost;
    }
    if (best) tally.Compare(one, best->first, best->second);
  }
  EXPECT_GE(tally.cases, 800);
  tally.Print("live_2x2");
}

}  // namespace
}  // namespace meshift
