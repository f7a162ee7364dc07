// The senders of a crossing to another mesh, rank by rank, against the rule of docs/plan_format.md
// ("Crossing to another mesh") implemented literally, on links of one to three levels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "meshift/topology.h"
#include "meshift/union_mesh.h"
#include "planner/plan/rank_bytes.h"
#include "testing/cross_world.h"
#include "testing/small_world.h"

namespace meshift {
namespace {

constexpr std::array kTopologies = {
    "flat", "nvlink=2", "nvlink=3", "nvlink=2,rail=4", "nvlink=2,rail=8", "nvlink=4"};

// The contribution of a rank: its coordinates on the mesh dims that are P, as digits.
int64_t ContributionOf(const Sharding& sharding, int64_t rank) {
  const Coordinate at = sharding.mesh().CoordinateOf(rank).value();
  int64_t number = 0;
  for (int d = 0; d < sharding.mesh().NumDims(); ++d) {
    if (sharding.placement(d).IsPartial()) number = number * sharding.mesh().dim(d).size + at[d];
  }
  return number;
}

// The bytes that each rank sends from `before` to `after`, which is not partial.
std::map<int64_t, int64_t> BytesByTheRule(const Sharding& before, const Sharding& after,
                                          const Topology& topology) {
  struct Piece {
    int64_t contribution;
    Box box;
    std::vector<int64_t> holders;
  };
  std::vector<Piece> pieces;
  for (const int64_t rank : before.mesh().Ranks()) {
    const Box box = before.LocalBox(rank);
    if (box.IsEmpty()) continue;
    const int64_t contribution = ContributionOf(before, rank);
    const auto same = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return piece.contribution == contribution && piece.box == box;
    });
    if (same == pieces.end()) {
      pieces.push_back({contribution, box, {rank}});
    } else {
      same->holders.push_back(rank);
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.contribution, a.box.offset) < std::tie(b.contribution, b.box.offset);
  });
  std::vector<int64_t> receivers = after.mesh().Ranks();
  std::sort(receivers.begin(), receivers.end());
  std::map<int64_t, int64_t> given;
  for (const int64_t receiver : receivers) {
    const Box held = after.LocalBox(receiver);
    if (held.IsEmpty()) continue;  // At leaves it out
    for (const Piece& piece : pieces) {
      const Box wanted = Intersect(piece.box, held);
      const std::vector<int64_t>& holders = piece.holders;
      if (wanted.IsEmpty()) continue;
      if (std::find(holders.begin(), holders.end(), receiver) != holders.end()) continue;
      const int64_t sender =
          *std::min_element(holders.begin(), holders.end(), [&](int64_t a, int64_t b) {
            return std::tuple(topology.LevelBetween(a, receiver), given[a], a) <
                   std::tuple(topology.LevelBetween(b, receiver), given[b], b);
          });
      given[sender] += Bytes(before.dtype(), wanted.NumElements());
    }
  }
  return given;
}

struct Tally {
  int64_t plans = 0;
  int64_t sending = 0;  // with at least one message
  int64_t levels = 0;   // cases in which the links change the senders
  int64_t adding = 0;   // cases that add contributions before the crossing
};

void JudgeSenders(const Sharding& from, const Sharding& to, const Topology& topology,
                  Tally* tally) {
  const absl::StatusOr<Plan> plan = MakePlan(from, to, {.topology = topology});
  const std::string text =
      fmt::format("{} -> {} on {}", from.ToString(), to.ToString(), topology.ToString());
  ASSERT_TRUE(plan.ok()) << text << ": " << plan.status();
  ++tally->plans;
  for (size_t i = 0; i < plan->steps().size(); ++i) {
    const Step& step = plan->steps()[i];
    if (!IsCrossing(step)) continue;
    const Sharding& before = i == 0 ? plan->from() : plan->steps()[i - 1].after;
    std::map<int64_t, int64_t> right = BytesByTheRule(before, step.after, topology);
    int64_t most = 0;
    for (const int64_t rank : UnionMesh(from.mesh(), to.mesh()).value().Ranks()) {
      ASSERT_EQ(BytesSent(*plan, static_cast<int>(i), rank), right[rank])
          << text << ": rank " << rank << " in " << step.ToString();
      most = std::max(most, right[rank]);
    }
    ASSERT_EQ(step.bytes_sent, most) << text << ": " << step.ToString();
    ASSERT_EQ(step.op == StepOp::kExchange, most > 0) << text << ": " << step.ToString();
    tally->sending += most > 0 ? 1 : 0;
    tally->adding += step.reduce_op ? 1 : 0;
    std::map<int64_t, int64_t> flat = BytesByTheRule(before, step.after, Topology::Flat());
    std::erase_if(flat, [](const auto& entry) { return entry.second == 0; });
    std::erase_if(right, [](const auto& entry) { return entry.second == 0; });
    tally->levels += flat != right ? 1 : 0;
  }
}

class CrossSendersTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kShards = 4;
};

TEST_P(CrossSendersTest, AreThoseOfTheRule) {
  Tally tally;
  size_t next = 0;
  testkit::ForEachCrossCase(
      {.shard = GetParam(), .num_shards = kShards, .fraction = 5 * testkit::TestFraction()},
      [&](const Sharding& from, const Sharding& to) {
        const char* text = kTopologies[next++ % kTopologies.size()];
        JudgeSenders(from, to, *Topology::Parse(text), &tally);
      });
  for (uint64_t seed = GetParam(); seed < 4000; seed += kShards * testkit::TestFraction()) {
    const testkit::RandomPair pair = testkit::RandomCrossCase(seed + 100000);
    const char* text = kTopologies[next++ % kTopologies.size()];
    JudgeSenders(pair.from, pair.to, *Topology::Parse(text), &tally);
  }
  fmt::print("senders, shard {}: {} plans, {} send, {} add, in {} the links say who\n", GetParam(),
             tally.plans, tally.sending, tally.adding, tally.levels);
  EXPECT_GT(tally.sending, tally.plans / 2);
  EXPECT_GT(tally.levels, 0);
  EXPECT_GT(tally.adding, 0);
}

INSTANTIATE_TEST_SUITE_P(Shards, CrossSendersTest, ::testing::Range(0, 4));

}  // namespace
}  // namespace meshift
