// A fault on one rank ends all others with an error, in time: another target, another shape, a rank
// that never calls, a device that stops; also with several groups and graphs. Over the stand-in
// libraries; ranks are threads. Each fault a hundred times, in twenty parts, which run side by
// side.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/nccl_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "testing/internal/nccl/captured_graph.h"
#include "testing/internal/nccl/nccl_threads.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int64_t kRanks = 4;
// Long enough for correct calls, although parts and other tests share the cores.
constexpr milliseconds kTimeout(2000);
// Beyond the time-out, since parts run side by side on few cores. A hang would take minutes.
constexpr milliseconds kGrace(5000);

constexpr int kParts = 20;
constexpr int kRoundsOfPart = 5;

struct End {
  absl::Status status;
  Clock::duration took{};
};

// One rank's redistributor, and memory for its calls.
class Rank {
 public:
  Rank(NcclEngine& engine, Agreement agreement)
      : engine_(engine),
        in_(engine.Allocate(1024).value()),
        out_(engine.Allocate(1024).value()),
        redistribute_(
            Redistributor::Create(mesh_, &engine, {.agreement = agreement, .timeout = kTimeout})
                .value()) {}

  // Uses part `place` (0 to 15) of the memory for calls, so that several calls can be in flight.
  absl::StatusOr<RunHandle> Start(const std::string& tensor, const std::string& from_text,
                                  const std::string& to_text, int place = 0,
                                  Stream* after = nullptr) {
    const Sharding from = Sharding::Parse(tensor, mesh_, from_text).value();
    const Sharding to = from.WithPlacements(to_text).value();
    const auto view = [&](const Sharding& sharding, const Buffer& buffer) {
      return TensorView::Contiguous(static_cast<char*>(buffer.data()) + 64 * place, DType::kF32,
                                    sharding.LocalBox(engine_.rank()).size);
    };
    return redistribute_({.from = from,
                          .to = to,
                          .source = view(from, *in_),
                          .target = view(to, *out_),
                          .after = after});
  }
  absl::Status Run(const std::string& tensor, const std::string& from_text,
                   const std::string& to_text) {
    const absl::StatusOr<RunHandle> run = Start(tensor, from_text, to_text);
    return run.ok() ? run->Wait() : run.status();
  }
  NcclEngine& engine() { return engine_; }

  // Starts the time that elapsed() measures.
  void Begin() { begin_ = Clock::now(); }
  Clock::duration elapsed() const { return Clock::now() - begin_; }

 private:
  const DeviceMesh mesh_ = DeviceMesh::Parse("a=2,b=2").value();
  NcclEngine& engine_;
  const std::unique_ptr<Buffer> in_;
  const std::unique_ptr<Buffer> out_;
  Redistributor redistribute_;
  Clock::time_point begin_;
};

// The parameter: the part.
class NcclFaultTest : public testing::TestWithParam<int> {
 protected:
  static int FirstRound() { return GetParam() * kRoundsOfPart; }
  static int EndRound() { return FirstRound() + kRoundsOfPart; }

  // After a call that all ranks make, runs `call` on each.
  static std::vector<End> Run(int i, Agreement agreement,
                              const std::function<absl::Status(int64_t, Rank&)>& call,
                              std::chrono::nanoseconds setup_timeout = std::chrono::seconds(20)) {
    NcclOptions options;
    options.timeout = kTimeout;
    options.setup_timeout = setup_timeout;
    std::vector<End> ends(kRanks);
    auto ranks = NcclThreads::Create(kRanks, options, static_cast<uint64_t>(i + 1));
    EXPECT_TRUE(ranks.ok()) << ranks.status();
    if (!ranks.ok()) return ends;
    (*ranks)->Run([&](NcclEngine& engine, int64_t r) {
      Rank rank(engine, agreement);
      const absl::Status first = rank.Run("f32[8]", "P,P", "R,R");
      EXPECT_TRUE(first.ok()) << first;
      EXPECT_TRUE((*ranks)->bootstrap(r).Exchange("").ok());
      rank.Begin();
      ends[r].status = call(r, rank);
      ends[r].took = rank.elapsed();
      // No rank leaves while its peers may still call it.
      EXPECT_TRUE((*ranks)->bootstrap(r).Exchange("").ok());
    });
    for (const End& end : ends) {
      // The first error and its rank are named once.
      const std::string text = end.status.ToString();
      EXPECT_EQ(text.find(" has failed: rank "), std::string::npos) << text;
    }
    EXPECT_EQ(Violations().find("still returns ncclInProgress"), std::string::npos) << Violations();
    return ends;
  }

  static Agreement AgreementOf(int i) {
    constexpr Agreement kAll[] = {Agreement::kOff, Agreement::kFirstCalls, Agreement::kAlways};
    return kAll[i % 3];
  }
  void ExpectInTime(const std::vector<End>& ends) {
    const auto last = std::max_element(ends.begin(), ends.end(),
                                       [](const End& a, const End& b) { return a.took < b.took; });
    EXPECT_LT(last->took, kTimeout + kGrace) << last->status;
    longest_ = std::max(longest_, last->took);
  }
  void TearDown() override {
    std::printf("%lld ms at most\n",
                static_cast<long long>(std::chrono::duration_cast<milliseconds>(longest_).count()));
  }
  static std::string All(const std::vector<End>& ends) {
    std::string text;
    for (const End& end : ends) text += end.status.ToString() + "\n";
    return text;
  }
  static bool Named(const std::vector<End>& ends, absl::StatusCode code, const std::string& a,
                    const std::string& b) {
    for (const End& end : ends) {
      const std::string text = end.status.ToString();
      if (end.status.code() == code && text.find(a) != std::string::npos &&
          text.find(b) != std::string::npos) {
        return true;
      }
    }
    return false;
  }

 private:
  Clock::duration longest_{};
};

TEST_P(NcclFaultTest, AnotherTarget) {
  const std::string others[] = {"R,S(0)", "S(0),R", "P,S(0)"};
  for (int i = FirstRound(); i < EndRound() && !HasFailure(); ++i) {
    const Agreement agreement = AgreementOf(i);
    const int odd = i / 9 % kRanks;
    // Without agreement only calls that do not match reveal it, and "P,S(0)" makes no calls.
    const std::string other = agreement == Agreement::kOff ? others[2] : others[i / 3 % 3];
    const auto call = [&](int64_t r, Rank& rank) {
      return rank.Run("f32[8]", "P,R", r == odd ? other : "R,R");
    };
    // Only the other ranks may need some group, so splits may hang: use a short set-up time-out.
    const std::vector<End> ends = Run(i, agreement, call, kTimeout);
    ExpectInTime(ends);
    EXPECT_TRUE(
        Named(ends, absl::StatusCode::kFailedPrecondition, "a=2,b=2 as P,R -> R,R", "-> " + other))
        << All(ends);
    for (const End& end : ends) {
      // Without agreement beforehand, a rank may do all its work before the others find out.
      EXPECT_TRUE(agreement == Agreement::kOff || !end.status.ok()) << All(ends);
    }
  }
}

TEST_P(NcclFaultTest, AnotherShape) {
  for (int i = FirstRound(); i < EndRound() && !HasFailure(); ++i) {
    const std::vector<End> ends = Run(i, AgreementOf(i), [&](int64_t r, Rank& rank) {
      return rank.Run(r == i % kRanks ? "f32[12]" : "f32[8]", "P,P", "R,R");
    });
    ExpectInTime(ends);
    EXPECT_TRUE(Named(ends, absl::StatusCode::kFailedPrecondition,
                      "f32[12] on a=2,b=2 as P,P -> R,R", "f32[8] on a=2,b=2 as P,P -> R,R"))
        << All(ends);
    for (const End& end : ends) EXPECT_FALSE(end.status.ok());
  }
}

TEST_P(NcclFaultTest, ARankThatNeverCalls) {
  for (int i = FirstRound(); i < EndRound() && !HasFailure(); ++i) {
    const int64_t missing = i % kRanks;
    const std::vector<End> ends = Run(i, AgreementOf(i), [&](int64_t r, Rank& rank) {
      return r == missing ? absl::OkStatus() : rank.Run("f32[8]", "P,P", "R,R");
    });
    ExpectInTime(ends);
    EXPECT_TRUE(Named(ends, absl::StatusCode::kDeadlineExceeded,
                      "rank " + std::to_string(missing) + " has not made call 1", ""))
        << All(ends);
    for (int64_t r = 0; r < kRanks; ++r) {
      if (r == missing) continue;
      EXPECT_EQ(ends[r].status.code(), absl::StatusCode::kDeadlineExceeded) << All(ends);
    }
  }
}

TEST_P(NcclFaultTest, ALateRankIsWaitedFor) {
  for (int i = FirstRound(); i < EndRound() && !HasFailure(); ++i) {
    const std::vector<End> ends = Run(i, AgreementOf(i), [&](int64_t r, Rank& rank) {
      if (r == i % kRanks) std::this_thread::sleep_for(kTimeout / 20);
      return rank.Run("f32[8]", "P,R", "R,R");
    });
    for (const End& end : ends) EXPECT_TRUE(end.status.ok()) << All(ends);
  }
}

// Calls of several groups hang at once: the groups end together, so that none waits for another.
TEST_P(NcclFaultTest, GroupsThatHangEndTogether) {
  const std::string calls[][2] = {{"P,S(0)", "R,S(0)"}, {"S(0),P", "S(0),R"}, {"P,P", "R,R"}};
  for (int i = FirstRound(); i < EndRound() && !HasFailure(); ++i) {
    const int64_t missing = i % kRanks;
    const std::vector<End> ends = Run(i, AgreementOf(i), [&](int64_t r, Rank& rank) {
      for (const auto& [from, to] : calls) {
        const absl::Status status = rank.Run("f32[8]", from, to);
        if (!status.ok()) return status;
      }
      if (r == missing) return absl::OkStatus();
      rank.Begin();
      absl::Status last;
      for (int place = 0; place < 6; ++place) {
        const auto& [from, to] = calls[(place + i) % 3];
        const absl::StatusOr<RunHandle> run = rank.Start("f32[8]", from, to, place);
        if (!run.ok()) return run.status();
        last = place == 5 ? run->Wait() : absl::OkStatus();
      }
      return last;
    });
    ExpectInTime(ends);
    for (int64_t r = 0; r < kRanks; ++r) {
      EXPECT_EQ(ends[r].status.ok(), r == missing) << All(ends);
    }
    EXPECT_EQ(Violations().find("ncclCommAbort"), std::string::npos) << Violations();
  }
}

// NCCL keeps a communicator while a graph has its operations; the engine does not wait for that.
TEST_P(NcclFaultTest, AGraphHoldsNoErrorUp) {
  for (int i = FirstRound(); i < EndRound() && !HasFailure(); ++i) {
    const int64_t missing = i % kRanks;
    const std::vector<End> ends = Run(i, AgreementOf(i), [&](int64_t r, Rank& rank) {
      CapturedGraph graph(rank.engine());
      graph.Begin();
      const absl::StatusOr<RunHandle> captured =
          rank.Start("f32[8]", "P,P", "R,R", 1, &graph.stream());
      EXPECT_TRUE(captured.ok() && captured->Wait(graph.stream()).ok()) << captured.status();
      graph.End();
      rank.Begin();
      return r == missing ? absl::OkStatus() : rank.Run("f32[8]", "P,P", "R,R");
    });
    ExpectInTime(ends);
    for (int64_t r = 0; r < kRanks; ++r) {
      EXPECT_EQ(ends[r].status.ok(), r == missing) << All(ends);
    }
  }
}

// To its peers this is a killed process: its device does nothing more. Runs once, since its work
// stays on the device. kill_test.sh kills processes.
TEST_P(NcclFaultTest, ADeviceThatStops) {
  if (GetParam() > 0) GTEST_SKIP() << "made once";
  constexpr int64_t kDead = 2;
  const std::vector<End> ends = Run(0, Agreement::kOff, [&](int64_t r, Rank& rank) {
    if (r == kDead) TheFake()->kill_device(static_cast<int>(r));
    return rank.Run("f32[8]", "P,P", "R,R");
  });
  TheFake()->revive_device(static_cast<int>(kDead));
  ExpectInTime(ends);
  for (const End& end : ends) EXPECT_FALSE(end.status.ok()) << All(ends);
}

INSTANTIATE_TEST_SUITE_P(Parts, NcclFaultTest, testing::Range(0, kParts));

}  // namespace
}  // namespace meshift
