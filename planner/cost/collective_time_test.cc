#include "planner/cost/collective_time.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "meshift/topology.h"
#include "testing/random.h"

namespace meshift {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

GroupTimes TimesOf(const Topology& topology, std::vector<int64_t> ranks) {
  RankGroups groups{.size = static_cast<int64_t>(ranks.size()), .ranks = {std::move(ranks)}};
  return {topology, ShapeOf(topology, 1 << 20, groups)};
}

std::vector<int64_t> Range(int64_t n, int64_t stride = 1) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < n; ++i) ranks.push_back(i * stride);
  return ranks;
}

// The formulas of docs/cost_model.md, worked out by hand for 16 ranks of two nodes.
TEST(CollectiveTimeTest, IsTheLeastOfTheFormulas) {
  const Topology h100 = *Topology::Parse("h100");
  const GroupTimes times = TimesOf(h100, Range(16));
  // A ring in LL: 14 hops inside, 1 beyond, and 3 for the entry.
  const CollectiveTime small = times.Blocks(0);
  EXPECT_EQ(small.algorithm, Algorithm::kRing);
  EXPECT_EQ(h100.protocols()[small.protocol].name, "LL");
  EXPECT_EQ(small.start_ns, 10'000);
  EXPECT_EQ(small.hops_ns, 14 * 1'000 + 5'000 + 3 * 5'000);
  EXPECT_EQ(small.links_ns, 0);
  // A ring in Simple: 8 NICs of 48,000 bytes/us are faster than one GPU's NVLinks.
  const CollectiveTime large = times.Blocks(1024 * kMiB);
  EXPECT_EQ(h100.protocols()[large.protocol].name, "Simple");
  EXPECT_EQ(large.start_ns, 60'000);
  EXPECT_EQ(large.hops_ns, 5 * 34'000);
  EXPECT_EQ(large.level, 0);
  EXPECT_EQ(large.links_ns, (1024 * kMiB * 1000 + 366'999) / 367'000);
  // Four members in each node have only four NICs.
  const CollectiveTime four = TimesOf(h100, Range(8, 2)).Blocks(1024 * kMiB);
  EXPECT_EQ(four.level, 1);
  EXPECT_EQ(four.sharing, 4);
  EXPECT_EQ(four.links_ns, (1024 * kMiB * 1000 + 191'999) / 192'000);
  // Sums are formed in NVSwitch, with one exchange between the nodes over 8 NICs.
  const CollectiveTime sum = times.AllReduce(1024 * kMiB);
  EXPECT_EQ(sum.algorithm, Algorithm::kInSwitch);
  EXPECT_EQ(sum.hops_ns, 5 * (7 * 1'000 + 2 * 5'000 + 15'000));
  EXPECT_EQ(sum.level, 0);
  EXPECT_EQ(sum.links_ns, (1024 * kMiB * 1000 + 262'999) / 263'000);
  // A small all_reduce takes a tree: 3 hops inside and 1 between nodes, up and down.
  const CollectiveTime tree = times.AllReduce(0);
  EXPECT_EQ(tree.algorithm, Algorithm::kTree);
  EXPECT_EQ(tree.hops_ns, 2 * (3 * 1'000 + 5'000) + 15'000);
  // To each of 15 others: 8 of 15 messages leave the node, over the rank's own NIC.
  const CollectiveTime direct = times.Direct(1500 * kMiB, 15);
  EXPECT_EQ(direct.algorithm, Algorithm::kDirect);
  EXPECT_EQ(direct.level, 1);
  EXPECT_EQ(direct.links_ns, (800 * kMiB * 1000 + 23'199) / 23'200);
}

// Too few members for the switch.
TEST(CollectiveTimeTest, SwitchesWantTheirMembers) {
  const Topology h100 = *Topology::Parse("h100");
  EXPECT_EQ(TimesOf(h100, Range(4)).AllReduce(1024 * kMiB).algorithm, Algorithm::kRing);
  EXPECT_EQ(TimesOf(h100, Range(5)).AllReduce(1024 * kMiB).algorithm, Algorithm::kInSwitch);
  // One of nine ranks is alone in its node.
  EXPECT_NE(TimesOf(h100, Range(9)).AllReduce(1024 * kMiB).algorithm, Algorithm::kInSwitch);
  // A network with in-switch reductions, for ranks that are alone in their nodes.
  const Topology sharp = *Topology::Create(
      {{.name = "node", .domain_size = 8, .bandwidth_bytes_per_us = 300'000, .latency_ns = 1'000},
       {.name = "net",
        .domain_size = 0,
        .bandwidth_bytes_per_us = 40'000,
        .latency_ns = 5'000,
        .in_switch_bandwidth_bytes_per_us = 45'000}},
      {}, {{.name = "only", .start_ns = 0}});
  const CollectiveTime sum = TimesOf(sharp, Range(16, 8)).AllReduce(1024 * kMiB);
  EXPECT_EQ(sum.algorithm, Algorithm::kInSwitch);
  EXPECT_EQ(sum.links_ns, (1024 * kMiB * 1000 + 44'999) / 45'000);
}

TEST(CollectiveTimeTest, VariantsAreAllThatALibraryMayDo) {
  using Kind = GroupTimes::Kind;
  const auto names = [](const Topology& topology, const GroupShape& shape, Kind kind) {
    std::string text;
    for (const CollectiveTime& time : GroupTimes::Variants(topology, shape, kind, kMiB)) {
      text += std::string(Name(time.algorithm)) + ",";
      if (time.protocol >= 0) text += topology.protocols()[time.protocol].name;
      text += ";";
    }
    return text;
  };
  const Topology h100 = *Topology::Parse("h100");
  const GroupShape two_nodes = TimesOf(h100, Range(16)).shape();
  // Also a ring in LL128, which a tree in LL128 beats at any size.
  EXPECT_EQ(names(h100, two_nodes, Kind::kAllReduce),
            "ring,LL;tree,LL;ring,LL128;tree,LL128;ring,Simple;tree,Simple;in-switch,Simple;");
  EXPECT_EQ(names(h100, two_nodes, Kind::kBlocks), "ring,LL;ring,LL128;ring,Simple;");
  EXPECT_EQ(names(h100, two_nodes, Kind::kToAll), "direct,LL;direct,LL128;direct,Simple;");
  const Topology flat = Topology::Flat();
  EXPECT_EQ(names(flat, TimesOf(flat, Range(16)).shape(), Kind::kAllReduce), "ring,;");
}

class RandomGroups {
 public:
  explicit RandomGroups(uint64_t seed) : random_(seed) {
    for (const char* name :
         {"h100", "h200-efa", "gb300-roce", "a100-efa", "b200-roce", "nvlink=8,rail=32"}) {
      topologies_.push_back(*Topology::Parse(name));
    }
  }
  const Topology& NextTopology() { return topologies_[random_.Below(topologies_.size())]; }
  int64_t Bytes() { return int64_t{1} << random_.Below(35); }
  std::vector<int64_t> Group() {
    const int64_t most = int64_t{16} << random_.Below(6);
    if (random_.Below(3) == 0) return Range(2 + random_.Below(most - 1));
    if (random_.Below(2) == 0) return Range(2 + random_.Below(30), int64_t{1} << random_.Below(5));
    std::set<int64_t> ranks;
    const auto size = static_cast<size_t>(2 + random_.Below(std::min<int64_t>(most - 2, 100)));
    while (ranks.size() < size) ranks.insert(random_.Below(most));
    return {ranks.begin(), ranks.end()};
  }

 private:
  testkit::Random random_;
  std::vector<Topology> topologies_;
};

TEST(CollectiveTimeTest, GrowsWithBytesAndBends) {
  RandomGroups random(1);
  for (int i = 0; i < 2000; ++i) {
    const GroupTimes times = TimesOf(random.NextTopology(), random.Group());
    const int64_t a = random.Bytes();
    const int64_t b = random.Bytes();
    for (const auto& ns :
         {+[](const GroupTimes&t, int64_t bytes) { return t.AllReduce(bytes).Ns(); },
          +[](const GroupTimes&t, int64_t bytes) { return t.Blocks(bytes).Ns(); },
          +[](const GroupTimes&t, int64_t bytes) {
            return t.Direct(bytes, t.shape().size - 1).Ns();
          }}) {
      EXPECT_LE(ns(times, a), ns(times, a + b));
      // Concave: further bytes cost at most as much as the first ones.
      EXPECT_LE(ns(times, a + b) + ns(times, 0), ns(times, a) + ns(times, b) + 2);
      EXPECT_GE(ns(times, 0), times.LeastStartNs());
    }
  }
}

TEST(CollectiveTimeTest, TheTimeIsThatOfTheLeastVariant) {
  using Kind = GroupTimes::Kind;
  RandomGroups random(5);
  for (int i = 0; i < 1000; ++i) {
    const Topology& topology = random.NextTopology();
    const GroupTimes times = TimesOf(topology, random.Group());
    const int64_t bytes = random.Bytes();
    const auto expect_least = [&](Kind kind, const CollectiveTime& time) {
      int64_t least = INT64_MAX;
      bool listed = false;
      for (const CollectiveTime& one : GroupTimes::Variants(topology, times.shape(), kind, bytes)) {
        least = std::min(least, one.Ns());
        listed |= one.algorithm == time.algorithm && one.protocol == time.protocol &&
                  one.Ns() == time.Ns() && one.level == time.level && one.sharing == time.sharing;
      }
      EXPECT_EQ(least, time.Ns());
      EXPECT_TRUE(listed);
    };
    expect_least(Kind::kAllReduce, times.AllReduce(bytes));
    expect_least(Kind::kBlocks, times.Blocks(bytes));
    expect_least(Kind::kToAll, times.Direct(bytes, times.shape().size - 1));
  }
}

TEST(CollectiveTimeTest, AnAllReduceIsNoDearerThanItsParts) {
  RandomGroups random(2);
  for (int i = 0; i < 2000; ++i) {
    const GroupTimes times = TimesOf(random.NextTopology(), random.Group());
    const int64_t n = times.shape().size;
    const int64_t block = random.Bytes();
    EXPECT_LE(times.AllReduce(n * block).Ns(), 2 * times.Blocks((n - 1) * block).Ns() + 1);
  }
}

// A group of more members never has a smaller start time.
TEST(CollectiveTimeTest, MoreMembersStartNoSooner) {
  RandomGroups random(3);
  for (int i = 0; i < 2000; ++i) {
    const Topology& topology = random.NextTopology();
    const std::vector<int64_t> group = random.Group();
    const std::vector<int64_t> more = random.Group();
    std::set<int64_t> both(group.begin(), group.end());
    both.insert(more.begin(), more.end());
    const GroupTimes small = TimesOf(topology, group);
    const GroupTimes large = TimesOf(topology, {both.begin(), both.end()});
    EXPECT_LE(small.Blocks(0).Ns(), large.Blocks(0).Ns());
    EXPECT_LE(small.Direct(0, 1).Ns(), large.Direct(0, 1).Ns());
    EXPECT_LE(small.LeastStartNs(), large.LeastStartNs());
  }
}

// Without protocols: a start, the hops of a tree, the bytes of a ring or of messages.
TEST(CollectiveTimeTest, WithoutProtocolsThereIsOneWay) {
  const Topology plain = *Topology::Create(
      {{"near", 8, 360'000, 1'000}, {"rail", 64, 48'000, 5'000}, {"far", 0, 24'000, 9'000}});
  RandomGroups random(4);
  for (int i = 0; i < 500; ++i) {
    const GroupTimes times = TimesOf(plain, random.Group());
    const GroupShape& shape = times.shape();
    const int64_t bytes = random.Bytes();
    const auto ring_ns = [&](int64_t sent) {
      int64_t ns = (sent * 1000 + 359'999) / 360'000;
      for (int level = 1; level < 3; ++level) {
        const int64_t sharing = shape.sharing[level - 1];
        if (sharing == 0) continue;
        const int64_t bandwidth = plain.level(level).bandwidth_bytes_per_us * sharing;
        ns = std::max(ns, (sent * 1000 + bandwidth - 1) / bandwidth);
      }
      return ns;
    };
    const int64_t n = shape.size;
    EXPECT_EQ(times.Blocks(bytes).Ns(), 10'000 + shape.latency_ns + ring_ns(bytes));
    EXPECT_NEAR(times.AllReduce(bytes).Ns(),
                10'000 + 2 * shape.latency_ns + ring_ns((bytes * 2 * (n - 1) + n - 1) / n), 1);
    EXPECT_EQ(times.Direct(0, 0).Ns(), 10'000 + shape.latency_ns);
  }
}

// Nothing overflows at the limits of the allowed values.
TEST(CollectiveTimeTest, LargeNumbersSaturate) {
  const Topology slow = *Topology::Create(
      {{.name = "all",
        .domain_size = 0,
        .bandwidth_bytes_per_us = 1,
        .latency_ns = 1'000'000'000,
        .entry_ns = 1'000'000'000}},
      {.collective_latency_ns = 1'000'000'000},
      {{.name = "p", .start_ns = 1'000'000'000, .latency_percent = 10'000, .domain_percent = 1}});
  const GroupTimes times(slow, ShapeOf(slow, INT32_MAX, {.size = INT32_MAX}));
  EXPECT_EQ(times.AllReduce(INT64_MAX).Ns(), INT64_MAX);
  EXPECT_EQ(times.Blocks(INT64_MAX).Ns(), INT64_MAX);
  EXPECT_EQ(times.Direct(INT64_MAX, INT32_MAX - 1).Ns(), INT64_MAX);
}

}  // namespace
}  // namespace meshift
