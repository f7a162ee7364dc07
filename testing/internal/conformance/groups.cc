// The group of all ranks, groups split from it, and the end of a group.
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

TEST_P(EngineConformance, WorldKnowsItself) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    job.Run({[&](Engine& engine, int64_t r) {
               EXPECT_EQ(engine.rank(), r);
               EXPECT_EQ(engine.world_size(), job.size());
               EXPECT_EQ(engine.world()->rank(), r);
               EXPECT_EQ(engine.world()->size(), job.size());
               MESHIFT_EXPECT_OK(engine.world()->Health());
               MESHIFT_EXPECT_OK(engine.world()->Barrier(streams(engine, r)));
             },
             [&](Engine& engine, int64_t r) {
               MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
             }});
  });
}

// Even and odd ranks sum separately, and then across, without waiting in between.
TEST_P(EngineConformance, SplitsIntoGroups) {
  ForEachSize([](ConformanceJob& job) {
    if (job.size() < 4) return;
    Streams streams(job.size());
    std::vector<std::shared_ptr<Communicator>> groups(job.size());
    Buffers sums(job.size());
    const auto ranks_of = [&](int64_t parity) {
      std::vector<int64_t> ranks;
      for (int64_t r = parity; r < job.size(); r += 2) ranks.push_back(r);
      return ranks;
    };
    job.Run({[&](Engine& engine, int64_t r) {
               auto group = engine.Split(*engine.world(), ranks_of(r % 2), r % 2, {});
               ASSERT_TRUE(group.ok()) << group.status();
               groups[r] = *group;
               EXPECT_EQ(groups[r]->rank(), r / 2);
               EXPECT_EQ(groups[r]->size(), static_cast<int>(ranks_of(r % 2).size()));
               sums[r].Write(engine, streams(engine, r), BytesOf<int64_t>({r + 1}));
               for (Communicator* c : {groups[r].get(), engine.world()}) {
                 MESHIFT_EXPECT_OK(c->AllReduce(sums[r].data(), sums[r].data(), 1, DType::kI64,
                                                {ReduceOp::kSum, 1}, streams(engine, r)));
               }
             },
             [&](Engine& engine, int64_t r) {
               MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
               int64_t expected = 0;
               for (int64_t a = 0; a < job.size(); ++a) {
                 for (const int64_t b : ranks_of(a % 2)) expected += b + 1;
               }
               EXPECT_EQ(sums[r].Read(engine, streams(engine, r)), BytesOf<int64_t>({expected}));
             }});
  });
}

TEST_P(EngineConformance, AbortEndsTheGroup) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    job.Run({[&](Engine& engine, int64_t r) {
               engine.world()->Abort();
               engine.world()->Abort();
               EXPECT_EQ(engine.world()->Barrier(streams(engine, r)).code(),
                         absl::StatusCode::kAborted);
               EXPECT_EQ(engine.world()->Health().code(), absl::StatusCode::kAborted);
             },
             [&](Engine& engine, int64_t r) {
               EXPECT_EQ(engine.Synchronize(streams(engine, r)).code(), absl::StatusCode::kAborted);
             }});
  });
}

}  // namespace
}  // namespace meshift::conformance
