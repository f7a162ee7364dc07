// A rank makes a different call, or none: all others end in time with an error that names the
// difference.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"
#include "meshift/topology.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTimeout(250);
// A busy machine stands still for seconds.
constexpr milliseconds kGrace(5000);
constexpr int kRanks = 4;
constexpr int kTimes = 100;
constexpr Agreement kAll[] = {Agreement::kOff, Agreement::kFirstCalls, Agreement::kAlways};

struct End {
  absl::Status status;
  Clock::duration took{};
};

// A rank's redistributor, and buffers that are large enough for its calls.
class Rank {
 public:
  Rank(const DeviceMesh& mesh, Engine* engine, const RedistributorOptions& options)
      : mesh_(mesh),
        engine_(engine),
        redistribute_(Redistributor::Create(mesh, engine, options).value()) {}

  absl::StatusOr<RunHandle> Call(const std::string& tensor, const std::string& from_text,
                                 const std::string& to_text,
                                 std::optional<int64_t> ticket = std::nullopt) {
    const Sharding from = Sharding::Parse(tensor, mesh_, from_text).value();
    const Sharding to = from.WithPlacements(to_text).value();
    const Shape source = from.LocalBox(engine_->rank()).size;
    const Shape target = to.LocalBox(engine_->rank()).size;
    return redistribute_({.from = from,
                          .to = to,
                          .source = TensorView::Contiguous(in_, DType::kF32, source),
                          .target = TensorView::Contiguous(out_, DType::kF32, target),
                          .ticket = ticket});
  }
  absl::Status Run(const std::string& tensor, const std::string& from, const std::string& to) {
    const absl::StatusOr<RunHandle> run = Call(tensor, from, to);
    return run.ok() ? run->Wait() : run.status();
  }
  // A call from one mesh of the ranks to another.
  absl::Status Move(const std::string& from, const std::string& to) {
    const absl::StatusOr<RunHandle> run = redistribute_(Across(from, to, /*at=*/0));
    return run.ok() ? run->Wait() : run.status();
  }
  // The same for several tensors of at most 8 elements.
  absl::Status MoveList(const std::vector<std::pair<std::string, std::string>>& pairs) {
    std::vector<Redistribution> list;
    for (const auto& [from, to] : pairs) list.push_back(Across(from, to, 8 * list.size()));
    const absl::StatusOr<RunHandle> run = redistribute_(list);
    return run.ok() ? run->Wait() : run.status();
  }
  Redistributor& redistribute() { return redistribute_; }
  // All ranks make another redistributor, each with its own options.
  void Remake(const RedistributorOptions& options) {
    redistribute_ = Redistributor::Create(mesh_, engine_, options).value();
  }

 private:
  // The tensor is at this place in the buffers.
  Redistribution Across(const std::string& from_text, const std::string& to_text, size_t at) {
    const Sharding from = Sharding::Parse(from_text).value();
    const Sharding to = Sharding::Parse(to_text).value();
    const auto view = [&](const Sharding& sharding, float* data) {
      if (!sharding.mesh().PositionOf(engine_->rank())) return TensorView();
      return TensorView::Contiguous(data + at, DType::kF32,
                                    sharding.LocalBox(engine_->rank()).size);
    };
    return {.from = from, .to = to, .source = view(from, in_), .target = view(to, out_)};
  }

  const DeviceMesh mesh_;
  Engine* const engine_;
  float in_[256] = {};
  float out_[256] = {};
  Redistributor redistribute_;
};

// A point at which all ranks wait for each other.
class Barrier {
 public:
  void Arrive() {
    MutexLock lock(mutex_);
    if (++arrived_ == kRanks) all_arrived_.notify_all();
    lock.Wait(all_arrived_, [&]() MESHIFT_REQUIRES(mutex_) { return arrived_ == kRanks; });
  }

 private:
  Mutex mutex_;
  std::condition_variable all_arrived_;
  int arrived_ MESHIFT_GUARDED_BY(mutex_) = 0;
};

class AgreementTest : public testing::Test {
 protected:
  // Runs `call` of each rank on a new thread.
  std::vector<End> Run(const RedistributorOptions& options,
                       const std::function<absl::Status(int, Rank&)>& call) {
    const auto bootstraps = Bootstrap::InProcess(kRanks).value();
    LocalWorldOptions world_options{.num_ranks = kRanks, .timeout = kTimeout};
    for (const auto& bootstrap : bootstraps) world_options.control.push_back(bootstrap->control());
    const auto world = LocalWorld::Create(world_options).value();
    std::vector<End> ends(kRanks);
    Barrier created;
    Barrier through;
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        Rank rank(mesh_, world->engine(r), options);
        created.Arrive();
        const Clock::time_point begin = Clock::now();
        ends[r].status = call(r, rank);
        ends[r].took = Clock::now() - begin;
        // No rank leaves before its peers have asked it.
        through.Arrive();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }

  static RedistributorOptions Options(Agreement agreement) {
    return {.agreement = agreement, .timeout = kTimeout};
  }
  void ExpectMissingRankIsNamed(int i) {
    const int missing = i % kRanks;
    const std::vector<End> ends = Run(Options(kAll[i % 3]), [&](int r, Rank& rank) {
      return r == missing ? absl::OkStatus() : rank.Run("f32[8]", "P,P", "R,R");
    });
    bool named = false;
    for (int r = 0; r < kRanks; ++r) {
      ExpectInTime(ends[r]);
      if (r == missing) continue;
      EXPECT_EQ(ends[r].status.code(), absl::StatusCode::kDeadlineExceeded) << ends[r].status;
      named |= ends[r].status.ToString().find("rank " + std::to_string(missing) +
                                              " has not made call 0") != std::string::npos;
    }
    EXPECT_TRUE(named) << ends[(missing + 1) % kRanks].status;
  }
  static void ExpectInTime(const End& end) { EXPECT_LT(end.took, kTimeout + kGrace) << end.status; }

  const DeviceMesh mesh_ = DeviceMesh::Parse("a=2,b=2").value();
};

TEST_F(AgreementTest, RanksThatAgreeRun) {
  for (const Agreement agreement : kAll) {
    const std::vector<End> ends = Run(Options(agreement), [](int, Rank& rank) -> absl::Status {
      for (int i = 0; i < 40; ++i) {
        absl::Status status = rank.Run("f32[8]", "P,R", "R,R");
        if (status.ok()) status = rank.Run("f32[8]", "R,S(0)", "R,R");
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    });
    for (const End& end : ends) EXPECT_TRUE(end.status.ok()) << end.status;
  }
}

// One rank asks for another target: of another size, over other groups, or without any call.
TEST_F(AgreementTest, AnotherTargetIsNamed) {
  const std::string others[] = {"R,S(0)", "S(0),R", "P,S(0)"};
  for (int i = 0; i < kTimes; ++i) {
    const Agreement agreement = kAll[i % 3];
    const int odd = i / 9 % kRanks;
    // With kOff, collectives that do not match fail without naming the plans; "P,S(0)" has none.
    const std::string other = agreement == Agreement::kOff ? others[2] : others[i / 3 % 3];
    const std::vector<End> ends = Run(Options(agreement), [&](int r, Rank& rank) {
      return rank.Run("f32[8]", "P,R", r == odd ? other : "R,R");
    });
    bool named = false;
    for (int r = 0; r < kRanks; ++r) {
      ExpectInTime(ends[r]);
      const std::string text = ends[r].status.ToString();
      named |= ends[r].status.code() == absl::StatusCode::kFailedPrecondition &&
               text.find("a=2,b=2 as P,R -> R,R") != std::string::npos &&
               text.find("-> " + other) != std::string::npos;
      // With kOff, a rank may finish its work before the others notice.
      EXPECT_TRUE(agreement == Agreement::kOff || !ends[r].status.ok()) << r;
    }
    EXPECT_TRUE(named) << ends[0].status << ends[1].status << ends[2].status << ends[3].status;
    if (HasFailure()) break;
  }
}

TEST_F(AgreementTest, AnotherShapeIsNamed) {
  for (int i = 0; i < kTimes; ++i) {
    const Agreement agreement = kAll[i % 3];
    const std::vector<End> ends = Run(Options(agreement), [&](int r, Rank& rank) {
      return rank.Run(r == i % kRanks ? "f32[12]" : "f32[8]", "P,P", "R,R");
    });
    bool named = false;
    for (const End& end : ends) {
      ExpectInTime(end);
      EXPECT_FALSE(end.status.ok());
      const std::string text = end.status.ToString();
      named |= end.status.code() == absl::StatusCode::kFailedPrecondition &&
               text.find("f32[12] on a=2,b=2 as P,P -> R,R") != std::string::npos &&
               text.find("f32[8] on a=2,b=2 as P,P -> R,R") != std::string::npos;
    }
    EXPECT_TRUE(named) << ends[0].status << ends[1].status << ends[2].status << ends[3].status;
    if (HasFailure()) break;
  }
}

// Rank 3 is in neither mesh, but takes part in the agreement.
TEST_F(AgreementTest, RanksInNoMeshOfAPlanAgreeToo) {
  const std::string from = "f32[8] on x=2 as R";
  const std::string to = "f32[8] on y=2@1,2 as S(0)";
  for (const Agreement agreement : kAll) {
    const std::vector<End> ends = Run(Options(agreement), [&](int, Rank& rank) {
      absl::Status status;
      for (int i = 0; i < 20 && status.ok(); ++i) status = rank.Move(from, to);
      return status;
    });
    for (const End& end : ends) EXPECT_TRUE(end.status.ok()) << end.status;
  }
  const std::string other = "f32[8] on y=2@2,1 as S(0)";
  for (const Agreement agreement : {Agreement::kFirstCalls, Agreement::kAlways}) {
    const std::vector<End> ends = Run(Options(agreement), [&](int r, Rank& rank) {
      return rank.Move(from, r == 3 ? other : to);
    });
    for (const End& end : ends) {
      ExpectInTime(end);
      EXPECT_EQ(end.status.code(), absl::StatusCode::kFailedPrecondition) << end.status;
      EXPECT_NE(end.status.ToString().find("on x=2 as R -> S(0) on y=2@2,1"), std::string::npos)
          << end.status;
    }
  }
}

// Lists that are planned together; rank 3 is in no mesh of the tensors.
TEST_F(AgreementTest, ListsOntoAnotherMeshAreCompared) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  const Pairs pairs = {{"f32[8] on x=2 as R", "f32[8] on y=2@1,2 as At(0)"},
                       {"f32[8] on x=2 as R", "f32[8] on y=2@1,2 as At(1)"},
                       {"f32[8] on x=2 as R", "f32[8] on y=2@1,2 as At(1)"}};
  for (const Agreement agreement : kAll) {
    const std::vector<End> ends = Run(Options(agreement), [&](int, Rank& rank) {
      absl::Status status;
      for (int i = 0; i < 20 && status.ok(); ++i) status = rank.MoveList(pairs);
      return status;
    });
    for (const End& end : ends) EXPECT_TRUE(end.status.ok()) << end.status;
  }
  const Pairs other = {pairs[1], pairs[0], pairs[2]};
  for (const Agreement agreement : {Agreement::kFirstCalls, Agreement::kAlways}) {
    const std::vector<End> ends = Run(Options(agreement), [&](int r, Rank& rank) {
      return rank.MoveList(r == 3 ? other : pairs);
    });
    for (const End& end : ends) {
      ExpectInTime(end);
      EXPECT_EQ(end.status.code(), absl::StatusCode::kFailedPrecondition) << end.status;
      EXPECT_NE(end.status.ToString().find("3 plans in one call"), std::string::npos) << end.status;
    }
  }
}

// The senders depend on the topology, which is part of such a plan's fingerprint.
TEST_F(AgreementTest, UnlikeTopologiesAreUnlikePlans) {
  Barrier remade;
  const std::vector<End> ends = Run(Options(Agreement::kAlways), [&](int r, Rank& rank) {
    RedistributorOptions options = Options(Agreement::kAlways);
    if (r == 3) options.planning.topology = Topology::Parse("nvlink=2").value();
    rank.Remake(options);
    remade.Arrive();
    return rank.Move("f32[8] on x=2 as R", "f32[8] on y=2@2-3 as S(0)");
  });
  for (const End& end : ends) {
    ExpectInTime(end);
    EXPECT_EQ(end.status.code(), absl::StatusCode::kFailedPrecondition) << end.status;
    EXPECT_NE(end.status.ToString().find(", topology nvlink=2"), std::string::npos) << end.status;
  }
}

TEST_F(AgreementTest, ALateRankIsWaitedFor) {
  for (int i = 0; i < kTimes; ++i) {
    const std::vector<End> ends = Run(Options(kAll[i % 3]), [&](int r, Rank& rank) {
      if (r == i % kRanks) std::this_thread::sleep_for(milliseconds(5));
      return rank.Run("f32[8]", "P,P", "R,R");
    });
    for (const End& end : ends) EXPECT_TRUE(end.status.ok()) << end.status;
    if (HasFailure()) break;
  }
}

// Ten worlds at a time, since each test waits for the time-out.
TEST_F(AgreementTest, ARankThatNeverCallsIsNamed) {
  constexpr int kWorlds = 10;
  std::vector<std::thread> worlds;
  for (int w = 0; w < kWorlds; ++w) {
    worlds.emplace_back([&, w] {
      for (int i = w; i < kTimes && !HasFailure(); i += kWorlds) ExpectMissingRankIsNamed(i);
    });
  }
  for (std::thread& world : worlds) world.join();
}

TEST_F(AgreementTest, AbortReachesPeersThatAwait) {
  for (const Agreement agreement : kAll) {
    const RedistributorOptions options{.agreement = agreement, .timeout = std::chrono::minutes(5)};
    const std::vector<End> ends = Run(options, [&](int r, Rank& rank) -> absl::Status {
      if (r == 1) {
        rank.redistribute().Abort();
        return absl::OkStatus();
      }
      return rank.Run("f32[8]", "P,P", "R,R");
    });
    for (int r = 0; r < kRanks; ++r) {
      ExpectInTime(ends[r]);
      EXPECT_EQ(ends[r].status.ok(), r == 1);
    }
  }
}

TEST_F(AgreementTest, AbortEndsThisRanksOwnWaiting) {
  const RedistributorOptions options{.agreement = Agreement::kAlways,
                                     .timeout = std::chrono::minutes(5)};
  const std::vector<End> ends = Run(options, [&](int r, Rank& rank) -> absl::Status {
    if (r != 1) return absl::OkStatus();
    std::thread aborter([&] {
      std::this_thread::sleep_for(milliseconds(20));
      rank.redistribute().Abort();
    });
    absl::Status status = rank.Run("f32[8]", "P,P", "R,R");
    aborter.join();
    return status;
  });
  ExpectInTime(ends[1]);
  EXPECT_EQ(ends[1].status.ToString(), "ABORTED: the redistributor was aborted");
}

// Prepare() counts as a call.
TEST_F(AgreementTest, PreparationsAreCompared) {
  const std::vector<End> ends =
      Run(Options(Agreement::kFirstCalls), [&](int r, Rank& rank) -> absl::Status {
        const Sharding from = Sharding::Parse("f32[8]", mesh_, "P,R").value();
        const Sharding to = from.WithPlacements(r == 2 ? "S(0),R" : "R,R").value();
        return rank.redistribute().Prepare(from, to).status();
      });
  for (const End& end : ends) {
    ExpectInTime(end);
    EXPECT_FALSE(end.status.ok());
  }
}

}  // namespace
}  // namespace meshift
