#include "comm/control/rank_exchange.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "meshift/bootstrap.h"

namespace meshift {
namespace {

struct Result {
  absl::Status status;
  FailedRanks failed_ranks;
};

// The results of `call` on each of `ranks` ranks, which are threads.
std::vector<Result> OnRanks(int64_t ranks,
                            const std::function<absl::Status(int64_t, RankExchange&)>& call,
                            std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  auto bootstraps = Bootstrap::InProcess(ranks, timeout).value();
  std::vector<Result> results(ranks);
  {
    std::vector<std::jthread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        RankExchange meeting(bootstraps[rank].get(), timeout / 10);
        results[rank].status = call(rank, meeting);
        results[rank].failed_ranks = meeting.failed_ranks();
      });
    }
  }
  return results;
}

TEST(Meeting, PassesWhatEachHas) {
  const auto results = OnRanks(3, [](int64_t rank, RankExchange& meeting) {
    const auto all = meeting.Meet(absl::OkStatus(), std::string(rank, 'x'));
    if (!all.ok()) return all.status();
    EXPECT_EQ(*all, std::vector<std::string>({"", "x", "xx"}));
    return absl::OkStatus();
  });
  for (const Result& result : results) EXPECT_TRUE(result.status.ok()) << result.status;
}

TEST(Meeting, NamesTheRankThatHasAnError) {
  const auto results = OnRanks(3, [](int64_t rank, RankExchange& meeting) {
    const absl::Status own = rank == 1 ? InvalidArgument("no file") : absl::OkStatus();
    return meeting.Meet(own, "mine").status();
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.status, InvalidArgument("rank 1: no file"));
    EXPECT_EQ(result.failed_ranks, FailedRanks::kOne);
  }
}

TEST(Meeting, AnErrorThatAllHaveAlikeIsNobodys) {
  const auto results = OnRanks(3, [](int64_t, RankExchange& meeting) {
    return meeting.Meet(absl::ResourceExhaustedError("too large"), "").status();
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.status, absl::ResourceExhaustedError("too large"));
    EXPECT_EQ(result.failed_ranks, FailedRanks::kAll);
  }
}

// Ranks that fail because another has failed name that one already.
TEST(Meeting, NamesNoSecondRank) {
  const auto results = OnRanks(3, [](int64_t rank, RankExchange& meeting) {
    const absl::Status own = rank == 2 ? absl::UnavailableError("no device")
                                       : FailedPrecondition("rank 2 has no engine: no device");
    return meeting.Meet(own, "").status();
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.status, FailedPrecondition("rank 2 has no engine: no device"));
  }
}

// The others have gone: this rank reports its own error, not theirs.
TEST(Meeting, KeepsTheOwnErrorWhereTheOthersHaveGone) {
  auto bootstraps = Bootstrap::InProcess(2, std::chrono::seconds(20)).value();
  bootstraps[1].reset();
  RankExchange meeting(bootstraps[0].get());
  EXPECT_EQ(meeting.Meet(InvalidArgument("no file"), "").status(), InvalidArgument("no file"));
  EXPECT_EQ(meeting.failed_ranks(), FailedRanks::kHere);
  EXPECT_EQ(meeting.Meet(absl::OkStatus(), "").status().code(), absl::StatusCode::kUnavailable);
}

// The work takes three times the time-out, and no rank counts as missing.
TEST(Meeting, ARankThatWorksIsNotMissing) {
  const auto results = OnRanks(
      3,
      [](int64_t rank, RankExchange& meeting) -> absl::Status {
        const auto all = meeting.MeetAfter([&] {
          if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
          return std::to_string(rank);
        });
        if (!all.ok()) return all.status();
        EXPECT_EQ(*all, std::vector<std::string>({"0", "1", "2"}));
        return absl::OkStatus();
      },
      std::chrono::seconds(1));
  for (const Result& result : results) EXPECT_TRUE(result.status.ok()) << result.status;
}

TEST(Meeting, NobodyWaitsForWorkWhereOneHasFailed) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::chrono::nanoseconds> after(3);
  const auto results = OnRanks(3, [&](int64_t rank, RankExchange& meeting) {
    const absl::Status status = meeting
                                    .MeetAfter([&]() -> absl::StatusOr<std::string> {
                                      if (rank == 2) return InvalidArgument("no file");
                                      if (rank == 1) {
                                        std::this_thread::sleep_for(std::chrono::seconds(7));
                                      }
                                      return "";
                                    })
                                    .status();
    after[rank] = std::chrono::steady_clock::now() - begin;
    return status;
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.status, InvalidArgument("rank 2: no file"));
    EXPECT_EQ(result.failed_ranks, FailedRanks::kOne);
  }
  EXPECT_LT(after[0], std::chrono::seconds(6));
  EXPECT_LT(after[2], std::chrono::seconds(6));
}

TEST(Meeting, TellsPlansThatDiffer) {
  const auto results = OnRanks(3, [](int64_t rank, RankExchange& meeting) {
    return meeting.Agree([&] { return rank == 2 ? "plan b" : "plan a"; });
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.status, InvalidArgument("rank 0 has plan a, and rank 2 has plan b"));
    EXPECT_EQ(result.failed_ranks, FailedRanks::kOne);
  }
}

TEST(Meeting, TellsOnlyArgumentsThatDiffer) {
  const auto results = OnRanks(2, [](int64_t rank, RankExchange& meeting) {
    ArgumentTexts arguments = {"--engine mpi", "--mesh a=2", "--to R"};
    if (rank == 1) arguments = {"--engine mpi", "--repeat 2", "--mesh a=3", "--to R"};
    return meeting.Compare(absl::OkStatus(), "run", arguments);
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.status,
              InvalidArgument("rank 0 was asked to run --mesh a=2, and rank 1 to run --repeat 2 "
                              "--mesh a=3"));
  }
}

TEST(Meeting, LongArgumentsAreClipped) {
  const auto results = OnRanks(2, [](int64_t rank, RankExchange& meeting) {
    return meeting.Compare(absl::OkStatus(), "run",
                           {"--mesh " + std::string(100'000, rank == 0 ? 'a' : 'b')});
  });
  for (const Result& result : results) EXPECT_LT(Message(result.status).size(), 400);
}

// A line end in an argument does not split it.
TEST(Meeting, ArgumentsAreComparedWhole) {
  const auto results = OnRanks(2, [](int64_t rank, RankExchange& meeting) {
    ArgumentTexts arguments = {"--a", "--b"};
    if (rank == 1) arguments = {"--a\n--b"};
    return meeting.Compare(absl::OkStatus(), "run", arguments);
  });
  for (const Result& result : results) {
    EXPECT_EQ(result.status, InvalidArgument("rank 0 was asked to run --a --b, and rank 1 to run "
                                             "--a --b"));
  }
}

TEST(Meeting, KnowsMessagesThatBeginWithARank) {
  EXPECT_TRUE(BeginsWithRank("rank 3: no file"));
  EXPECT_TRUE(BeginsWithRank("rank 12 has failed: no file"));
  EXPECT_FALSE(BeginsWithRank("rank"));
  EXPECT_FALSE(BeginsWithRank("rank x: no file"));
  EXPECT_FALSE(BeginsWithRank("rank 3"));
  EXPECT_FALSE(BeginsWithRank("mesh a=2 has rank 3: none"));
}

}  // namespace
}  // namespace meshift
