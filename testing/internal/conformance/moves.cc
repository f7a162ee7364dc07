// Collectives that only copy: gathers, all-to-all, messages, broadcasts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "testing/internal/conformance/conformance.h"
#include "testing/internal/conformance/memory.h"
#include "testing/internal/conformance/values.h"

namespace meshift::conformance {
namespace {

TEST_P(EngineConformance, AllGather) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (int d = 0; d < kNumDTypes; ++d) {
      const auto dtype = static_cast<DType>(d);
      for (const int64_t count : {0, 2, 38}) {
        const int64_t bytes = Bytes(dtype, count);
        for (const bool in_place : {false, true}) {
          Buffers send(job.size());
          Buffers recv(job.size());
          job.Run({[&](Engine& engine, int64_t r) {
                     send[r].Write(engine, streams(engine, r), Pattern(r, bytes));
                     Bytes8 before(bytes * job.size());
                     if (in_place) {
                       const Bytes8 own = Pattern(r, bytes);
                       std::copy(own.begin(), own.end(), before.begin() + r * bytes);
                     }
                     recv[r].Write(engine, streams(engine, r), std::move(before));
                     const void* in = in_place ? recv[r].data() + r * bytes : send[r].data();
                     MESHIFT_EXPECT_OK(engine.world()->AllGather(in, recv[r].data(), count, dtype,
                                                                 streams(engine, r)));
                   },
                   [&](Engine& engine, int64_t r) {
                     MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                     Bytes8 expected;
                     for (int64_t i = 0; i < job.size(); ++i) Append(Pattern(i, bytes), &expected);
                     EXPECT_EQ(recv[r].Read(engine, streams(engine, r)), expected);
                   }});
        }
      }
    }
  });
}

TEST_P(EngineConformance, AllGatherV) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (const DType dtype : {DType::kU8, DType::kF4E2M1, DType::kBF16, DType::kC128}) {
      for (const int kind : {0, 1, 2}) {
        const std::vector<int64_t> counts = RaggedCounts(job.size(), kind);
        Bytes8 expected;
        std::vector<int64_t> first;
        for (int64_t i = 0; i < job.size(); ++i) {
          first.push_back(static_cast<int64_t>(expected.size()));
          Append(Pattern(i, Bytes(dtype, counts[i])), &expected);
        }
        for (const bool in_place : {false, true}) {
          Buffers send(job.size());
          Buffers recv(job.size());
          job.Run({[&](Engine& engine, int64_t r) {
                     const Bytes8 own = Pattern(r, Bytes(dtype, counts[r]));
                     send[r].Write(engine, streams(engine, r), own);
                     Bytes8 before(expected.size());
                     if (in_place) std::copy(own.begin(), own.end(), before.begin() + first[r]);
                     recv[r].Write(engine, streams(engine, r), std::move(before));
                     const void* in = in_place ? recv[r].data() + first[r] : send[r].data();
                     MESHIFT_EXPECT_OK(engine.world()->AllGatherV(in, recv[r].data(), counts, dtype,
                                                                  streams(engine, r)));
                   },
                   [&](Engine& engine, int64_t r) {
                     MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                     EXPECT_TRUE(recv[r].Read(engine, streams(engine, r)) == expected)
                         << Name(dtype) << ", kind " << kind << ", rank " << r;
                   }});
        }
      }
    }
  });
}

TEST_P(EngineConformance, AllToAll) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (int d = 0; d < kNumDTypes; ++d) {
      const auto dtype = static_cast<DType>(d);
      for (const int64_t count : {0, 2, 38}) {
        const int64_t bytes = Bytes(dtype, count);
        Buffers send(job.size());
        Buffers recv(job.size());
        job.Run({[&](Engine& engine, int64_t r) {
                   send[r].Write(engine, streams(engine, r), Pattern(r, bytes * job.size()));
                   recv[r].Write(engine, streams(engine, r), Bytes8(bytes * job.size()));
                   MESHIFT_EXPECT_OK(engine.world()->AllToAll(send[r].data(), recv[r].data(), count,
                                                              dtype, streams(engine, r)));
                 },
                 [&](Engine& engine, int64_t r) {
                   MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                   Bytes8 expected;
                   for (int64_t i = 0; i < job.size(); ++i) {
                     Append(Slice(Pattern(i, bytes * job.size()), r * bytes, bytes), &expected);
                   }
                   EXPECT_EQ(recv[r].Read(engine, streams(engine, r)), expected);
                 }});
      }
    }
  });
}

// Every pair has a message of a different size; many have none, and one rank may have none at all.
TEST_P(EngineConformance, SendRecvOfUnevenMessages) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    const auto count = [](int64_t from, int64_t to) -> int64_t {
      if (from == to || from == 2 || to == 2) return 0;
      return (from * 3 + to * 5) % 4 * 6;
    };
    for (const DType dtype : {DType::kU8, DType::kBF16, DType::kC128, DType::kF4E2M1}) {
      std::vector<Buffers> send(job.size());
      std::vector<Buffers> recv(job.size());
      job.Run({[&](Engine& engine, int64_t r) {
                 std::vector<PeerMessage> sends;
                 std::vector<PeerMessage> recvs;
                 Stream& stream = streams(engine, r);
                 send[r] = Buffers(job.size());
                 recv[r] = Buffers(job.size());
                 for (int peer = 0; peer < job.size(); ++peer) {
                   send[r][peer].Write(engine, stream,
                                       Pattern(r * 100 + peer, Bytes(dtype, count(r, peer))));
                   recv[r][peer].Write(engine, stream, Bytes8(Bytes(dtype, count(peer, r))));
                   if (count(r, peer) > 0) {
                     sends.push_back({peer, send[r][peer].data(), count(r, peer)});
                   }
                   if (count(peer, r) > 0) {
                     recvs.insert(recvs.begin(), {peer, recv[r][peer].data(), count(peer, r)});
                   }
                 }
                 MESHIFT_EXPECT_OK(engine.world()->SendRecv(sends, recvs, dtype, stream));
               },
               [&](Engine& engine, int64_t r) {
                 MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                 for (int64_t peer = 0; peer < job.size(); ++peer) {
                   EXPECT_EQ(recv[r][peer].Read(engine, streams(engine, r)),
                             Pattern(peer * 100 + r, Bytes(dtype, count(peer, r))));
                 }
               }});
    }
  });
}

TEST_P(EngineConformance, BroadcastFromEveryRoot) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (int root = 0; root < job.size(); ++root) {
      for (const int64_t count : {0, 1, 100}) {
        Buffers data(job.size());
        job.Run({[&](Engine& engine, int64_t r) {
                   data[r].Write(engine, streams(engine, r), Pattern(r, Bytes(DType::kI32, count)));
                   MESHIFT_EXPECT_OK(engine.world()->Broadcast(data[r].data(), count, DType::kI32,
                                                               root, streams(engine, r)));
                 },
                 [&](Engine& engine, int64_t r) {
                   MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                   EXPECT_EQ(data[r].Read(engine, streams(engine, r)),
                             Pattern(root, Bytes(DType::kI32, count)));
                 }});
      }
    }
  });
}

}  // namespace
}  // namespace meshift::conformance
