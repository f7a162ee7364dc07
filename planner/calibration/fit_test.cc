#include "planner/calibration/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

using ObservationKind = Observation::Kind;

Observation Collective(ObservationKind kind, int64_t ranks, int64_t bytes) {
  return {.kind = kind,
          .num_ranks = ranks,
          .groups = {.size = ranks, .modes = {{ranks, 1}}},
          .bytes = bytes};
}

// The times of all collectives over the first n ranks for each n of `ranks`, by `truth`, with
// tensors from `least` bytes in steps of a factor of 4.
std::vector<Observation> Times(const Topology& truth, const std::vector<int64_t>& ranks,
                               int64_t least) {
  std::vector<Observation> all;
  for (const int64_t n : ranks) {
    for (const ObservationKind kind :
         {ObservationKind::kAllReduce, ObservationKind::kBlocks, ObservationKind::kToAll}) {
      for (int64_t bytes = least; bytes <= int64_t{4} << 30; bytes *= 4) {
        Observation one =
            Collective(kind, n, kind == ObservationKind::kAllReduce ? bytes : bytes / n * (n - 1));
        one.ns = TimeOf(one, truth).Ns();
        all.push_back(one);
      }
    }
  }
  return all;
}

// The preset with each number multiplied by 0.75 to 1.33.
Topology Perturbed(const Topology& preset, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto change = [&](int64_t* number) {
    const auto percent = static_cast<int64_t>(75 + random() % 59);
    if (*number > 1) *number = std::max<int64_t>(*number * percent / 100, 1);
  };
  std::vector<TopologyLevel> levels;
  for (int i = 0; i < preset.NumLevels(); ++i) {
    TopologyLevel level = preset.level(i);
    for (int64_t* const number :
         {&level.bandwidth_bytes_per_us, &level.latency_ns, &level.entry_ns,
          &level.direct_bandwidth_bytes_per_us, &level.domain_bandwidth_bytes_per_us,
          &level.in_switch_bandwidth_bytes_per_us}) {
      change(number);
    }
    levels.push_back(std::move(level));
  }
  TopologyConstants constants = preset.constants();
  change(&constants.collective_latency_ns);
  change(&constants.message_latency_ns);
  std::vector<TopologyProtocol> protocols(preset.protocols().begin(), preset.protocols().end());
  for (TopologyProtocol& protocol : protocols) change(&protocol.start_ns);
  return *Topology::Create(std::move(levels), constants, std::move(protocols));
}

FitError Error(const std::vector<Observation>& times, const Topology& topology) {
  std::vector<double> ratios;
  for (const Observation& one : times) {
    ratios.push_back(static_cast<double>(TimeOf(one, topology).Ns()) / static_cast<double>(one.ns));
  }
  return ErrorOf(ratios);
}

// With protocols, trees and sums in switches, the fitted times are right, also at sizes in between.
TEST(Fit, FindsTimesOfMachinesWithProtocols) {
  for (const auto& [name, ranks] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{{"a100", {8}},
                                                                 {"h100", {8, 16, 64}},
                                                                 {"h100-efa", {8, 32}},
                                                                 {"b200-roce", {8, 16, 32}},
                                                                 {"gb200", {8, 72, 144}}}) {
    const Topology preset = *Topology::Parse(name);
    for (uint64_t seed = 0; seed < 2; ++seed) {
      SCOPED_TRACE(testing::Message() << name << " " << seed);
      const Topology truth = Perturbed(preset, seed);
      const std::vector<Observation> times = Times(truth, ranks, 1024);
      const auto found = FitObservations(preset, times);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_LE(Error(times, *found).worst, 0.05);
      EXPECT_LE(Error(Times(truth, ranks, 2048), *found).worst, 0.05);
    }
  }
}

// One time in ten is three times too long.
TEST(Fit, WrongTimesMoveLittle) {
  const Topology preset = *Topology::Parse("h100");
  for (uint64_t seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(seed);
    const Topology truth = Perturbed(preset, seed);
    const std::vector<Observation> right = Times(truth, {8, 32}, 1024);
    std::vector<Observation> times = right;
    for (size_t i = seed; i < times.size(); i += 10) times[i].ns *= 3;
    const FitError error = Error(right, *FitObservations(preset, times));
    EXPECT_LE(error.median, 0.05);
    EXPECT_LE(error.worst, 0.5);
  }
}

TEST(Fit, TheSameTimesGiveTheSameTopology) {
  const Topology preset = *Topology::Parse("h100-efa");
  const std::vector<Observation> times = Times(Perturbed(preset, 1), {16}, 1024);
  EXPECT_EQ(*FitObservations(preset, times), *FitObservations(preset, times));
}

// A number that is 0, or on which no time depends, is unchanged.
TEST(Fit, KeepsWhatIsNotThereAndWhatNoTimeTells) {
  const Topology preset = *Topology::Parse("a100");
  const Topology found = *FitObservations(preset, Times(*Topology::Parse("h100"), {8}, 1024));
  EXPECT_EQ(found.level(0).in_switch_bandwidth_bytes_per_us, 0);
  EXPECT_EQ(found.level(1), preset.level(1));
  EXPECT_EQ(found.constants().copy_latency_ns, preset.constants().copy_latency_ns);
  EXPECT_EQ(found.constants().group_setup_ns, preset.constants().group_setup_ns);
  EXPECT_EQ(found.protocols()[0].domain_percent, preset.protocols()[0].domain_percent);
}

// Also if the measured times are far from those of the structure.
TEST(Fit, KeepsLevelsThatNoTimeTellsFarFromTheStructure) {
  for (const char* const name : {"h100", "flat"}) {
    const Topology far =
        *Topology::Create({{"inner", 8, 100, 400'000}, {"outer", 0, 100, 50'000}}, {}, {});
    std::vector<Observation> times = Times(*Topology::Parse(name), {8}, 1024);
    const Topology found = *FitObservations(far, times);
    EXPECT_EQ(found.level(1), far.level(1));
    EXPECT_EQ(found.constants().copy_bandwidth_bytes_per_us,
              far.constants().copy_bandwidth_bytes_per_us);
  }
}

// Any times give a valid topology.
TEST(Fit, AnyTimesGiveATopology) {
  std::mt19937_64 random(7);
  for (const char* const name : {"flat", "h100", "gb200"}) {
    for (int round = 0; round < 2; ++round) {
      std::vector<Observation> times = Times(*Topology::Parse(name), {2, 100}, 1 << 20);
      for (Observation& one : times) {
        one.ns = std::max<int64_t>(static_cast<int64_t>(random() >> (1 + random() % 62)), 1);
        if (round % 2 == 0) one.bytes = static_cast<int64_t>(random() >> (1 + random() % 62));
      }
      EXPECT_TRUE(FitObservations(*Topology::Parse(name), times).ok());
    }
  }
}

TEST(Fit, ManyTimesAreThinnedOut) {
  std::vector<Observation> times;
  const Topology truth = Topology::Flat();
  for (int i = 0; i < 100'000; ++i) {
    times.push_back(Collective(ObservationKind::kBlocks, 8, 1024 + i * 1000));
    times.back().ns = TimeOf(times.back(), truth).Ns();
  }
  EXPECT_LE(Error(times, *FitObservations(truth, times)).worst, 0.01);
}

// Each group has its own shape; the work is limited.
TEST(Fit, ManyGroupsAreFittedInSomeSeconds) {
  const Topology truth = Perturbed(*Topology::Parse("h100"), 1);
  std::vector<Observation> times;
  for (int64_t ranks = 2; ranks < 200; ++ranks) {
    times.push_back(Collective(ObservationKind::kAllReduce, ranks, 1 << 20));
    times.back().ns = TimeOf(times.back(), truth).Ns();
  }
  EXPECT_LE(Error(times, *FitObservations(*Topology::Parse("h100"), times)).median, 0.05);
}

TEST(Fit, ErrorsAreThoseOfTheRatios) {
  const FitError error = ErrorOf({1.5, 1.0, 0.75, 1.1});
  EXPECT_EQ(error.count, 4U);
  EXPECT_NEAR(error.median, 0.175, 1e-9);
  EXPECT_NEAR(error.worst, 0.5, 1e-9);
  EXPECT_EQ(ErrorOf({}).count, 0U);
}

TEST(Fit, BadInputIsNamed) {
  EXPECT_EQ(Message(FitObservations(Topology::Flat(), {}).status()),
            "the list of times to fit is empty");
  EXPECT_EQ(
      Message(
          FitObservations(Topology::Flat(), {Collective(ObservationKind::kBlocks, 2, 8)}).status()),
      "observation 0 takes 0 ns");
}

}  // namespace
}  // namespace meshift
