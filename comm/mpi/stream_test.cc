#include "comm/mpi/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "meshift/dtype.h"

namespace meshift {
namespace {

// Too large to run on the thread that puts it.
constexpr int64_t kLarge = 2 * kInlineBytes;

// All bytes at `dst` become `value`.
std::unique_ptr<MpiTask> Fill(StreamState* stream, uint8_t value, void* dst, int64_t bytes) {
  auto task = stream->NewTask();
  task->kind = MpiTask::Kind::kFill;
  task->bytes = task->count = bytes;
  task->element[0] = value;
  task->element_bytes = 1;
  task->dst = dst;
  return task;
}

std::unique_ptr<MpiTask> Copy(StreamState* stream, const char* src, char* dst, int64_t bytes) {
  auto task = stream->NewTask();
  task->kind = MpiTask::Kind::kCopy;
  task->bytes = bytes;
  task->copies.resize(1);
  EXPECT_TRUE(task->copies[0].SetLayout({bytes}, {1}, {1}, DType::kU8).ok());
  task->copies[0].SetAddresses(src, dst);
  return task;
}

// Each task runs once and in order, while one thread puts tasks and two others run them: the small
// copies see what the fill before them has written, and no later one.
TEST(StreamTest, TasksRunInOrderOnWhicheverThread) {
  constexpr int kTasks = 3000;
  ScratchPool pool;
  const auto stream = std::make_shared<StreamState>(&pool, /*watch=*/nullptr, /*turn=*/nullptr,
                                                    /*cache_bytes=*/0);
  std::atomic<bool> stop{false};
  const auto run = [&] {
    while (!stop.load()) {
      if (!stream->Advance({})) std::this_thread::yield();
    }
  };
  std::thread one(run);
  std::thread other(run);
  std::vector<char> large(kLarge);
  std::vector<char> seen(2 * kTasks);
  std::shared_ptr<Event> done;
  for (int i = 0; i < kTasks; ++i) {
    stream->Put(Fill(stream.get(), static_cast<uint8_t>(i), large.data(), kLarge));
    stream->Put(Copy(stream.get(), large.data(), &seen[2 * i], 1));
    stream->Put(Copy(stream.get(), large.data() + kLarge - 1, &seen[2 * i + 1], 1));
    // Now and then the stream is idle, and this thread runs the next small task itself.
    if (i % 8 != 0) continue;
    stream->Mark(&done);
    while (done->ReachedNs() < 0) std::this_thread::yield();
    EXPECT_EQ(stream->ended(), 3 * (i + 1) + i / 8);
    stream->Put(Fill(stream.get(), 0, large.data(), 1));
    EXPECT_TRUE(stream->idle());
  }
  stream->Mark(&done);
  while (done->ReachedNs() < 0) std::this_thread::yield();
  stop.store(true);
  one.join();
  other.join();
  EXPECT_TRUE(stream->idle());
  EXPECT_TRUE(stream->error().ok());
  for (int i = 0; i < kTasks; ++i) {
    EXPECT_EQ(seen[2 * i], static_cast<char>(i)) << i;
    EXPECT_EQ(seen[2 * i + 1], static_cast<char>(i)) << i;
  }
}

}  // namespace
}  // namespace meshift
