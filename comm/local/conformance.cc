#include "comm/local/conformance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/engine.h"
#include "comm/kernels/small_float.h"
#include "placement/dtype.h"
#include "placement/op_table.h"
#include "placement/placement.h"

namespace meshift {
namespace {

using Bytes8 = std::vector<uint8_t>;

// `value` as an element of `dtype`, at the end of `out`.
template <typename T>
void Put(T value, Bytes8* out) {
  out->resize(out->size() + sizeof(T));
  std::memcpy(out->data() + out->size() - sizeof(T), &value, sizeof(T));
}

void Encode(DType dtype, float value, Bytes8* out) {
  const auto integer = static_cast<int64_t>(value);
  switch (dtype) {
    case DType::kBool:
      return Put<uint8_t>(integer != 0, out);
    case DType::kI8:
    case DType::kU8:
      return Put(static_cast<uint8_t>(integer), out);
    case DType::kI16:
    case DType::kU16:
      return Put(static_cast<uint16_t>(integer), out);
    case DType::kI32:
    case DType::kU32:
      return Put(static_cast<uint32_t>(integer), out);
    case DType::kI64:
    case DType::kU64:
      return Put(integer, out);
    case DType::kF16:
      return Put(F16::FromFloat(value), out);
    case DType::kBF16:
      return Put(BF16::FromFloat(value), out);
    case DType::kF32:
      return Put(value, out);
    case DType::kF64:
      return Put(static_cast<double>(value), out);
    case DType::kF8E4M3:
      return Put(F8E4M3::FromFloat(value), out);
    case DType::kF8E5M2:
      return Put(F8E5M2::FromFloat(value), out);
    case DType::kC64:
      return Put(std::complex<float>(value, 0), out);
    case DType::kC128:
      return Put(std::complex<double>(value, 0), out);
    case DType::kF4E2M1:
      return;  // nothing reduces it
  }
}

// Small, so that sums and products of eight of them are exact or round in one way; a dropped or
// doubled contribution shows.
int64_t Value(DType dtype, ReduceOp op, int64_t rank, int64_t i) {
  if (dtype == DType::kBool) return (rank + i) % 3 != 0 ? 1 : 0;
  if (op == ReduceOp::kProduct) return (rank + i) % 2 + 1;
  return (rank * 5 + i * 3) % 4;
}

// By definition; averages divide by `size`.
float Expected(DType dtype, ReduceOp op, int64_t size, int64_t i) {
  int64_t result = Value(dtype, op, 0, i);
  for (int64_t r = 1; r < size; ++r) {
    const int64_t value = Value(dtype, op, r, i);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        result += value;
        break;
      case ReduceOp::kProduct:
        result *= value;
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      case ReduceOp::kAnd:
        result &= value;
        break;
      case ReduceOp::kOr:
        result |= value;
        break;
      case ReduceOp::kXor:
        result ^= value;
        break;
    }
  }
  if (op != ReduceOp::kAvg) return static_cast<float>(result);
  if (IsInteger(dtype)) result /= size;
  if (IsInteger(dtype)) return static_cast<float>(result);
  return static_cast<float>(result) / static_cast<float>(size);
}

// In wider types a third has other digits than in f32.
bool IsInexactAverage(DType dtype, ReduceOp op, int64_t size) {
  const bool wide = dtype == DType::kF64 || dtype == DType::kC128;
  return op == ReduceOp::kAvg && wide && (size & (size - 1)) != 0;
}

Bytes8 Contribution(DType dtype, ReduceOp op, int64_t rank, int64_t count) {
  Bytes8 bytes;
  for (int64_t i = 0; i < count; ++i) {
    Encode(dtype, static_cast<float>(Value(dtype, op, rank, i)), &bytes);
  }
  return bytes;
}

Bytes8 Result(DType dtype, ReduceOp op, int64_t size, int64_t first, int64_t count) {
  Bytes8 bytes;
  for (int64_t i = first; i < first + count; ++i) {
    Encode(dtype, Expected(dtype, op, size, i), &bytes);
  }
  return bytes;
}

// Any bytes, for collectives that only copy.
Bytes8 Pattern(int64_t seed, int64_t bytes) {
  Bytes8 result(bytes);
  for (int64_t i = 0; i < bytes; ++i) {
    result[i] = static_cast<uint8_t>(seed * 101 + i * 7 + i / 256);
  }
  return result;
}

Bytes8 Slice(const Bytes8& bytes, int64_t first, int64_t count) {
  return Bytes8(bytes.begin() + first, bytes.begin() + first + count);
}

void Append(const Bytes8& more, Bytes8* bytes) {
  bytes->insert(bytes->end(), more.begin(), more.end());
}

// MESHIFT_TEST_FRACTION = n runs one case in n.
int64_t TestFraction() {
  const char* text = std::getenv("MESHIFT_TEST_FRACTION");
  return text == nullptr ? 1 : std::max<int64_t>(1, std::atoll(text));
}

// All dtypes and ops; where only one case in n is run, `salt` says which.
void ForEachReduction(int64_t salt, const std::function<void(DType, ReduceOp)>& visit) {
  int64_t number = salt;
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      if (!CheckReduce(static_cast<ReduceOp>(o), static_cast<DType>(d)).ok()) continue;
      if (number++ % TestFraction() == 0) visit(static_cast<DType>(d), static_cast<ReduceOp>(o));
    }
  }
}

std::string Text(DType dtype, ReduceOp op, int64_t size, int64_t rank, int64_t count) {
  return fmt::format("{} of {} x {}, rank {} of {}", Name(op), count, Name(dtype), rank, size);
}

// The streams of all ranks that live here, made on first use.
class Streams {
 public:
  explicit Streams(int64_t size) : streams_(size) {}
  Stream& operator()(Engine& engine, int64_t rank) {
    if (streams_[rank] == nullptr) {
      auto stream = engine.CreateStream();
      if (!stream.ok()) {
        ADD_FAILURE() << stream.status();
        return *streams_[rank];
      }
      streams_[rank] = *std::move(stream);
    }
    return *streams_[rank];
  }

 private:
  std::vector<std::unique_ptr<Stream>> streams_;
};

// Per rank; written by the rank's own thread.
using Buffers = std::vector<Bytes8>;

#define MESHIFT_EXPECT_OK(expr) EXPECT_EQ(Message(expr), "")

TEST_P(EngineConformance, AllReduce) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    for (const int64_t count : {0, 1, 37}) {
      ForEachReduction(job.size() + count, [&](DType dtype, ReduceOp op) {
        if (IsInexactAverage(dtype, op, job.size())) return;
        for (const bool in_place : {false, true}) {
          Buffers send(job.size());
          Buffers recv(job.size());
          job.Run(
              {[&](Engine& engine, int64_t r) {
                 send[r] = Contribution(dtype, op, r, count);
                 recv[r].resize(send[r].size());
                 void* out = in_place ? send[r].data() : recv[r].data();
                 MESHIFT_EXPECT_OK(engine.world()->AllReduce(send[r].data(), out, count, dtype,
                                                             {op, job.size()}, streams(engine, r)));
               },
               [&](Engine& engine, int64_t r) {
                 MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                 EXPECT_EQ(in_place ? send[r] : recv[r], Result(dtype, op, job.size(), 0, count))
                     << Text(dtype, op, job.size(), r, count);
               }});
        }
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
                     send[r] = Contribution(dtype, op, r, count * job.size());
                     recv[r].resize(bytes);
                     void* out = in_place ? send[r].data() + r * bytes : recv[r].data();
                     MESHIFT_EXPECT_OK(engine.world()->ReduceScatter(
                         send[r].data(), out, count, dtype, {op, job.size()}, streams(engine, r)));
                   },
                   [&](Engine& engine, int64_t r) {
                     MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                     EXPECT_EQ(in_place ? Slice(send[r], r * bytes, bytes) : recv[r],
                               Result(dtype, op, job.size(), r * count, count))
                         << Text(dtype, op, job.size(), r, count);
                   }});
        }
      });
    }
  });
}

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
                     send[r] = Pattern(r, bytes);
                     recv[r].resize(bytes * job.size());
                     const void* in = send[r].data();
                     if (in_place) {
                       std::copy(send[r].begin(), send[r].end(), recv[r].begin() + r * bytes);
                       in = recv[r].data() + r * bytes;
                     }
                     MESHIFT_EXPECT_OK(engine.world()->AllGather(in, recv[r].data(), count, dtype,
                                                                 streams(engine, r)));
                   },
                   [&](Engine& engine, int64_t r) {
                     MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                     Bytes8 expected;
                     for (int64_t i = 0; i < job.size(); ++i) Append(Pattern(i, bytes), &expected);
                     EXPECT_EQ(recv[r], expected);
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
                   send[r] = Pattern(r, bytes * job.size());
                   recv[r].resize(bytes * job.size());
                   MESHIFT_EXPECT_OK(engine.world()->AllToAll(send[r].data(), recv[r].data(), count,
                                                              dtype, streams(engine, r)));
                 },
                 [&](Engine& engine, int64_t r) {
                   MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                   Bytes8 expected;
                   for (int64_t i = 0; i < job.size(); ++i) {
                     Append(Slice(Pattern(i, bytes * job.size()), r * bytes, bytes), &expected);
                   }
                   EXPECT_EQ(recv[r], expected);
                 }});
      }
    }
  });
}

// Every pair has a message of its own size; many have none, and one rank may have none at all.
TEST_P(EngineConformance, SendRecvOfUnevenMessages) {
  ForEachSize([](ConformanceJob& job) {
    Streams streams(job.size());
    const auto count = [](int64_t from, int64_t to) -> int64_t {
      if (from == to || from == 2 || to == 2) return 0;
      return (from * 3 + to * 5) % 4 * 6;
    };
    for (const DType dtype : {DType::kU8, DType::kBF16, DType::kC128, DType::kF4E2M1}) {
      std::vector<Buffers> send(job.size(), Buffers(job.size()));
      std::vector<Buffers> recv(job.size(), Buffers(job.size()));
      job.Run({[&](Engine& engine, int64_t r) {
                 std::vector<PeerMessage> sends;
                 std::vector<PeerMessage> recvs;
                 for (int peer = 0; peer < job.size(); ++peer) {
                   send[r][peer] = Pattern(r * 100 + peer, Bytes(dtype, count(r, peer)));
                   recv[r][peer].resize(Bytes(dtype, count(peer, r)));
                   if (count(r, peer) > 0) {
                     sends.push_back({peer, send[r][peer].data(), count(r, peer)});
                   }
                   if (count(peer, r) > 0) {
                     recvs.insert(recvs.begin(), {peer, recv[r][peer].data(), count(peer, r)});
                   }
                 }
                 MESHIFT_EXPECT_OK(
                     engine.world()->SendRecv(sends, recvs, dtype, streams(engine, r)));
               },
               [&](Engine& engine, int64_t r) {
                 MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                 for (int64_t peer = 0; peer < job.size(); ++peer) {
                   EXPECT_EQ(recv[r][peer], Pattern(peer * 100 + r, Bytes(dtype, count(peer, r))));
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
                   data[r] = Pattern(r, Bytes(DType::kI32, count));
                   MESHIFT_EXPECT_OK(engine.world()->Broadcast(data[r].data(), count, DType::kI32,
                                                               root, streams(engine, r)));
                 },
                 [&](Engine& engine, int64_t r) {
                   MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
                   EXPECT_EQ(data[r], Pattern(root, Bytes(DType::kI32, count)));
                 }});
      }
    }
  });
}

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

// Even and odd ranks sum among themselves, and then across, without waiting in between.
TEST_P(EngineConformance, SplitsIntoGroups) {
  ForEachSize([](ConformanceJob& job) {
    if (job.size() < 4) return;
    Streams streams(job.size());
    std::vector<std::shared_ptr<Communicator>> groups(job.size());
    std::vector<int64_t> sums(job.size());
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
               sums[r] = r + 1;
               for (Communicator* c : {groups[r].get(), engine.world()}) {
                 MESHIFT_EXPECT_OK(c->AllReduce(&sums[r], &sums[r], 1, DType::kI64,
                                                {ReduceOp::kSum, 1}, streams(engine, r)));
               }
             },
             [&](Engine& engine, int64_t r) {
               MESHIFT_EXPECT_OK(engine.Synchronize(streams(engine, r)));
               int64_t expected = 0;
               for (int64_t a = 0; a < job.size(); ++a) {
                 for (const int64_t b : ranks_of(a % 2)) expected += b + 1;
               }
               EXPECT_EQ(sums[r], expected);
             }});
  });
}

// The second stream copies what the first has gathered, and the first waits before it goes on.
TEST_P(EngineConformance, EventsOrderStreams) {
  ForEachSize([](ConformanceJob& job) {
    Streams first(job.size());
    Streams second(job.size());
    std::vector<std::vector<int32_t>> gathered(job.size());
    std::vector<std::vector<int32_t>> copied(job.size());
    std::vector<std::shared_ptr<Event>> events(job.size());
    constexpr int32_t kRounds = 20;
    job.Run({[&](Engine& engine, int64_t r) {
               gathered[r].resize(job.size());
               copied[r].resize(kRounds * job.size());
               for (int32_t round = 0; round < kRounds; ++round) {
                 auto* own = &gathered[r][r];
                 const BoxCopy next{&copied[r][round * job.size()], own, {1}, {1}, {1}};
                 if (round == 0) *own = static_cast<int32_t>(r);
                 if (round > 0) {
                   const BoxCopy last{&copied[r][(round - 1) * job.size() + r], own, {1}, {1}, {1}};
                   MESHIFT_EXPECT_OK(engine.CopyBoxes({last}, DType::kI32, first(engine, r)));
                 }
                 MESHIFT_EXPECT_OK(engine.world()->AllGather(own, gathered[r].data(), 1,
                                                             DType::kI32, first(engine, r)));
                 auto event = engine.Record(first(engine, r));
                 ASSERT_TRUE(event.ok());
                 MESHIFT_EXPECT_OK(engine.WaitFor(second(engine, r), *event));
                 const BoxCopy copy{
                     gathered[r].data(), &copied[r][round * job.size()], {job.size()}, {1}, {1}};
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
               for (int64_t i = 0; i < kRounds * job.size(); ++i) {
                 EXPECT_EQ(copied[r][i], i % job.size());
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
               std::vector<float> result(6);
               ASSERT_NE(targets[r], nullptr);
               std::memcpy(result.data(), targets[r]->data(), 6 * 4);
               EXPECT_EQ(result, (std::vector<float>{1, 1, 1, 1, 0, 1}));
               std::vector<int64_t> integers(6);
               std::memcpy(integers.data(), static_cast<char*>(targets[r]->data()) + 6 * 4, 6 * 8);
               EXPECT_EQ(integers, (std::vector<int64_t>{1, 1, 1, 1, 0, 1}));
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

void EngineConformance::ForEachSize(const std::function<void(ConformanceJob&)>& test) const {
  for (const int size : GetParam().sizes) {
    SCOPED_TRACE(fmt::format("{} ranks", size));
    const std::unique_ptr<ConformanceJob> job = GetParam().make(size);
    ASSERT_NE(job, nullptr);
    test(*job);
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EngineConformance);

}  // namespace meshift
