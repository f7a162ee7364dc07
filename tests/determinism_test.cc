// Plans are the same from every build, in any order of planning, and from many threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "meshift/planner.h"
#include "testing/random.h"
#include "testing/small_world.h"
#include "tests/golden_cases.h"

namespace meshift {
namespace {

// The lines of the file.
std::vector<std::string> ReadGolden() {
  std::ifstream file("tests/data/golden_fingerprints.txt");
  EXPECT_TRUE(file.good());
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Every eighth case, except the one with five mesh dims, which takes longest.
std::vector<size_t> Sample(size_t num_cases) {
  std::vector<size_t> sample;
  for (size_t i = 2; i < num_cases; i += 8) sample.push_back(i);
  return sample;
}

std::string Line(const GoldenCase& golden) {
  const absl::StatusOr<Plan> plan = MakePlan(golden.from, golden.to, golden.options);
  return plan.ok() ? GoldenLine(golden, *plan) : plan.status().ToString();
}

TEST(DeterminismTest, EveryBuildFindsTheFingerprintsOfTheFile) {
  const std::vector<GoldenCase> cases = GoldenCases();
  const std::vector<std::string> golden = ReadGolden();
  ASSERT_EQ(golden.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(Line(cases[i]), golden[i]);
}

TEST(DeterminismTest, RepeatedPlanningsInAnyOrderFindTheSame) {
  const int64_t rounds = 1000 / testkit::TestFraction();
  const std::vector<GoldenCase> cases = GoldenCases();
  const std::vector<std::string> golden = ReadGolden();
  ASSERT_EQ(golden.size(), cases.size());
  testkit::Random random(1);
  std::vector<size_t> order = Sample(cases.size());
  for (int64_t round = 0; round < rounds; ++round) {
    random.Shuffle(order);
    for (size_t i : order) ASSERT_EQ(Line(cases[i]), golden[i]) << "round " << round;
    // Plan another problem in between.
    const testkit::RandomPair other = testkit::RandomCase(1000 + round);
    ASSERT_TRUE(MakePlan(other.from, other.to).ok());
  }
}

TEST(DeterminismTest, ThreadsFindTheSame) {
  constexpr uint64_t kThreads = 8;
  const std::vector<GoldenCase> cases = GoldenCases();
  const std::vector<std::string> golden = ReadGolden();
  ASSERT_EQ(golden.size(), cases.size());
  std::atomic<int> different{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<size_t> order = Sample(cases.size());
      testkit::Random random(t);
      random.Shuffle(order);
      for (size_t i : order) different += Line(cases[i]) == golden[i] ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace meshift
