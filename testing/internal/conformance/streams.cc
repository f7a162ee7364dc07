// Events between streams, and local kernels on streams.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "testing/internal/conformance/conformance.h"
#include "testing/internal/conformance/memory.h"
#include "testing/internal/conformance/values.h"

namespace meshift::conformance {
namespace {

// The second stream copies the gathered data of the first, and the first waits for that.
TEST_P(EngineConformance, EventsOrderStreams) {
  ForEachSize([](ConformanceJob& job) {
    Streams first(job.size());
    Streams second(job.size());
    Buffers gathered(job.size());
    Buffers copied(job.size());
    std::vector<std::shared_ptr<Event>> events(job.size());
    constexpr int32_t kRounds = 20;
    job.Run({[&](Engine& engine, int64_t r) {
               std::vector<int32_t> before(job.size());
               before[r] = static_cast<int32_t>(r);
               gathered[r].Write(engine, first(engine, r), BytesOf(before));
               copied[r].Write(engine, first(engine, r), Bytes8(kRounds * job.size() * 4));
               const auto copied_at = [&](int64_t i) { return copied[r].data() + i * 4; };
               for (int32_t round = 0; round < kRounds; ++round) {
                 uint8_t* const own = gathered[r].data() + r * 4;
                 if (round > 0) {
                   const BoxCopy last{copied_at((round - 1) * job.size() + r), own, {1}, {1}, {1}};
                   MESHIFT_EXPECT_OK(engine.CopyBoxes({last}, DType::kI32, first(engine, r)));
                 }
                 MESHIFT_EXPECT_OK(engine.world()->AllGather(own, gathered[r].data(), 1,
                                                             DType::kI32, first(engine, r)));
                 auto event = engine.Record(first(engine, r));
                 ASSERT_TRUE(event.ok());
                 MESHIFT_EXPECT_OK(engine.WaitFor(second(engine, r), *event));
                 const BoxCopy copy{
                     gathered[r].data(), copied_at(round * job.size()), {job.size()}, {1}, {1}};
                 MESHIFT_EXPECT_OK(engine.CopyBoxes({copy}, DType::kI32, second(engine, r)));
                 event = engine.Record(second(engine, r));
                 ASSERT_TRUE(event.ok());
                 MESHIFT_EXPECT_OK(engine.WaitFor(first(engine, r), *event));
                 events[r] = *event;
               }
             },
             [&](Engine& engine, int64_t r) {
               MESHIFT_EXPECT_OK(engine.Synchronize(first(engine, r)));
               EXPECT_GE(events[r]->ReachedNs(), 0);
               const auto result = ValuesOf<int32_t>(copied[r].Read(engine, first(engine, r)));
               for (int64_t i = 0; i < kRounds * job.size(); ++i) {
                 EXPECT_EQ(result[i], i % job.size());
               }
             }});
  });
}

TEST_P(EngineConformance, LocalKernels) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    std::vector<std::unique_ptr<Buffer>> buffers(job.size());
    std::vector<std::unique_ptr<Buffer>> targets(job.size());
    job.Run({[&](Engine& engine, int64_t r) {
               Stream& stream = streams(engine, r);
               auto buffer = engine.Allocate(24 * 4);
               auto target = engine.Allocate(6 * 4 + 6 * 8);
               ASSERT_TRUE(buffer.ok() && target.ok());
               buffers[r] = *std::move(buffer);
               targets[r] = *std::move(target);
               EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers[r]->data()) % 64, 0U);
               EXPECT_EQ(buffers[r]->size_bytes(), 24 * 4);
               auto* data = static_cast<float*>(buffers[r]->data());
               MESHIFT_EXPECT_OK(
                   engine.FillIdentity(data, 24, DType::kF32, ReduceOp::kProduct, stream));
               MESHIFT_EXPECT_OK(engine.FillZero(data + 8, 2 * 4, stream));
               // Columns 1 and 2 of a 4 x 6 tensor's rows 0..2, transposed.
               const BoxCopy copy{data + 1, targets[r]->data(), {3, 2}, {6, 1}, {1, 3}};
               MESHIFT_EXPECT_OK(engine.CopyBoxes({copy}, DType::kF32, stream));
               MESHIFT_EXPECT_OK(engine.CopyBoxes({}, DType::kF32, stream));
               MESHIFT_EXPECT_OK(engine.Cast(targets[r]->data(), DType::kF32,
                                             static_cast<char*>(targets[r]->data()) + 6 * 4,
                                             DType::kI64, 6, stream));
               EXPECT_EQ(engine.Cast(data, DType::kC64, data + 8, DType::kF32, 1, stream).code(),
                         absl::StatusCode::kInvalidArgument);
             },
             [&](Engine& engine, int64_t r) {
               MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
               ASSERT_NE(targets[r], nullptr);
               std::vector<float> result(6);
               std::vector<int64_t> integers(6);
               const auto* data = static_cast<const char*>(targets[r]->data());
               Stream& stream = streams(engine, r);
               MESHIFT_EXPECT_OK(engine.CopyOut(data, result.data(), 6 * 4, stream));
               MESHIFT_EXPECT_OK(engine.CopyOut(data + 6 * 4, integers.data(), 6 * 8, stream));
               MESHIFT_EXPECT_OK(engine.Synchronize(stream));
               EXPECT_EQ(result, (std::vector<float>{1, 1, 1, 1, 0, 1}));
               EXPECT_EQ(integers, (std::vector<int64_t>{1, 1, 1, 1, 0, 1}));
             }});
  });
}

}  // namespace
}  // namespace meshift::conformance
