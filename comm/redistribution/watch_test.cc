// The redistributor's watchdog: it ends calls that take too long although no thread waits for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/record/dump_reader.h"
#include "meshift/bootstrap.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/local_world.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/tensor_view.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int64_t kRanks = 2;

class WatchTest : public testing::Test {
 protected:
  void Make(const Timeouts& timeouts, RecordOptions record = {.dump_folder = Folder()}) {
    std::vector<ControlChannel*> control;
    for (const auto& peer : peers_) control.push_back(peer->control());
    world_ = LocalWorld::Create({.num_ranks = kRanks, .control = control}).value();
    ASSERT_TRUE(world_->engine(0)->SetTimeouts(timeouts).ok());
    for (int64_t r = 0; r < kRanks; ++r) {
      ASSERT_TRUE(world_->engine(r)->SetRecord(record).ok());
      redistribute_[r] =
          Redistributor::Create(mesh_, world_->engine(r), {.agreement = Agreement::kOff}).value();
    }
  }
  absl::StatusOr<RunHandle> Call(int64_t rank, Stream* after = nullptr) {
    std::vector<float>& data = data_[rank];
    return (*redistribute_[rank])(
        {.from = from_,
         .to = to_,
         .source = TensorView::Contiguous(data.data(), DType::kF32, {8}),
         .target = TensorView::Contiguous(data.data() + 8, DType::kF32, {8}),
         .after = after});
  }
  // Makes refused calls of the rank until one returns its failure. Returns that, or OK after
  // `limit`.
  absl::Status AwaitFailure(int64_t rank, milliseconds limit) {
    const auto end = Clock::now() + limit;
    while (Clock::now() < end) {
      // A refusal as long as nothing has failed, else the failure.
      const absl::Status status =
          (*redistribute_[rank])(
              {.from = from_, .to = to_, .source = TensorView(), .target = TensorView()})
              .status();
      if (status.code() != absl::StatusCode::kInvalidArgument) return status;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return absl::OkStatus();
  }
  static std::string Folder() {
    return testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  static std::string Read(int64_t rank) {
    const std::string end = "rank0000" + std::to_string(rank) + ".json";
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(Folder(), error)) {
      const std::string name = entry.path().string();
      if (name.size() < end.size() || name.substr(name.size() - end.size()) != end) continue;
      std::ifstream file(name);
      return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
    return "";
  }
  static bool Has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }

  const DeviceMesh mesh_ = DeviceMesh::Parse("a=2").value();
  const Sharding from_ = Sharding::Parse("f32[8]", mesh_, "P").value();
  const Sharding to_ = from_.WithPlacements("R").value();
  const std::vector<std::unique_ptr<Bootstrap>> peers_ = Bootstrap::InProcess(kRanks).value();
  std::vector<float> data_[kRanks] = {std::vector<float>(16, 1), std::vector<float>(16, 1)};
  std::unique_ptr<LocalWorld> world_;
  std::optional<Redistributor> redistribute_[kRanks];
};

TEST_F(WatchTest, ARankThatDoesNotCallIsNamed) {
  Make(Timeouts::Of(milliseconds(400)));
  for (int64_t r = 0; r < kRanks; ++r) ASSERT_TRUE(Call(r).ok());
  const auto begin = Clock::now();
  ASSERT_TRUE(Call(0).ok());  // its handle is dropped
  for (const int64_t rank : {0, 1}) {
    const absl::Status status = AwaitFailure(rank, milliseconds(2400));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << rank;
    EXPECT_TRUE(Has(Message(status), "call 1 of the redistributor of ranks 0-1 #0")) << status;
    EXPECT_TRUE(Has(Message(status), "has not ended for 400 ms")) << status;
    EXPECT_TRUE(Has(Message(status), "rank 1 has not made call 1; it has made only 1 call"))
        << status;
    // The record is written before the error is returned.
    const std::string dump = Read(rank);
    EXPECT_TRUE(Has(dump, R"("code":"DEADLINE_EXCEEDED")")) << dump;
    EXPECT_EQ(Has(dump, R"(,0,1,0,"in_flight")"), rank == 0) << dump;
    EXPECT_TRUE(Has(dump, R"(,0,0,0,"ended")")) << dump;
    EXPECT_TRUE(Has(dump, R"("all_reduce","f32",8,8,)")) << dump;
  }
  EXPECT_GE(Clock::now() - begin, milliseconds(400));
}

TEST_F(WatchTest, TimeCountsFromWhenACallCouldRun) {
  Make(Timeouts::Of(milliseconds(400)));
  std::unique_ptr<Stream> producers[kRanks];
  float value[kRanks] = {1, 1};
  const auto produce = [&](int64_t rank) {
    Engine* const engine = world_->engine(rank);
    return engine->world()->AllReduce(&value[rank], &value[rank], 1, DType::kF32, {},
                                      *producers[rank]);
  };
  for (int64_t r = 0; r < kRanks; ++r) producers[r] = world_->engine(r)->CreateStream().value();
  ASSERT_TRUE(produce(0).ok());
  RunHandle runs[kRanks];
  for (int64_t r = 0; r < kRanks; ++r) runs[r] = Call(r, producers[r].get()).value();
  // Rank 0's call waits for its producer, and rank 1's for rank 0. The producer is late.
  ASSERT_TRUE(world_->engine(0)->SetTimeouts(Timeouts::Of(milliseconds(2000))).ok());
  std::this_thread::sleep_for(milliseconds(1200));
  ASSERT_TRUE(world_->engine(0)->SetTimeouts(Timeouts::Of(milliseconds(1000))).ok());
  ASSERT_TRUE(produce(1).ok());
  EXPECT_TRUE(runs[0].Wait().ok());
}

TEST_F(WatchTest, FirstCallsAreOfThePhaseOfSetup) {
  Make({.setup = std::chrono::minutes(10), .running = milliseconds(200)});
  ASSERT_TRUE(Call(0).ok());
  EXPECT_TRUE(AwaitFailure(0, milliseconds(600)).ok());
  ASSERT_TRUE(Call(1).ok());
  ASSERT_TRUE(Call(0).ok());
  EXPECT_EQ(AwaitFailure(0, milliseconds(2200)).code(), absl::StatusCode::kDeadlineExceeded);
}

// The call is held while it is issued, by the agreement, whose own limit is long.
TEST_F(WatchTest, ACallThatIsHeldWhileItIsIssuedEndsToo) {
  Make(Timeouts::Of(milliseconds(300)));
  redistribute_[0] =
      Redistributor::Create(mesh_, world_->engine(0),
                            {.agreement = Agreement::kAlways, .timeout = std::chrono::minutes(10)})
          .value();
  redistribute_[1] = Redistributor::Create(mesh_, world_->engine(1)).value();
  const auto begin = Clock::now();
  const absl::Status status = Call(0).status();
  EXPECT_LT(Clock::now() - begin, milliseconds(2300));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Has(Message(status), "is still being issued after 300 ms")) << status;
  EXPECT_TRUE(Has(Read(0), R"("issuing")"));
}

TEST_F(WatchTest, APeersErrorEndsACallAtOnceAndIsWritten) {
  Make({});
  ASSERT_TRUE(Call(0).ok());
  redistribute_[1]->Abort();
  const absl::Status status = AwaitFailure(0, milliseconds(1000));
  EXPECT_EQ(Message(status), "rank 1 has failed: the redistributor was aborted");
  EXPECT_TRUE(Has(Read(0), R"("in_flight")"));
  EXPECT_TRUE(Has(Read(0), "rank 1 has failed"));
  EXPECT_TRUE(Has(Read(1), R"("code":"ABORTED")"));
}

TEST_F(WatchTest, NothingIsWrittenWithoutAFolderAndDumpSaysSo) {
  Make({}, {});
  ASSERT_TRUE(Call(0).ok());
  redistribute_[0]->Abort();
  EXPECT_EQ(Message(world_->engine(0)->Dump().status()),
            "no folder is given to write the record of rank 0 to");
  EXPECT_EQ(Read(0), "");
  const absl::StatusOr<std::string> path = world_->engine(0)->Dump(Folder());
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(Has(Read(0), R"("code":"ABORTED")"));
}

TEST_F(WatchTest, AFileTriggersADump) {
  const std::string trigger = testing::TempDir() + "/trigger";
  std::remove(trigger.c_str());
  Make({}, {.dump_folder = Folder(), .trigger_file = trigger});
  for (int64_t r = 0; r < kRanks; ++r) ASSERT_TRUE(Call(r).ok());
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(Read(0), "");
  std::ofstream(trigger) << "now";
  const auto end = Clock::now() + milliseconds(3000);
  while (Read(0).empty() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(Has(Read(0), R"("failure":null)"));
}

TEST_F(WatchTest, TheLast2000CallsAreRemembered) {
  Make({});
  for (int call = 0; call < 2100; ++call) {
    RunHandle runs[kRanks];
    for (int64_t r = 0; r < kRanks; ++r) runs[r] = Call(r).value();
    for (const RunHandle& run : runs) ASSERT_TRUE(run.Wait().ok());
  }
  ASSERT_TRUE(world_->engine(0)->Dump().ok());
  const DumpFile file = ReadDump(Read(0)).value();
  ASSERT_EQ(file.calls.size(), 2000);
  EXPECT_EQ(file.calls.front().call, 100);
  EXPECT_EQ(file.calls.back().call, 2099);
}

// The elements that each collective of a call sends and receives.
TEST_F(WatchTest, StepsAreRemembered) {
  Make({});
  const std::pair<const char*, const char*> pairs[] = {
      {"P", "R"}, {"P", "S(0)"}, {"S(0)", "R"}, {"S(0)", "S(1)"}};
  constexpr int64_t kElements = int64_t{1} << 20;
  std::vector<std::vector<float>> data(kRanks, std::vector<float>(2 * kElements, 1));
  for (const auto& [from, to] : pairs) {
    const Sharding source = Sharding::Parse("f32[1024,1024]", mesh_, from).value();
    const Sharding target = source.WithPlacements(to).value();
    RunHandle runs[kRanks];
    for (int64_t r = 0; r < kRanks; ++r) {
      runs[r] = (*redistribute_[r])(
                    {.from = source,
                     .to = target,
                     .source = TensorView::Contiguous(data[r].data(), DType::kF32,
                                                      source.LocalBox(r).size),
                     .target = TensorView::Contiguous(data[r].data() + kElements, DType::kF32,
                                                      target.LocalBox(r).size)})
                    .value();
    }
    for (const RunHandle& run : runs) ASSERT_TRUE(run.Wait().ok());
  }
  ASSERT_TRUE(world_->engine(0)->Dump().ok());
  const DumpFile file = ReadDump(Read(0)).value();
  ASSERT_EQ(file.calls.size(), 4);
  std::vector<std::string> steps;
  for (const DumpFile::Call& call : file.calls) {
    const DumpFile::Plan& plan = file.plans.at(static_cast<size_t>(call.plan));
    EXPECT_EQ(plan.groups, std::vector<std::string>{"0-1"});
    for (const DumpFile::Step& step : plan.steps) {
      EXPECT_EQ(step.dtype, "f32");
      steps.push_back(step.op + " " + std::to_string(step.count_in) + " " +
                      std::to_string(step.count_out) + " " + std::to_string(step.group));
    }
  }
  EXPECT_EQ(steps, (std::vector<std::string>{
                       "all_reduce 1048576 1048576 0", "reduce_scatter 1048576 524288 0",
                       "all_gather 524288 1048576 0", "send_recv 262144 262144 0"}));
}

// Signal handlers are left to the program.
TEST_F(WatchTest, NoSignalHandlerIsInstalled) {
  Make(Timeouts::Of(milliseconds(200)));
  ASSERT_TRUE(Call(0).ok());
  EXPECT_FALSE(AwaitFailure(0, milliseconds(2200)).ok());
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGABRT, SIGALRM}) {
    struct sigaction action = {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, SIG_DFL) << signal;
  }
}

TEST_F(WatchTest, EndedCallsAndRareEventsAreTold) {
  Mutex mutex;
  std::vector<std::string> ended;
  std::vector<std::string> logged;
  RecordOptions record;
  record.on_ended = [&](const EndedCall& call) {
    const MutexLock lock(mutex);
    EXPECT_GE(call.ns, 0);
    ended.push_back(std::to_string(call.call) + " " + std::string(call.groups) + " " +
                    std::to_string(call.bytes));
  };
  record.on_log = [&](const LogEvent& event) {
    const MutexLock lock(mutex);
    EXPECT_GE(event.ns, 0);
    logged.push_back(std::to_string(static_cast<int>(event.kind)) + " " + std::string(event.text));
  };
  Make({}, record);
  for (int call = 0; call < 2; ++call) {
    RunHandle runs[kRanks];
    for (int64_t r = 0; r < kRanks; ++r) runs[r] = Call(r).value();
    for (const RunHandle& run : runs) ASSERT_TRUE(run.Wait().ok());
  }
  redistribute_[0]->Abort();
  std::this_thread::sleep_for(milliseconds(50));
  const auto end = Clock::now() + milliseconds(3000);
  const auto told = [&] {
    const MutexLock lock(mutex);
    return ended.size();
  };
  while (told() < 4 && Clock::now() < end) std::this_thread::sleep_for(milliseconds(10));
  const MutexLock lock(mutex);
  EXPECT_EQ(std::count(ended.begin(), ended.end(), "0 {0-1} 32"), 2);
  EXPECT_EQ(std::count(ended.begin(), ended.end(), "1 {0-1} 32"), 2);
  const auto count = [&](LogEvent::Kind kind, const std::string& text) {
    return std::count(logged.begin(), logged.end(),
                      std::to_string(static_cast<int>(kind)) + " " + text);
  };
  EXPECT_EQ(count(LogEvent::Kind::kRedistributor, "ranks 0-1 #0"), 2);
  EXPECT_EQ(count(LogEvent::Kind::kAbort, "the redistributor was aborted"), 1);
  EXPECT_EQ(count(LogEvent::Kind::kAbort, "rank 0 has failed: the redistributor was aborted"), 1);
}

TEST_F(WatchTest, ATimeOutAndTheRecordThatIsWrittenAreTold) {
  Mutex mutex;
  std::vector<LogEvent> logged;
  std::list<std::string> texts;
  RecordOptions record = {.dump_folder = Folder()};
  record.on_log = [&](const LogEvent& event) {
    const MutexLock lock(mutex);
    texts.emplace_back(event.text);
    logged.push_back({.kind = event.kind, .text = texts.back(), .ns = event.ns});
  };
  Make(Timeouts::Of(milliseconds(300)), record);
  ASSERT_TRUE(Call(0).ok());
  for (int64_t r = 0; r < kRanks; ++r) {
    EXPECT_EQ(AwaitFailure(r, milliseconds(2400)).code(), absl::StatusCode::kDeadlineExceeded);
  }
  for (auto& redistribute : redistribute_) redistribute.reset();
  const MutexLock lock(mutex);
  int timeouts = 0;
  int dumps = 0;
  for (const LogEvent& event : logged) {
    if (event.kind == LogEvent::Kind::kTimeout) {
      ++timeouts;
      EXPECT_TRUE(Has(event.text, "call 0 of the redistributor of ranks 0-1 #0")) << event.text;
      EXPECT_GE(event.ns, 300'000'000);
    } else if (event.kind == LogEvent::Kind::kDump) {
      ++dumps;
      EXPECT_TRUE(Has(event.text, Folder() + "/meshift-")) << event.text;
    }
  }
  EXPECT_EQ(timeouts, 1) << "by the rank that made the call";
  EXPECT_EQ(dumps, kRanks);
}

TEST_F(WatchTest, OptionsComeBeforeTheFirstRedistributor) {
  Make({});
  EXPECT_EQ(world_->engine(0)->SetRecord({}).code(), absl::StatusCode::kFailedPrecondition);
  auto other = LocalWorld::Create({.num_ranks = 1}).value();
  EXPECT_EQ(Message(other->engine(0)->SetRecord({.calls = -1})),
            "cannot record -1 calls; expected 0 to 1000000");
  EXPECT_EQ(other->engine(0)->Dump().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace meshift
