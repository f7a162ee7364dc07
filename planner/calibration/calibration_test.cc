#include "meshift/calibration.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/topology.h"
#include "planner/calibration/fit.h"

namespace meshift {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;

// Levels of domains `sizes` (0: all ranks), each slower than the last.
Topology Truth(const std::vector<int64_t>& sizes, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least));
  };
  std::vector<TopologyLevel> levels;
  int64_t bandwidth = between(100'000, 900'000);
  for (const int64_t size : sizes) {
    levels.push_back({fmt::format("l{}", levels.size()), size, bandwidth, between(300, 5000)});
    bandwidth = bandwidth / between(3, 12);
  }
  TopologyConstants constants;
  constants.collective_latency_ns = between(2000, 20000);
  constants.message_latency_ns = between(200, 2000);
  constants.copy_latency_ns = between(500, 4000);
  constants.copy_bandwidth_bytes_per_us = between(10'000, 2'000'000);
  constants.group_setup_ns = 7;
  return *Topology::Create(std::move(levels), constants);
}

// The same domains with other numbers.
Topology Structure(const Topology& truth) {
  std::vector<TopologyLevel> levels;
  for (int i = 0; i < truth.NumLevels(); ++i) {
    levels.push_back({truth.level(i).name, truth.level(i).domain_size, 1000, 1});
  }
  TopologyConstants constants;
  constants.group_setup_ns = 7;
  return *Topology::Create(std::move(levels), constants);
}

// Fits the model's times under `truth`, each changed by `noise`.
template <typename Noise>
Topology Fit(const Topology& truth, int64_t ranks, const Noise& noise) {
  const auto probes = CalibrationProbes(Structure(truth), ranks, kMaxBytes);
  EXPECT_TRUE(probes.ok()) << probes.status();
  std::vector<int64_t> ns;
  for (const Probe& probe : *probes) ns.push_back(noise(*ProbeNs(probe, truth)));
  const auto fitted = FitTopology(Structure(truth), *probes, ns);
  EXPECT_TRUE(fitted.ok()) << fitted.status();
  return *fitted;
}

void ExpectNear(int64_t found, int64_t truth, int64_t percent, const std::string& what) {
  EXPECT_LE(std::abs(found - truth) * 100, truth * percent + 1000)
      << what << ": " << found << " for " << truth;
}

void ExpectAllNear(const Topology& found, const Topology& truth, int64_t percent) {
  for (int i = 0; i < truth.NumLevels(); ++i) {
    ExpectNear(found.level(i).bandwidth_bytes_per_us, truth.level(i).bandwidth_bytes_per_us,
               percent, fmt::format("bandwidth {}", i));
    ExpectNear(found.level(i).latency_ns, truth.level(i).latency_ns, percent,
               fmt::format("latency {}", i));
  }
  const TopologyConstants& a = found.constants();
  const TopologyConstants& b = truth.constants();
  ExpectNear(a.collective_latency_ns, b.collective_latency_ns, percent, "collective");
  ExpectNear(a.message_latency_ns, b.message_latency_ns, percent, "message");
  ExpectNear(a.copy_latency_ns, b.copy_latency_ns, percent, "copy latency");
  ExpectNear(a.copy_bandwidth_bytes_per_us, b.copy_bandwidth_bytes_per_us, percent, "copy");
  EXPECT_EQ(a.group_setup_ns, 7);
}

TEST(Calibration, FindsTheConstantsThatTheTimesCameFrom) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const auto exact = [](int64_t ns) { return ns; };
    for (const auto& [sizes, ranks] : std::vector<std::pair<std::vector<int64_t>, int64_t>>{
             {{0}, 8}, {{8, 0}, 32}, {{4, 16, 0}, 64}, {{1, 0}, 6}, {{5, 0}, 15}}) {
      const Topology truth = Truth(sizes, seed);
      const Topology found = Fit(truth, ranks, exact);
      if (sizes[0] != 1) ExpectAllNear(found, truth, 2);
    }
  }
}

// Half of the times are up to a tenth too long.
TEST(Calibration, NoiseMovesLittle) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Topology truth = Truth({8, 0}, seed);
    const Topology found = Fit(truth, 32, [&](int64_t ns) {
      return random() % 2 == 0 ? ns : ns + ns * static_cast<int64_t>(random() % 10) / 100;
    });
    for (int i = 0; i < 2; ++i) {
      ExpectNear(found.level(i).bandwidth_bytes_per_us, truth.level(i).bandwidth_bytes_per_us, 15,
                 "bandwidth");
    }
    ExpectNear(found.constants().collective_latency_ns, truth.constants().collective_latency_ns, 40,
               "collective");
  }
}

// No probe uses a level that no two ranks share.
TEST(Calibration, WhatWasNotMeasuredStaysAsItWas) {
  const Topology truth = Truth({2, 8, 0}, 1);
  const Topology found = Fit(truth, 8, [](int64_t ns) { return ns; });
  EXPECT_EQ(found.level(2), Structure(truth).level(2));
  EXPECT_EQ(found.constants().group_setup_ns, 7);
}

// The fit's time of a probe is the cost model's time of its step.
TEST(Calibration, ProbesAreObservedAsTheCostModelPricesThem) {
  for (const char* const text : {"flat", "nvlink=4", "h100", "a100-efa", "gb200"}) {
    const Topology topology = *Topology::Parse(text);
    for (const int64_t ranks : {2, 3, 8, 16, 24, 80}) {
      const std::vector<Probe> probes = *CalibrationProbes(topology, ranks, kMaxBytes);
      for (const Probe& probe : probes) {
        EXPECT_NEAR(TimeOf(*probe.observation, topology).Ns(), *ProbeNs(probe, topology), 2)
            << text << " " << Name(probe.op) << " " << probe.from.ToString();
      }
    }
  }
}

// Protocols make some numbers indistinguishable; the times are right all the same.
TEST(Calibration, FindsTimesOfMachinesWithProtocols) {
  for (const char* const text : {"h100", "a100-efa", "b200-roce"}) {
    const Topology truth = *Topology::Parse(text);
    const Topology start = *Topology::Parse("h200-efa");
    const std::vector<Probe> probes = *CalibrationProbes(start, 32, int64_t{1} << 30);
    std::vector<int64_t> ns;
    for (const Probe& probe : probes) ns.push_back(*ProbeNs(probe, truth));
    const Topology found = *FitTopology(start, probes, ns);
    for (size_t i = 0; i < probes.size(); ++i) {
      const double ratio =
          static_cast<double>(*ProbeNs(probes[i], found)) / static_cast<double>(ns[i]);
      EXPECT_NEAR(ratio, 1, 0.05) << text << " " << Name(probes[i].op) << " level "
                                  << probes[i].level << " " << probes[i].bytes;
    }
  }
}

// Each probe's best plan is the one step that it measures.
TEST(Calibration, ProbesArePlannedAsOneStep) {
  for (const char* const text : {"flat", "nvlink=4", "h100"}) {
    for (const int64_t ranks : {2, 3, 8, 16}) {
      const Topology topology = *Topology::Parse(text);
      const auto probes = CalibrationProbes(topology, ranks, kMaxBytes);
      ASSERT_TRUE(probes.ok()) << probes.status();
      for (const Probe& probe : *probes) {
        const Topology plain = ProbeTopology(topology);
        const auto plan = MakePlan(probe.from, probe.to, {.topology = plain, .max_value = 0});
        ASSERT_TRUE(plan.ok()) << plan.status();
        ASSERT_EQ(plan->steps().size(), 1) << text << probe.from.ToString();
        EXPECT_EQ(plan->steps()[0].op, probe.op) << probe.from.ToString();
        EXPECT_EQ(plan->steps()[0].est_ns, *ProbeNs(probe, plain));
        if (probe.kind != Probe::Kind::kCopy && probe.kind != Probe::Kind::kReduce) {
          EXPECT_EQ(plan->steps()[0].bytes_sent, probe.bytes) << probe.from.ToString();
        }
      }
    }
  }
}

// The least size that the error names is enough.
TEST(Calibration, TheLeastSizeTellsEveryBandwidth) {
  for (const int64_t ranks : {2, 3, 9, 10, 16}) {
    const Topology truth = Truth({ranks, 0}, 3);
    const int64_t least = ranks << 16;
    EXPECT_FALSE(CalibrationProbes(Structure(truth), ranks, least - 1).ok()) << ranks;
    const std::vector<Probe> probes = *CalibrationProbes(Structure(truth), ranks, least);
    std::vector<int64_t> ns;
    for (const Probe& probe : probes) ns.push_back(*ProbeNs(probe, truth));
    const Topology found = *FitTopology(Structure(truth), probes, ns);
    EXPECT_NE(found.level(0).bandwidth_bytes_per_us,
              Structure(truth).level(0).bandwidth_bytes_per_us);
    EXPECT_NE(found.constants().copy_bandwidth_bytes_per_us,
              Structure(truth).constants().copy_bandwidth_bytes_per_us);
  }
}

// No size overflows on the way to the largest number.
TEST(Calibration, SizesStopAtTheLargestNumber) {
  const auto probes = CalibrationProbes(Topology::Flat(), 2, INT64_MAX);
  ASSERT_TRUE(probes.ok()) << probes.status();
  EXPECT_LT(probes->size(), 100);
}

TEST(Calibration, BadInputIsNamed) {
  const Topology flat = Topology::Flat();
  EXPECT_EQ(Message(CalibrationProbes(flat, 1, kMaxBytes).status()),
            "1 ranks; a measurement of links needs at least 2");
  EXPECT_EQ(Message(CalibrationProbes(flat, 2, 100).status()),
            "100 bytes are too few to measure bandwidth among 2 ranks; expected at least 131072");
  EXPECT_EQ(
      Message(CalibrationProbes(flat, 1000, 1 << 20).status()),
      "1048576 bytes are too few to measure bandwidth among 1000 ranks; expected at least 4096000");
  EXPECT_EQ(Message(CalibrationProbes(flat, 99'999'999'999, kMaxBytes).status()),
            "99999999999 ranks: a mesh has at most 2147483647");
  const std::vector<Probe> probes = *CalibrationProbes(flat, 2, kMaxBytes);
  EXPECT_EQ(Message(FitTopology(flat, probes, {1}).status()),
            fmt::format("1 times for {} probes; expected one for each", probes.size()));
  std::vector<int64_t> ns(probes.size(), 5);
  ns[1] = 0;
  EXPECT_EQ(Message(FitTopology(flat, probes, ns).status()), "probe 1 takes 0 ns");
}

}  // namespace
}  // namespace meshift
