// The default executable: the calls that it makes for a program, and their bytes.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/executor/executable.h"
#include "comm/program/byte_count.h"
#include "comm/program/lowering.h"
#include "comm/program/program.h"
#include "comm/program/program_bytes.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/engine.h"
#include "meshift/plan.h"
#include "meshift/planner.h"
#include "meshift/sharding.h"
#include "testing/internal/fake_engine.h"
#include "testing/internal/plan_cases.h"

namespace meshift {
namespace {

using Lines = std::vector<std::string>;

Program LowerCase(const Case& c, int64_t rank) {
  EXPECT_EQ(Judge(c), "");
  return Lower(Plan::Seal(MakeFields(c)), rank).value();
}

class ExecutorTest : public testing::Test {
 protected:
  absl::Status Run(const Program& program) {
    std::vector<std::unique_ptr<FakeCommunicator>> owned;
    std::vector<Communicator*> communicators;
    for (const ProgramGroup& group : program.groups) {
      owned.push_back(std::make_unique<FakeCommunicator>(
          std::vector<int64_t>(group.ranks.begin(), group.ranks.end()), program.rank,
          &communicator_log_));
      communicators.push_back(owned.back().get());
    }
    record_ = RecordOf(program);
    const std::unique_ptr<Stream> stream = engine_.CreateStream().value();
    const std::unique_ptr<Executable> executable = engine_.Prepare(program, communicators).value();
    const TensorBuffers tensor;
    std::shared_ptr<Event> done;
    absl::Status status =
        executable->Enqueue(program.All(), {.tensors = {&tensor, 1}}, *stream, &done);
    EXPECT_EQ(done != nullptr, status.ok());
    return status;
  }

  FakeEngine engine_{3, 4};
  FakeLog communicator_log_;
  RunRecord record_;
};

TEST_F(ExecutorTest, MakesTheProgramsCallsAndCountsTheirBytes) {
  ASSERT_TRUE(Run(LowerCase(ThreeSteps(), 3)).ok());
  EXPECT_EQ(engine_.log(), Lines{"copy 1 f32"});
  EXPECT_EQ(communicator_log_.lines, (Lines{"all_reduce 4 f32 sum", "all_gather 4 f32"}));
  EXPECT_EQ(record_.bytes_sent, (std::vector<int64_t>{0, 16, 16}));
  EXPECT_EQ(record_.calls, (std::vector<int64_t>{0, 1, 1}));
}

TEST_F(ExecutorTest, CountsPaddingAndMessages) {
  const Case scatter = {
      "a=4", "f32[5]", "P", "S(0)", {{kReduceScatter, "a", "S(0)", 20, 8, 24, kPadded}}, 48};
  ASSERT_TRUE(Run(LowerCase(scatter, 3)).ok());
  EXPECT_EQ(record_.bytes_sent, std::vector<int64_t>{24});
  const Case exchange = {
      "a=3", "f32[5,3]", "S(0)", "S(1)", {{kAllToAll, "a", "S(1)", 24, 20, 16, kExact}}, 16};
  ASSERT_TRUE(Run(LowerCase(exchange, 2)).ok());
  EXPECT_EQ(record_.bytes_sent, std::vector<int64_t>{8});
  EXPECT_EQ(communicator_log_.lines,
            (Lines{"reduce_scatter 2 f32 sum", "send_recv 2 sends 2 recvs f32"}));
}

TEST_F(ExecutorTest, CastsBetweenDTypes) {
  const DeviceMesh mesh = DeviceMesh::Parse("a=4").value();
  const Sharding from = Sharding::Parse("f32[8]", mesh, "S(0)").value();
  const Sharding to = Sharding::Parse("bf16[8]", mesh, "R").value();
  ASSERT_TRUE(Run(Lower(MakePlan(from, to).value(), 3).value()).ok());
  EXPECT_EQ(engine_.log(), Lines{"cast 2 f32 to bf16"});
  EXPECT_EQ(communicator_log_.lines, Lines{"all_gather 2 bf16"});
  EXPECT_EQ(record_.bytes_sent, (std::vector<int64_t>{0, 12}));
}

TEST_F(ExecutorTest, StopsAtTheFirstError) {
  communicator_log_.failures["all_reduce"] = absl::InternalError("cable");
  EXPECT_EQ(Run(LowerCase(ThreeSteps(), 3)).ToString(), "INTERNAL: cable");
  EXPECT_EQ(communicator_log_.lines.size(), 1);
}

TEST_F(ExecutorTest, WantsACommunicatorPerGroupAndMemoryPerTensor) {
  const Program program = LowerCase(ThreeSteps(), 3);
  EXPECT_EQ(engine_.Prepare(program, {}).status().ToString(),
            "INVALID_ARGUMENT: got 0 communicators; the program has 2 groups");
  const std::vector<Communicator*> communicators(2, engine_.world());
  const std::unique_ptr<Stream> stream = engine_.CreateStream().value();
  EXPECT_EQ(engine_.Prepare(program, communicators)
                .value()
                ->Enqueue(program.All(), {}, *stream, nullptr)
                .ToString(),
            "INVALID_ARGUMENT: got the buffers of 0 tensors; the program has 1");
}

// A run may be a part of a program's instructions, with other buffers each time.
TEST_F(ExecutorTest, RunsPartsOfAProgram) {
  const Program program = LowerCase(ThreeSteps(), 3);
  const std::vector<Communicator*> communicators(2, engine_.world());
  const auto executable = engine_.Prepare(program, communicators).value();
  const std::unique_ptr<Stream> stream = engine_.CreateStream().value();
  const TensorBuffers tensor;
  ASSERT_TRUE(executable->Enqueue({1, 2}, {.tensors = {&tensor, 1}}, *stream, nullptr).ok());
  EXPECT_EQ(engine_.log(), (Lines{"all_reduce 4 f32 sum", "all_gather 4 f32"}));
  ASSERT_TRUE(executable->Enqueue({0, 1}, {.tensors = {&tensor, 1}}, *stream, nullptr).ok());
  EXPECT_EQ(engine_.log().back(), "copy 1 f32");
}

TEST(ByteCountTest, Conventions) {
  EXPECT_EQ(AllReduceBytes(800, 40), 1560);
  EXPECT_EQ(AllReduceBytes(4, 3), 6);  // 5.33, rounded up
  EXPECT_EQ(AllReduceBytes(4, 1), 0);
  EXPECT_EQ(BlockBytes(100, 4), 300);
}

}  // namespace
}  // namespace meshift
