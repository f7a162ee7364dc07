#include "testing/fake_gpu/race_check.h"

#include "gtest/gtest.h"
#include "testing/fake_gpu/random.h"
#include "testing/fake_gpu/vector_clock.h"

namespace meshift::fake {
namespace {

VectorClock After(std::initializer_list<std::pair<uint32_t, uint64_t>> operations) {
  VectorClock clock;
  for (const auto& [stream, number] : operations) clock.Raise(stream, number);
  return clock;
}

constexpr Operation kA = {.stream = 1, .number = 1, .name = "a"};
constexpr Operation kB = {.stream = 2, .number = 1, .name = "b"};
constexpr Operation kC = {.stream = 3, .number = 1, .name = "c"};

TEST(VectorClockTest, JoinTakesTheLaterOfEach) {
  VectorClock clock = After({{1, 5}, {3, 2}});
  clock.Join(After({{1, 4}, {2, 7}, {3, 9}}));
  EXPECT_EQ(clock.At(1), 5);
  EXPECT_EQ(clock.At(2), 7);
  EXPECT_EQ(clock.At(3), 9);
  EXPECT_EQ(clock.At(4), 0);
  EXPECT_TRUE(clock.Covers(After({{2, 7}})));
  EXPECT_FALSE(clock.Covers(After({{2, 8}})));
}

TEST(RaceCheckTest, AReadAfterAnUnorderedWriteRaces) {
  AccessHistory history;
  EXPECT_FALSE(history.Apply(0, 100, true, kA, After({{1, 1}})));
  const auto race = history.Apply(50, 60, false, kB, After({{2, 1}}));
  ASSERT_TRUE(race.has_value());
  EXPECT_EQ(race->earlier, kA);
  EXPECT_TRUE(race->earlier_wrote);
}

TEST(RaceCheckTest, AnOrderedReadDoesNot) {
  AccessHistory history;
  EXPECT_FALSE(history.Apply(0, 100, true, kA, After({{1, 1}})));
  EXPECT_FALSE(history.Apply(50, 60, false, kB, After({{1, 1}, {2, 1}})));
}

TEST(RaceCheckTest, ReadsDoNotRaceWithReads) {
  AccessHistory history;
  EXPECT_FALSE(history.Apply(0, 100, false, kA, After({{1, 1}})));
  EXPECT_FALSE(history.Apply(0, 100, false, kB, After({{2, 1}})));
}

TEST(RaceCheckTest, AWriteMustComeAfterAllReaders) {
  AccessHistory history;
  EXPECT_FALSE(history.Apply(0, 100, false, kA, After({{1, 1}})));
  EXPECT_FALSE(history.Apply(0, 100, false, kB, After({{2, 1}})));
  const auto race = history.Apply(0, 1, true, kC, After({{2, 1}, {3, 1}}));
  ASSERT_TRUE(race.has_value());
  EXPECT_EQ(race->earlier, kA);
  EXPECT_FALSE(race->earlier_wrote);
}

TEST(RaceCheckTest, NeighboursDoNotRace) {
  AccessHistory history;
  EXPECT_FALSE(history.Apply(0, 50, true, kA, After({{1, 1}})));
  EXPECT_FALSE(history.Apply(50, 100, true, kB, After({{2, 1}})));
  EXPECT_TRUE(history.Apply(49, 51, true, kC, After({{3, 1}})));
}

// Compares with one history per byte.
TEST(RaceCheckTest, EqualsAHistoryOfEachByte) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    AccessHistory history;
    struct Byte {
      Operation writer;
      std::vector<Operation> readers;
    };
    std::vector<Byte> bytes(24);
    std::vector<VectorClock> streams(4);
    for (uint64_t number = 1; number <= 40; ++number) {
      const auto stream = static_cast<uint32_t>(1 + random.Below(3));
      VectorClock& clock = streams[stream];
      if (random.Below(3) == 0) clock.Join(streams[1 + random.Below(3)]);
      clock.Raise(stream, number);
      const Operation who = {.stream = stream, .number = number, .name = ""};
      const uint64_t begin = random.Below(24);
      const uint64_t end = begin + random.Below(25 - begin);
      const bool write = random.Below(2) == 0;
      bool expected = false;
      for (uint64_t i = begin; i < end; ++i) {
        const auto unordered = [&](const Operation& other) {
          return other.stream != 0 && clock.At(other.stream) < other.number;
        };
        expected |= unordered(bytes[i].writer);
        if (write) {
          for (const Operation& reader : bytes[i].readers) expected |= unordered(reader);
          bytes[i] = {.writer = who, .readers = {}};
        } else {
          bytes[i].readers.push_back(who);
        }
      }
      EXPECT_EQ(history.Apply(begin, end, write, who, clock).has_value(), expected);
    }
  }
}

}  // namespace
}  // namespace meshift::fake
