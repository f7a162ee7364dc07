// Prepared programs of the MPI engine: each run uses its own buffers, also with several runs in
// flight. For two ranks or more.
#include "comm/executor/executable.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/program/program.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/mpi_engine.h"
#include "meshift/redistributor.h"
#include "meshift/sharding.h"
#include "meshift/status.h"
#include "meshift/tensor_view.h"
#include "testing/allocation_count.h"

namespace meshift {
namespace {

using Space = Location::Space;

struct Buffers {
  const void* source = nullptr;
  void* target = nullptr;
  void* workspace = nullptr;
};

// A program and its executable.
class Work {
 public:
  Work() { program_.groups.emplace_back(); }
  Work& Copy(std::vector<ProgramCopy> copies, DType dtype) {
    Instruction& copy = Add(Instruction::Kind::kCopy, dtype);
    copy.copies = {static_cast<int32_t>(program_.copies.size()),
                   static_cast<int32_t>(copies.size())};
    program_.copies.insert(program_.copies.end(), copies.begin(), copies.end());
    return *this;
  }
  Work& Send(const std::vector<ProgramMessage>& sends, const std::vector<ProgramMessage>& recvs,
             DType dtype) {
    Instruction& call = Add(Instruction::Kind::kSendRecv, dtype);
    call.group = 0;
    call.sends = Messages(sends);
    call.recvs = Messages(recvs);
    return *this;
  }
  Work& Call(Instruction call, const std::vector<int64_t>& counts = {}) {
    call.group = 0;
    call.counts = {static_cast<int32_t>(program_.counts.size()),
                   static_cast<int32_t>(counts.size())};
    program_.counts.insert(program_.counts.end(), counts.begin(), counts.end());
    program_.instructions.push_back(call);
    return *this;
  }
  Work& Zero(const Location& at, int64_t bytes) {
    Instruction& fill = Add(Instruction::Kind::kFillZero, DType::kU8);
    fill.dst = at;
    fill.count = bytes;
    return *this;
  }
  absl::Status Prepare(Engine& engine, Communicator& group) {
    const std::vector<Communicator*> groups = {&group};
    MESHIFT_ASSIGN_OR_RETURN(executable_, engine.Prepare(program_, groups));
    return absl::OkStatus();
  }
  absl::Status Enqueue(const Buffers& buffers, Stream& stream, std::shared_ptr<Event>* done) const {
    const TensorBuffers tensor = {.source = buffers.source, .target = buffers.target};
    return executable_->Enqueue(
        program_.All(), {.workspace = buffers.workspace, .tensors = {&tensor, 1}}, stream, done);
  }

 private:
  Instruction& Add(Instruction::Kind kind, DType dtype) {
    Instruction& instruction = program_.instructions.emplace_back();
    instruction.kind = kind;
    instruction.dtype = dtype;
    return instruction;
  }
  ListRange Messages(const std::vector<ProgramMessage>& messages) {
    const ListRange range = {static_cast<int32_t>(program_.messages.size()),
                             static_cast<int32_t>(messages.size())};
    program_.messages.insert(program_.messages.end(), messages.begin(), messages.end());
    return range;
  }

  Program program_;
  std::unique_ptr<Executable> executable_;
};

class ExecutableTest : public testing::Test {
 protected:
  absl::Status Prepare(Work* work) { return work->Prepare(*engine_, *engine_->world()); }
  absl::Status Enqueue(const Work& work, const Buffers& buffers) {
    return work.Enqueue(buffers, *stream_, nullptr);
  }

  const std::unique_ptr<Engine> engine_ = CreateMpiEngine({}).value();
  const std::unique_ptr<Stream> stream_ = engine_->CreateStream().value();
  const int me_ = engine_->world()->rank();
  const int size_ = engine_->world()->size();
};

// Every second element of the source, from the third on, to the target; and one element to the
// workspace.
std::vector<ProgramCopy> Copies() {
  return {{{Space::kSource, 8}, {Space::kTarget, 0}, {3}, {2}, {1}},
          {{Space::kSource, 0}, {Space::kWorkspace, 4}, {1}, {1}, {1}}};
}

TEST_F(ExecutableTest, CopiesBetweenTheBuffersOfEachTime) {
  Work work;
  ASSERT_EQ(Prepare(&work.Copy(Copies(), DType::kF32)), absl::OkStatus());
  const std::vector<float> first = {0, 1, 2, 3, 4, 5, 6};
  const std::vector<float> second = {10, 11, 12, 13, 14, 15, 16};
  std::vector<float> to_first(3);
  std::vector<float> to_second(3);
  std::vector<float> workspace(4);
  ASSERT_TRUE(Enqueue(work, {first.data(), to_first.data(), workspace.data()}).ok());
  ASSERT_TRUE(Enqueue(work, {second.data(), to_second.data(), &workspace[2]}).ok());
  ASSERT_TRUE(engine_->Synchronize(*stream_).ok());
  EXPECT_EQ(to_first, (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(to_second, (std::vector<float>{12, 14, 16}));
  EXPECT_EQ(workspace, (std::vector<float>{0, 0, 0, 10}));
}

TEST_F(ExecutableTest, SendsAndReceivesInTheBuffersOfEachTime) {
  const int next = (me_ + 1) % size_;
  const int before = (me_ + size_ - 1) % size_;
  const std::vector<ProgramMessage> sends = {{next, {Space::kSource, 4}, 2}};
  const std::vector<ProgramMessage> recvs = {{before, {Space::kTarget, 8}, 2}};
  Work work;
  ASSERT_EQ(Prepare(&work.Send(sends, recvs, DType::kI32)), absl::OkStatus());
  constexpr int kTimes = 5;
  std::vector<std::vector<int32_t>> in;
  std::vector<std::vector<int32_t>> out(kTimes, std::vector<int32_t>(4, -1));
  for (int i = 0; i < kTimes; ++i) in.push_back({0, 100 * i + me_, i, 0});
  for (int i = 0; i < kTimes; ++i) {
    ASSERT_TRUE(Enqueue(work, {in[i].data(), out[i].data(), nullptr}).ok());
  }
  ASSERT_TRUE(engine_->Synchronize(*stream_).ok());
  for (int i = 0; i < kTimes; ++i) {
    EXPECT_EQ(out[i], (std::vector<int32_t>{-1, -1, 100 * i + before, i})) << i;
  }
}

Instruction Collective(Instruction::Kind kind, int64_t count) {
  Instruction instruction;
  instruction.kind = kind;
  instruction.dtype = DType::kI32;
  instruction.count = count;
  instruction.src = {Space::kSource, 4};
  instruction.dst = {Space::kTarget, 8};
  return instruction;
}

TEST_F(ExecutableTest, ReducesInTheBuffersOfEachTime) {
  Work work;
  ASSERT_EQ(Prepare(&work.Call(Collective(Instruction::Kind::kAllReduce, 2))), absl::OkStatus());
  constexpr int kTimes = 5;
  std::vector<std::vector<int32_t>> in;
  std::vector<std::vector<int32_t>> out(kTimes, std::vector<int32_t>(5, -1));
  for (int i = 0; i < kTimes; ++i) in.push_back({0, 100 * i, me_, 0});
  for (int i = 0; i < kTimes; ++i) {
    ASSERT_TRUE(Enqueue(work, {in[i].data(), out[i].data(), nullptr}).ok());
  }
  ASSERT_TRUE(engine_->Synchronize(*stream_).ok());
  for (int i = 0; i < kTimes; ++i) {
    EXPECT_EQ(out[i], (std::vector<int32_t>{-1, -1, 100 * i * size_, size_ * (size_ - 1) / 2, -1}))
        << i;
  }
}

// Member m has a block of m elements. Member 0 has an empty block and needs no buffer for it.
TEST_F(ExecutableTest, GathersAndScattersBlocksOfAnySizes) {
  std::vector<int64_t> counts(size_);
  std::vector<int32_t> whole;
  for (int m = 0; m < size_; ++m) {
    counts[m] = m;
    for (int i = 0; i < m; ++i) whole.push_back(10 * m + i);
  }
  const std::vector<int32_t> own(whole.begin() + me_ * (me_ - 1) / 2,
                                 whole.begin() + me_ * (me_ + 1) / 2);
  const auto block_call = [&](Instruction::Kind kind) {
    Instruction instruction = Collective(kind, counts[me_]);
    instruction.src.offset = instruction.dst.offset = 0;
    return instruction;
  };
  Work gather;
  Work scatter;
  ASSERT_TRUE(Prepare(&gather.Call(block_call(Instruction::Kind::kAllGather), counts)).ok());
  ASSERT_TRUE(Prepare(&scatter.Call(block_call(Instruction::Kind::kReduceScatter), counts)).ok());
  std::vector<int32_t> gathered(whole.size());
  std::vector<int32_t> scattered(own.size());
  const auto memory = [](auto& list) { return list.empty() ? nullptr : list.data(); };
  ASSERT_TRUE(Enqueue(gather, {memory(own), gathered.data(), nullptr}).ok());
  ASSERT_TRUE(Enqueue(scatter, {whole.data(), memory(scattered), nullptr}).ok());
  ASSERT_TRUE(engine_->Synchronize(*stream_).ok());
  EXPECT_EQ(gathered, whole);
  std::vector<int32_t> sums = own;
  for (int32_t& value : sums) value *= size_;
  EXPECT_EQ(scattered, sums);
}

TEST_F(ExecutableTest, RefusesCollectivesThatCannotBe) {
  const auto prepare = [&](const Instruction& instruction, const std::vector<int64_t>& counts) {
    return Prepare(&Work().Call(instruction, counts)).code();
  };
  using Kind = Instruction::Kind;
  EXPECT_EQ(prepare(Collective(Kind::kAllReduce, -1), {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(prepare(Collective(Kind::kAllGather, 1), std::vector<int64_t>(size_ + 1, 1)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(prepare(Collective(Kind::kAllGather, 1), std::vector<int64_t>(size_, INT64_MAX)),
            absl::StatusCode::kInvalidArgument);
  Instruction bits = Collective(Kind::kReduceScatter, 1);
  bits.dtype = DType::kBool;
  EXPECT_EQ(prepare(bits, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(prepare(Collective(Kind::kReduceScatter, 1), {}), absl::StatusCode::kOk);
}

// Several all-to-all calls in flight (pack, send, unpack), each with its own tensors.
TEST_F(ExecutableTest, RedistributesManyTensorsAtOnce) {
  constexpr int64_t kColumns = 64;
  constexpr int kTimes = 6;
  const int64_t rows = 32 * size_;
  const int64_t columns = kColumns * size_;
  const DeviceMesh mesh = DeviceMesh::Create({{"a", size_}}).value();
  const Sharding from =
      Sharding::Parse("i32[" + std::to_string(rows) + "," + std::to_string(columns) + "]", mesh,
                      "S(0)")
          .value();
  const Sharding to = from.WithPlacements("S(1)").value();
  Redistributor redistribute =
      Redistributor::Create(mesh, engine_.get(), {.planning = {.max_value = 0}}).value();
  const auto value = [&](int time, int64_t row, int64_t column) {
    return static_cast<int32_t>((row * columns + column) * kTimes + time);
  };
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<int32_t>> in(kTimes);
    std::vector<std::vector<int32_t>> out(kTimes, std::vector<int32_t>(rows * kColumns));
    std::vector<RunHandle> runs;
    for (int time = 0; time < kTimes; ++time) {
      for (int64_t row = 0; row < 32; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          in[time].push_back(value(time + round, 32 * me_ + row, column));
        }
      }
      runs.push_back(
          redistribute(
              {.from = from,
               .to = to,
               .source = TensorView::Contiguous(in[time].data(), DType::kI32, {32, columns}),
               .target = TensorView::Contiguous(out[time].data(), DType::kI32, {rows, kColumns})})
              .value());
    }
    for (int time = 0; time < kTimes; ++time) {
      ASSERT_TRUE(runs[time].Wait().ok());
      int64_t wrong = 0;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < kColumns; ++column) {
          wrong += out[time][row * kColumns + column] !=
                           value(time + round, row, kColumns * me_ + column)
                       ? 1
                       : 0;
        }
      }
      EXPECT_EQ(wrong, 0) << "round " << round << ", time " << time;
    }
  }
  EXPECT_EQ(redistribute.stats().plans_made, 1);
  // The statistics equal those of an unprepared run.
  EXPECT_EQ(redistribute.last_run().calls, std::vector<int64_t>{1});
  EXPECT_EQ(redistribute.last_run().bytes_sent,
            std::vector<int64_t>{(size_ - 1) * 32 * kColumns * 4});
}

TEST_F(ExecutableTest, RefusesNullBuffersThatItNeeds) {
  Work work;
  ASSERT_TRUE(Prepare(&work.Copy(Copies(), DType::kF32)).ok());
  std::vector<float> memory(8);
  EXPECT_EQ(Enqueue(work, {memory.data(), &memory[7], nullptr}).ToString(),
            "INVALID_ARGUMENT: a buffer that the prepared program uses is null");
  // An empty tensor needs no buffers.
  const std::vector<ProgramCopy> nothing = {
      {{Space::kSource, 0}, {Space::kTarget, 0}, {0, 3}, {3, 1}, {3, 1}}};
  Work empty;
  ASSERT_TRUE(Prepare(&empty.Copy(nothing, DType::kF32)).ok());
  EXPECT_TRUE(Enqueue(empty, {}).ok());
  EXPECT_TRUE(engine_->Synchronize(*stream_).ok());
}

// A message runs after the copy of its data, and the event after both. The event is reused.
TEST_F(ExecutableTest, EnqueuesInOrderAndMarksTheEnd) {
  const int next = (me_ + 1) % size_;
  const int before = (me_ + size_ - 1) % size_;
  const std::vector<ProgramCopy> copies = {
      {{Space::kSource, 0}, {Space::kWorkspace, 0}, {2}, {2}, {1}}};
  const std::vector<ProgramMessage> sends = {{next, {Space::kWorkspace, 0}, 2}};
  const std::vector<ProgramMessage> recvs = {{before, {Space::kTarget, 0}, 2}};
  Work work;
  ASSERT_TRUE(Prepare(&work.Copy(copies, DType::kI32).Send(sends, recvs, DType::kI32)).ok());
  std::shared_ptr<Event> done;
  Event* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    const std::vector<int32_t> in = {me_, -1, i};
    std::vector<int32_t> workspace(2, -1);
    std::vector<int32_t> out(2, -1);
    ASSERT_TRUE(work.Enqueue({in.data(), out.data(), workspace.data()}, *stream_, &done).ok());
    ASSERT_TRUE(engine_->Wait(done).ok());
    EXPECT_EQ(out, (std::vector<int32_t>{before, i}));
    if (first == nullptr) first = done.get();
    EXPECT_EQ(done.get(), first);
  }
  // The event of an empty program is reached at once.
  done = nullptr;
  Work nothing;
  ASSERT_TRUE(Prepare(&nothing).ok());
  ASSERT_TRUE(nothing.Enqueue({}, *stream_, &done).ok());
  EXPECT_GE(done->ReachedNs(), 0);
}

// Also if earlier events are not reached yet and were dropped by the caller.
TEST_F(ExecutableTest, AllocatesNothingInLaterRounds) {
  Work copies;
  ASSERT_TRUE(Prepare(&copies.Copy(Copies(), DType::kF32)).ok());
  const std::vector<float> in(8);
  std::vector<float> out(8);
  std::vector<float> workspace(4);
  std::shared_ptr<Event> done;
  float message = 0;
  const std::vector<PeerMessage> to_first = {{0, &message, 1}};
  const std::vector<PeerMessage> from_second = {{1, &message, 1}};
  for (int round = 0; round < 3; ++round) {
    if (me_ == 0) {
      // Blocks the stream until rank 1 sends.
      ASSERT_TRUE(engine_->world()->SendRecv({}, from_second, DType::kF32, *stream_).ok());
      const int64_t before = NumAllocations();
      for (int i = 0; i < 8; ++i) {
        ASSERT_TRUE(
            copies.Enqueue({in.data(), out.data(), workspace.data()}, *stream_, &done).ok());
        EXPECT_LT(done->ReachedNs(), 0);
      }
      EXPECT_TRUE(round == 0 || NumAllocations() == before);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (me_ == 1) {
      ASSERT_TRUE(engine_->world()->SendRecv(to_first, {}, DType::kF32, *stream_).ok());
    }
    ASSERT_TRUE(engine_->Synchronize(*stream_).ok());
    EXPECT_TRUE(me_ != 0 || done->ReachedNs() >= 0);
  }
}

TEST_F(ExecutableTest, EnqueuesNothingWhereOneIsRefused) {
  const std::vector<ProgramCopy> one = {{{Space::kSource, 0}, {Space::kTarget, 0}, {2}, {1}, {1}}};
  const std::vector<ProgramCopy> other = {
      {{Space::kSource, 0}, {Space::kWorkspace, 0}, {2}, {1}, {1}}};
  Work work;
  ASSERT_TRUE(Prepare(&work.Copy(one, DType::kI32).Copy(other, DType::kI32)).ok());
  const std::vector<int32_t> in = {1, 2};
  std::vector<int32_t> out(2, -1);
  std::shared_ptr<Event> done;
  EXPECT_TRUE(
      absl::IsInvalidArgument(work.Enqueue({in.data(), out.data(), nullptr}, *stream_, &done)));
  EXPECT_EQ(done, nullptr);
  ASSERT_TRUE(engine_->Synchronize(*stream_).ok());
  EXPECT_EQ(out, (std::vector<int32_t>{-1, -1}));
}

// Instructions that are not prepared run in order between prepared ones; the end is marked once.
TEST_F(ExecutableTest, RunsAllKindsInOrder) {
  const std::vector<ProgramCopy> first = {
      {{Space::kSource, 0}, {Space::kTarget, 0}, {3}, {1}, {1}}};
  const std::vector<ProgramCopy> last = {
      {{Space::kTarget, 0}, {Space::kWorkspace, 0}, {3}, {1}, {1}}};
  Work work;
  work.Copy(first, DType::kI32).Zero({Space::kTarget, 4}, 4).Copy(last, DType::kI32);
  ASSERT_TRUE(Prepare(&work.Zero({Space::kTarget, 0}, 4)).ok());
  const std::vector<int32_t> in = {1, 2, 3};
  std::shared_ptr<Event> done;
  for (int i = 0; i < 2; ++i) {
    std::vector<int32_t> out(3, -1);
    std::vector<int32_t> workspace(3, -1);
    ASSERT_TRUE(work.Enqueue({in.data(), out.data(), workspace.data()}, *stream_, &done).ok());
    ASSERT_TRUE(engine_->Wait(done).ok());
    EXPECT_EQ(out, (std::vector<int32_t>{0, 0, 3}));
    EXPECT_EQ(workspace, (std::vector<int32_t>{1, 0, 3}));
  }
}

// A refused collective ends its group, as any refused call does.
TEST_F(ExecutableTest, RefusesNullBuffersOfCollectives) {
  std::vector<int64_t> all;
  for (int i = 0; i < size_; ++i) all.push_back(i);
  const auto group = engine_->Split(*engine_->world(), all, 0, {}).value();
  Work work;
  work.Call(Collective(Instruction::Kind::kAllReduce, 2));
  ASSERT_TRUE(work.Prepare(*engine_, *group).ok());
  std::vector<int32_t> memory(8);
  EXPECT_TRUE(absl::IsInvalidArgument(Enqueue(work, {memory.data(), nullptr, nullptr})));
  EXPECT_FALSE(group->Health().ok());
  EXPECT_FALSE(engine_->Synchronize(*stream_).ok());
}

TEST_F(ExecutableTest, RefusesMessagesThatCannotBe) {
  const auto prepare = [&](const std::vector<ProgramMessage>& sends) {
    return Prepare(&Work().Send(sends, {}, DType::kF32)).code();
  };
  const int other = me_ == 0 ? 1 : 0;
  EXPECT_EQ(prepare({{me_, {}, 1}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(prepare({{size_, {}, 1}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(prepare({{other, {}, -1}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(prepare({{other, {}, 1}, {other, {}, 1}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(prepare({{other, {}, 1}}), absl::StatusCode::kOk);
}

TEST_F(ExecutableTest, RefusesOtherThanOneTensor) {
  Program program;
  const auto executable = engine_->Prepare(program, {}).value();
  EXPECT_EQ(executable->Enqueue(program.All(), {}, *stream_, nullptr).ToString(),
            "INVALID_ARGUMENT: memory of 0 tensors for the 1 of a program");
}

TEST_F(ExecutableTest, RefusesStreamsOfOthers) {
  Work work;
  ASSERT_TRUE(Prepare(&work.Copy(Copies(), DType::kF32)).ok());
  Stream foreign;
  EXPECT_EQ(work.Enqueue({}, foreign, nullptr).ToString(),
            "INVALID_ARGUMENT: the stream belongs to another engine");
}

// When a group ends, its pending calls and all later work of the stream fail.
TEST_F(ExecutableTest, EndsWithItsGroup) {
  std::vector<int64_t> all;
  for (int i = 0; i < size_; ++i) all.push_back(i);
  const auto group = engine_->Split(*engine_->world(), all, 0, {}).value();
  const int other = me_ == 0 ? 1 : 0;
  const std::vector<ProgramMessage> recvs = {{other, {Space::kTarget, 0}, 1}};
  Work work;
  work.Send({}, recvs, DType::kF32);
  ASSERT_TRUE(work.Prepare(*engine_, *group).ok());
  float value = 0;
  ASSERT_TRUE(Enqueue(work, {nullptr, &value, nullptr}).ok());
  group->Abort();
  EXPECT_TRUE(absl::IsAborted(engine_->Synchronize(*stream_)));
  EXPECT_TRUE(absl::IsAborted(Enqueue(work, {nullptr, &value, nullptr})));
  std::vector<int32_t> memory(8);
  Work sum;
  sum.Call(Collective(Instruction::Kind::kAllReduce, 2));
  ASSERT_TRUE(sum.Prepare(*engine_, *group).ok());
  EXPECT_TRUE(absl::IsAborted(Enqueue(sum, {memory.data(), memory.data(), nullptr})));
}

}  // namespace
}  // namespace meshift
