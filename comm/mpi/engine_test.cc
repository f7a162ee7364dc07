// Tests of the MPI engine beyond the conformance tests: progress while no thread waits, time-outs
// and aborts across processes, tags of groups, split messages. For two ranks or more.
#include "meshift/engine.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "comm/control/interfaces.h"
#include "comm/mpi/requests.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/mpi_engine.h"
#include "meshift/plan.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "testing/internal/mpi/world.h"
#include "testing/internal/stopwatch.h"

namespace meshift {
namespace {

using Clock = std::chrono::steady_clock;

// With bounded waits and without.
class MpiEngineTest : public testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<Engine> MakeEngine(
      std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    auto engine = CreateMpiEngine({.timeout = timeout, .bounded_waits = GetParam()});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }
};

std::vector<bool> Waits() {
  return MpiSession::HasThreads() ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

INSTANTIATE_TEST_SUITE_P(BoundedWaits, MpiEngineTest, testing::ValuesIn(Waits()));

// The hub is where the variable says; without it on loopback, where all ranks share a host.
TEST(MpiBootstrapTest, RanksMeetOnTheInterfaceThatIsNamed) {
  const auto meet = [](const char* interfaces) {
    if (interfaces == nullptr) {
      unsetenv("MESHIFT_SOCKET_IFNAME");
    } else {
      setenv("MESHIFT_SOCKET_IFNAME", interfaces, 1);
    }
    return MpiBootstrap(std::chrono::seconds(20));
  };
  const auto expect_to_meet = [&](const char* interfaces, const std::string& host) {
    const auto bootstrap = meet(interfaces);
    ASSERT_TRUE(bootstrap.ok()) << bootstrap.status();
    EXPECT_TRUE((*bootstrap)->Exchange("").ok());
    if (WorldRank() > 0) return;
    EXPECT_NE((*bootstrap)->address().find("@" + host + ":"), std::string::npos)
        << (*bootstrap)->address();
  };
  expect_to_meet(nullptr, "127.0.0.1");
  const absl::StatusOr<std::vector<std::string>> others = InterfaceAddresses("^lo");
  if (others.ok()) expect_to_meet("^lo", others->front());
  const std::string error = Message(meet("=nosuch0").status());
  unsetenv("MESHIFT_SOCKET_IFNAME");
  const std::string reason = "no interface that is up matches '=nosuch0'; known interfaces: ";
  EXPECT_EQ(error.rfind(
                (WorldRank() == 0 ? "" : "rank 0 could not open the hub of the job: ") + reason, 0),
            0)
      << error;
}

TEST_P(MpiEngineTest, PlansNameTheEngine) {
  const auto engine = MakeEngine();
  const DeviceMesh mesh = DeviceMesh::Create({{"a", WorldSize()}}).value();
  const Sharding from = Sharding::Parse("f32[4]", mesh, "P").value();
  Redistributor redistribute = Redistributor::Create(mesh, engine.get()).value();
  const absl::StatusOr<Plan> plan = redistribute.Prepare(from, from.WithPlacements("R").value());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->options().engine.name(), "mpi");
}

TEST_P(MpiEngineTest, GoesOnWhileNobodyWaits) {
  const auto engine = MakeEngine();
  const auto stream = engine->CreateStream().value();
  // A small call, and one too large to run at once on the calling thread.
  for (const int64_t count : {1, 1 << 20}) {
    std::vector<float> data(count, 1.0F);
    ASSERT_TRUE(
        engine->world()->AllReduce(data.data(), data.data(), count, DType::kF32, {}, *stream).ok());
    const auto event = engine->Record(*stream).value();
    const auto end = Clock::now() + std::chrono::seconds(20);
    CallerProgress* const callers = engine->caller_progress();
    EXPECT_EQ(callers == nullptr, MpiSession::HasThreads());
    while (event->ReachedNs() < 0 && Clock::now() < end) {
      if (callers != nullptr) callers->Advance();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_GE(event->ReachedNs(), 0) << count;
    EXPECT_EQ(data.back(), static_cast<float>(WorldSize()));
  }
  EXPECT_TRUE(engine->Synchronize(*stream).ok());
}

// A wait for one operation ends although another cannot.
TEST_P(MpiEngineTest, WaitsForItsOwnOperationOnly) {
  const auto engine = MakeEngine();
  const std::vector<int64_t> pair = {0, 1};
  std::shared_ptr<Communicator> group;
  if (WorldRank() < 2) {
    group = engine->Split(*engine->world(), pair, 0, {}).value();
  } else {
    ASSERT_TRUE(engine->SplitNoColor(*engine->world()).ok());
  }
  const auto slow = engine->CreateStream().value();
  const auto quick = engine->CreateStream().value();
  float late = 1;
  float early = 1;
  const bool first = WorldRank() == 0;
  const auto reduce_late = [&] {
    return engine->world()->AllReduce(&late, &late, 1, DType::kF32, {}, *slow);
  };
  EXPECT_TRUE(!first || reduce_late().ok());
  if (group != nullptr) {
    ASSERT_TRUE(group->AllReduce(&early, &early, 1, DType::kF32, {}, *quick).ok());
    ASSERT_TRUE(engine->Synchronize(*quick).ok());
    EXPECT_EQ(early, 2);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_TRUE(first || reduce_late().ok());
  ASSERT_TRUE(engine->Synchronize(*slow).ok());
  EXPECT_EQ(late, static_cast<float>(WorldSize()));
}

TEST_P(MpiEngineTest, ATimeOutNamesTheGroupTheCallAndWhoIsMissing) {
  const auto engine = MakeEngine(std::chrono::milliseconds(200));
  const auto stream = engine->CreateStream().value();
  std::vector<float> data(100, 1.0F);
  if (WorldRank() > 0) {
    const auto reduce = [&] {
      return engine->world()->AllReduce(data.data(), data.data(), 100, DType::kF32, {}, *stream);
    };
    ASSERT_TRUE(reduce().ok());
    const Stopwatch stopwatch;
    const absl::Status status = engine->Synchronize(*stream);
    EXPECT_LT(stopwatch.Took(), std::chrono::seconds(10));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_NE(Message(status).find("all_reduce of 100 f32 (call 0) has waited 200 ms for rank 0"),
              std::string::npos)
        << status;
    EXPECT_EQ(engine->world()->Health(), status);
    EXPECT_EQ(reduce(), status);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// The first collective of a group has the setup time-out, the second the running time-out.
TEST_P(MpiEngineTest, TimeoutsAreOfTwoPhasesAndAreSetWhileItWaits) {
  const auto engine = MakeEngine(std::chrono::minutes(10));
  EXPECT_EQ(engine->timeouts(), Timeouts::Of(std::chrono::minutes(10)));
  const auto stream = engine->CreateStream().value();
  float data = 1;
  const auto reduce = [&] {
    return engine->world()->AllReduce(&data, &data, 1, DType::kF32, {}, *stream);
  };
  ASSERT_TRUE(engine->SetTimeouts({.running = std::chrono::milliseconds(20)}).ok());
  if (WorldRank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_TRUE(reduce().ok());
  EXPECT_TRUE(engine->Synchronize(*stream).ok());
  ASSERT_TRUE(engine->SetTimeouts(Timeouts::Of(std::chrono::minutes(10))).ok());
  if (WorldRank() > 0) {
    std::thread setter([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_TRUE(engine->SetTimeouts({.running = std::chrono::milliseconds(100)}).ok());
    });
    ASSERT_TRUE(reduce().ok());
    const Stopwatch stopwatch;
    EXPECT_EQ(engine->Synchronize(*stream).code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_LT(stopwatch.Took(), std::chrono::seconds(10));
    setter.join();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_P(MpiEngineTest, AbortEndsAWaitOfAnotherThread) {
  const auto engine = MakeEngine();
  const auto stream = engine->CreateStream().value();
  std::vector<float> data(1 << 20, 1.0F);
  if (WorldRank() > 0) {
    ASSERT_TRUE(engine->world()
                    ->AllReduce(data.data(), data.data(), 1 << 20, DType::kF32, {}, *stream)
                    .ok());
    std::thread thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      engine->world()->Abort();
    });
    EXPECT_EQ(engine->Synchronize(*stream).code(), absl::StatusCode::kAborted);
    thread.join();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_P(MpiEngineTest, AMemberThatSendsAnotherSizeIsNamed) {
  const auto engine = MakeEngine();
  const auto stream = engine->CreateStream().value();
  std::vector<float> data(200, 1.0F);
  const int64_t count = WorldRank() == 0 ? 100 : 101;
  ASSERT_TRUE(
      engine->world()->AllReduce(data.data(), data.data(), count, DType::kF32, {}, *stream).ok());
  const absl::Status status = engine->Synchronize(*stream);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(Message(status).find("it made another call"), std::string::npos) << status;
  MPI_Barrier(MPI_COMM_WORLD);
}

// The world can be split, and its groups once more: tags have two levels.
TEST_P(MpiEngineTest, SplitsTwice) {
  const auto engine = MakeEngine();
  std::vector<int64_t> all(WorldSize());
  std::iota(all.begin(), all.end(), 0);
  const auto root = engine->Split(*engine->world(), all, 0, {}).value();
  const auto part = engine->Split(*root, all, 0, {}).value();
  EXPECT_EQ(engine->Split(*part, all, 0, {}).status().code(), absl::StatusCode::kUnimplemented);
  const auto stream = engine->CreateStream().value();
  // Three collectives at once; each group has its own tags.
  std::vector<float> data = {1, 10, 100};
  for (int i = 0; i < 3; ++i) {
    Communicator* const group = i == 0 ? engine->world() : i == 1 ? root.get() : part.get();
    ASSERT_TRUE(group->AllReduce(&data[i], &data[i], 1, DType::kF32, {}, *stream).ok());
  }
  ASSERT_TRUE(engine->Synchronize(*stream).ok());
  const auto n = static_cast<float>(WorldSize());
  EXPECT_EQ(data, (std::vector<float>{n, 10 * n, 100 * n}));
}

// Copies, then messages that share memory with them in random ways. The result is that of running
// them one after another, although messages may begin before independent copies.
TEST_P(MpiEngineTest, MessagesBeginAfterTheCopiesThatTheyNeed) {
  constexpr int64_t kSlots = 10;
  constexpr int64_t kCount = 16 << 10;  // elements of a slot, of which a strided copy takes half
  const auto engine = MakeEngine();
  const auto stream = engine->CreateStream().value();
  const int size = WorldSize();
  const int next = (WorldRank() + 1) % size;
  const int last = (WorldRank() + size - 1) % size;
  std::mt19937 random(7);  // the same on all ranks
  const auto arena_of = [&](int rank, int round) {
    std::vector<int32_t> arena(kSlots * kCount);
    for (size_t i = 0; i < arena.size(); ++i) {
      arena[i] = static_cast<int32_t>(i) * 64 + rank * 8 + round % 8;
    }
    return arena;
  };
  for (int round = 0; round < 100; ++round) {
    std::vector<int64_t> slots(kSlots);
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), random);
    const int64_t send = random() % kSlots;
    const int64_t recv = (send + 1 + random() % (kSlots - 1)) % kSlots;
    const int64_t copies = 1 + random() % 5;
    const auto add_copies = [&](int32_t* arena, std::vector<BoxCopy>* boxes) {
      for (int64_t c = 0; c < copies; ++c) {
        // No copy reads or writes what another one writes.
        int32_t* const src = arena + slots[kSlots - 1 - c] * kCount;
        int32_t* const dst = arena + slots[c] * kCount;
        const bool strided = c % 2 == 1;
        boxes->push_back({src,
                          dst,
                          strided ? Shape{kCount / 2} : Shape{kCount},
                          {strided ? 2 : 1},
                          {strided ? -2 : 1}});
        if (strided) boxes->back().dst = dst + kCount - 1;
      }
    };
    const auto copied = [&](int rank) {
      std::vector<int32_t> arena = arena_of(rank, round);
      std::vector<BoxCopy> boxes;
      add_copies(arena.data(), &boxes);
      for (const BoxCopy& box : boxes) {
        for (int64_t i = 0; i < box.shape[0]; ++i) {
          static_cast<int32_t*>(box.dst)[i * box.dst_strides[0]] =
              static_cast<const int32_t*>(box.src)[i * box.src_strides[0]];
        }
      }
      return arena;
    };
    std::vector<int32_t> expected = copied(WorldRank());
    const std::vector<int32_t> theirs = copied(last);
    std::copy_n(theirs.begin() + send * kCount, kCount, expected.begin() + recv * kCount);

    std::vector<int32_t> arena = arena_of(WorldRank(), round);
    std::vector<BoxCopy> boxes;
    add_copies(arena.data(), &boxes);
    const PeerMessage out{next, arena.data() + send * kCount, kCount};
    const PeerMessage in{last, arena.data() + recv * kCount, kCount};
    ASSERT_TRUE(engine->CopyBoxes(boxes, DType::kI32, *stream).ok());
    ASSERT_TRUE(engine->world()->SendRecv({&out, 1}, {&in, 1}, DType::kI32, *stream).ok());
    const absl::Status status = engine->Synchronize(*stream);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(arena == expected) << "round " << round;
  }
}

TEST_P(MpiEngineTest, RefusesANegativeCache) {
  const auto engine = CreateMpiEngine({.bounded_waits = GetParam(), .cache_bytes = -1});
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(engine.status().message().find("cache_bytes is -1"), std::string::npos)
      << engine.status();
}

// Blocks of 4 MiB and more with three cache sizes: the call does not fit, so the own block is
// copied first; the call fits but the block is large; all fits.
TEST_P(MpiEngineTest, LargeBlocksArriveByWhicheverWay) {
  const int n = WorldSize();
  const int me = WorldRank();
  constexpr int64_t kCount = (1 << 20) + 3;
  const auto value = [](int from, int to, int64_t i) {
    return static_cast<int32_t>(i * 16 + from * 4 + to);
  };
  const auto is_right = [&](absl::Span<const int32_t> block, int from, int to) {
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] != value(from, to, static_cast<int64_t>(i))) return false;
    }
    return true;
  };
  for (const int64_t cache_bytes : {int64_t{0}, int64_t{128} << 20, int64_t{1} << 40}) {
    auto engine = CreateMpiEngine({.timeout = std::chrono::seconds(20),
                                   .bounded_waits = GetParam(),
                                   .cache_bytes = cache_bytes});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const auto stream = (*engine)->CreateStream().value();
    Communicator& world = *(*engine)->world();
    std::vector<int64_t> counts;  // of blocks of different sizes
    for (int rank = 0; rank < n; ++rank) counts.push_back(kCount + rank);
    std::vector<int32_t> own(kCount + me);
    for (size_t i = 0; i < own.size(); ++i) own[i] = value(me, 0, static_cast<int64_t>(i));
    std::vector<int32_t> sent;
    for (int to = 0; to < n; ++to) {
      for (int64_t i = 0; i < kCount; ++i) sent.push_back(value(me, to, i));
    }
    std::vector<int32_t> gathered(n * kCount);
    std::vector<int32_t> ragged(n * kCount + n * (n - 1) / 2);
    std::vector<int32_t> exchanged(n * kCount);
    for (int round = 0; round < 2; ++round) {
      std::fill(gathered.begin(), gathered.end(), -1);
      std::fill(ragged.begin(), ragged.end(), -1);
      std::fill(exchanged.begin(), exchanged.end(), -1);
      ASSERT_TRUE(world.AllGather(own.data(), gathered.data(), kCount, DType::kI32, *stream).ok());
      ASSERT_TRUE(world.AllGatherV(own.data(), ragged.data(), counts, DType::kI32, *stream).ok());
      ASSERT_TRUE(world.AllToAll(sent.data(), exchanged.data(), kCount, DType::kI32, *stream).ok());
      const absl::Status status = (*engine)->Synchronize(*stream);
      ASSERT_TRUE(status.ok()) << status;
      int64_t begin = 0;
      for (int from = 0; from < n; ++from) {
        EXPECT_TRUE(is_right({gathered.data() + from * kCount, kCount}, from, 0)) << from;
        EXPECT_TRUE(is_right({ragged.data() + begin, static_cast<size_t>(counts[from])}, from, 0));
        EXPECT_TRUE(is_right({exchanged.data() + from * kCount, kCount}, from, me)) << from;
        begin += counts[from];
      }
    }
  }
}

// A small tensor goes to the root at once, a larger one in segments; of a large one all members
// reduce parts.
TEST_P(MpiEngineTest, ReductionsToOneMemberAddInTheOrderOfRanks) {
  const int n = WorldSize();
  const int me = WorldRank();
  const auto value = [](int rank, int64_t i) {
    return static_cast<float>((i * 31 + rank * 7) % 1000) * 0.1F;
  };
  auto engine = CreateMpiEngine({.timeout = std::chrono::seconds(20), .bounded_waits = GetParam()});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto stream = (*engine)->CreateStream().value();
  for (const int64_t count : {int64_t{1}, int64_t{1} << 15, int64_t{(3 << 20) + 1}}) {
    for (int root = 0; root < n; ++root) {
      std::vector<int64_t> counts(n, 0);
      counts[root] = count;
      std::vector<float> in(count);
      for (int64_t i = 0; i < count; ++i) in[i] = value(me, i);
      std::vector<float> out(me == root ? count : 0, -1.0F);
      // A second call begins before the first has ended.
      for (int call = 0; call < 2; ++call) {
        ASSERT_TRUE((*engine)
                        ->world()
                        ->ReduceScatterV(in.data(), out.data(), counts, DType::kF32, {}, *stream)
                        .ok());
      }
      const absl::Status status = (*engine)->Synchronize(*stream);
      ASSERT_TRUE(status.ok()) << status;
      int64_t wrong = 0;
      for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
        float sum = value(0, i);
        for (int rank = 1; rank < n; ++rank) sum += value(rank, i);
        wrong += out[i] == sum ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << count << " elements to " << root;
    }
  }
}

TEST(RequestsTest, LongMessagesGoInPieces) {
  constexpr int64_t kPiece = 1000;
  constexpr int kTag = 5;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const int rank = WorldRank();
  const int next = (rank + 1) % WorldSize();
  const int last = (rank + WorldSize() - 1) % WorldSize();
  for (const int64_t bytes : {0, 1, 999, 1000, 1001, 10000, 12345}) {
    Requests requests(comm, kPiece);
    std::vector<uint8_t> out(bytes);
    std::vector<uint8_t> in(bytes);
    for (int64_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(rank * 50 + i * 7 + i / 256);
    ASSERT_TRUE(requests.Receive(in.data(), bytes, last, kTag).ok());
    ASSERT_TRUE(requests.Send(out.data(), bytes, next, kTag).ok());
    for (bool done = false; !done;) ASSERT_TRUE(requests.Test(&done).ok());
    for (int64_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(in[i], static_cast<uint8_t>(last * 50 + i * 7 + i / 256)) << i;
    }
    EXPECT_TRUE(requests.empty());
  }
  // A missing message's sender is named, and the receive can be cancelled.
  Requests requests(comm);
  uint8_t byte = 0;
  ASSERT_TRUE(requests.Receive(&byte, 1, last, kTag).ok());
  EXPECT_EQ(requests.Missing(), std::vector<int>{last});
  requests.Cancel();
  EXPECT_TRUE(requests.empty());
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm_free(&comm);
}

}  // namespace
}  // namespace meshift
