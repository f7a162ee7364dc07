// All-reduce and reduce-scatter, of equal blocks and of any sizes: every op on every dtype.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "testing/internal/conformance/conformance.h"
#include "testing/internal/conformance/memory.h"
#include "testing/internal/conformance/values.h"

namespace meshift::conformance {
namespace {

TEST_P(EngineConformance, AllReduce) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (const int64_t count : {0, 1, 37}) {
      ForEachReduction(job.size() + count, [&](DType dtype, ReduceOp op) {
        if (IsInexactAverage(dtype, op, job.size())) return;
        for (const bool in_place : {false, true}) {
          Buffers send(job.size());
          Buffers recv(job.size());
          job.Run({[&](Engine& engine, int64_t r) {
                     send[r].Write(engine, streams(engine, r), Contribution(dtype, op, r, count));
                     recv[r].Write(engine, streams(engine, r), Bytes8(send[r].size()));
                     void* out = in_place ? send[r].data() : recv[r].data();
                     MESHIFT_EXPECT_OK(engine.world()->AllReduce(
                         send[r].data(), out, count, dtype, {op, job.size()}, streams(engine, r)));
                   },
                   [&](Engine& engine, int64_t r) {
                     MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                     EXPECT_EQ((in_place ? send : recv)[r].Read(engine, streams(engine, r)),
                               Result(dtype, op, job.size(), 0, count))
                         << Text(dtype, op, job.size(), r, count);
                   }});
        }
      });
    }
  });
}

// Large calls, which engines send in segments or by other algorithms than small ones.
TEST_P(EngineConformance, LargeReductions) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const int64_t count = 100001;
      const int64_t block = count / job.size();
      Buffers send(job.size());
      Buffers reduced(job.size());
      Buffers scattered(job.size());
      job.Run({[&](Engine& engine, int64_t r) {
                 send[r].Write(engine, streams(engine, r),
                               Contribution(dtype, ReduceOp::kSum, r, count));
                 reduced[r].Write(engine, streams(engine, r),
                                  Contribution(dtype, ReduceOp::kSum, r, count));
                 scattered[r].Write(engine, streams(engine, r), Bytes8(Bytes(dtype, block)));
                 Communicator& world = *engine.world();
                 MESHIFT_EXPECT_OK(world.AllReduce(reduced[r].data(), reduced[r].data(), count,
                                                   dtype, {}, streams(engine, r)));
                 MESHIFT_EXPECT_OK(world.ReduceScatter(send[r].data(), scattered[r].data(), block,
                                                       dtype, {}, streams(engine, r)));
               },
               [&](Engine& engine, int64_t r) {
                 MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                 EXPECT_TRUE(reduced[r].Read(engine, streams(engine, r)) ==
                             Result(dtype, ReduceOp::kSum, job.size(), 0, count))
                     << Text(dtype, ReduceOp::kSum, job.size(), r, count);
                 EXPECT_TRUE(scattered[r].Read(engine, streams(engine, r)) ==
                             Result(dtype, ReduceOp::kSum, job.size(), r * block, block))
                     << Text(dtype, ReduceOp::kSum, job.size(), r, block);
               }});
    }
  });
}

// Arbitrary bits, also NaN of all kinds. A gather then compares the results of all members.
TEST_P(EngineConformance, AllReduceLeavesEqualBits) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (const int64_t count : {3, 259, 20011}) {
      ForEachReduction(job.size() + count, [&](DType dtype, ReduceOp op) {
        if (count > 1000 && (op != ReduceOp::kSum || IsInteger(dtype))) return;
        const int64_t bytes = Bytes(dtype, count);
        Buffers send(job.size());
        Buffers all(job.size());
        job.Run({[&](Engine& engine, int64_t r) {
                   send[r].Write(engine, streams(engine, r), AnyBits(dtype, op, r, bytes));
                   all[r].Write(engine, streams(engine, r), Bytes8(bytes * job.size()));
                   uint8_t* const own = all[r].data() + r * bytes;
                   Communicator& world = *engine.world();
                   MESHIFT_EXPECT_OK(world.AllReduce(send[r].data(), own, count, dtype,
                                                     {op, job.size()}, streams(engine, r)));
                   MESHIFT_EXPECT_OK(
                       world.AllGather(own, all[r].data(), count, dtype, streams(engine, r)));
                 },
                 [&](Engine& engine, int64_t r) {
                   MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                   const Bytes8 bits = all[r].Read(engine, streams(engine, r));
                   for (int64_t i = 1; i < job.size(); ++i) {
                     EXPECT_EQ(std::memcmp(bits.data(), bits.data() + i * bytes, bytes), 0)
                         << Text(dtype, op, job.size(), i, count);
                   }
                 }});
      });
    }
  });
}

TEST_P(EngineConformance, ReduceScatter) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (const int64_t count : {0, 1, 5}) {
      ForEachReduction(job.size() + count, [&](DType dtype, ReduceOp op) {
        if (IsInexactAverage(dtype, op, job.size())) return;
        const int64_t bytes = Bytes(dtype, count);
        for (const bool in_place : {false, true}) {
          Buffers send(job.size());
          Buffers recv(job.size());
          job.Run({[&](Engine& engine, int64_t r) {
                     send[r].Write(engine, streams(engine, r),
                                   Contribution(dtype, op, r, count * job.size()));
                     recv[r].Write(engine, streams(engine, r), Bytes8(bytes));
                     void* out = in_place ? send[r].data() + r * bytes : recv[r].data();
                     MESHIFT_EXPECT_OK(engine.world()->ReduceScatter(
                         send[r].data(), out, count, dtype, {op, job.size()}, streams(engine, r)));
                   },
                   [&](Engine& engine, int64_t r) {
                     MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                     EXPECT_EQ(in_place ? Slice(send[r].Read(engine, streams(engine, r)), r * bytes,
                                                bytes)
                                        : recv[r].Read(engine, streams(engine, r)),
                               Result(dtype, op, job.size(), r * count, count))
                         << Text(dtype, op, job.size(), r, count);
                   }});
        }
      });
    }
  });
}

TEST_P(EngineConformance, ReduceScatterV) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (const int kind : {0, 1, 2}) {
      const std::vector<int64_t> counts = RaggedCounts(job.size(), kind);
      const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      ForEachReduction(job.size() + kind, [&](DType dtype, ReduceOp op) {
        if (IsInexactAverage(dtype, op, job.size())) return;
        if (kind == 1 && (op != ReduceOp::kSum || dtype != DType::kF32)) return;
        for (const bool in_place : {false, true}) {
          Buffers send(job.size());
          Buffers recv(job.size());
          const auto first = [&](int64_t r) {
            return std::accumulate(counts.begin(), counts.begin() + r, int64_t{0});
          };
          job.Run({[&](Engine& engine, int64_t r) {
                     send[r].Write(engine, streams(engine, r), Contribution(dtype, op, r, all));
                     recv[r].Write(engine, streams(engine, r), Bytes8(Bytes(dtype, counts[r])));
                     void* out =
                         in_place ? send[r].data() + Bytes(dtype, first(r)) : recv[r].data();
                     MESHIFT_EXPECT_OK(engine.world()->ReduceScatterV(
                         send[r].data(), out, counts, dtype, {op, job.size()}, streams(engine, r)));
                   },
                   [&](Engine& engine, int64_t r) {
                     MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                     const Memory& held = in_place ? send[r] : recv[r];
                     EXPECT_TRUE(Slice(held.Read(engine, streams(engine, r)),
                                       in_place ? Bytes(dtype, first(r)) : 0,
                                       Bytes(dtype, counts[r])) ==
                                 Result(dtype, op, job.size(), first(r), counts[r]))
                         << Text(dtype, op, job.size(), r, counts[r]);
                   }});
        }
      });
    }
  });
}

}  // namespace
}  // namespace meshift::conformance
