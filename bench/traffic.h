// A communicator that moves no data and records how much each rank would send to each other one, so
// that the bytes of algorithms built from collectives are counted from their calls.
//
//   Traffic traffic(16);
//   TrafficCommunicator group(/*ranks=*/{0, 8}, /*member=*/1, Gather::kRing, &traffic);
//   group.AllGather(send, recv, 100, DType::kF32, stream);
//   traffic.bytes(8, 0);                     // 400
//   traffic.PerDomain(8);                    // the largest number that a domain of 8 sends to
//   others
//
// All-reduce, reduce-scatter and broadcast use a ring in the order of members, as NCCL does; an
// all-gather may also be direct, as in the MPI engine. Blocks of any sizes and barriers are not
// supported (UNIMPLEMENTED).
#ifndef MESHIFT_BENCH_TRAFFIC_H_
#define MESHIFT_BENCH_TRAFFIC_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/program/byte_count.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"

namespace meshift {

// Bytes between the ranks of a world.
class Traffic {
 public:
  explicit Traffic(int64_t ranks) : ranks_(ranks), bytes_(ranks * ranks, 0) {}

  void Add(int64_t from, int64_t to, int64_t bytes) { bytes_[from * ranks_ + to] += bytes; }
  int64_t bytes(int64_t from, int64_t to) const { return bytes_[from * ranks_ + to]; }
  // The most that one rank sends.
  int64_t PerRank() const {
    return Most(1, [](int64_t, int64_t) { return true; });
  }
  // The most that one rank receives.
  int64_t ReceivedPerRank() const {
    int64_t most = 0;
    for (int64_t to = 0; to < ranks_; ++to) {
      int64_t sum = 0;
      for (int64_t from = 0; from < ranks_; ++from) sum += bytes(from, to);
      most = std::max(most, sum);
    }
    return most;
  }
  // The most that one rank sends to others of its domain of `size` ranks.
  int64_t InsidePerRank(int64_t size) const {
    return Most(1, [size](int64_t from, int64_t to) { return from / size == to / size; });
  }
  // The most that the ranks of one domain together send to other domains.
  int64_t PerDomain(int64_t size) const {
    return Most(size, [size](int64_t from, int64_t to) { return from / size != to / size; });
  }

 private:
  // The largest number of bytes, of those that `counts` selects, that `senders` neighbours send
  // together.
  template <typename Counts>
  int64_t Most(int64_t senders, Counts counts) const {
    std::vector<int64_t> sums((ranks_ + senders - 1) / senders, 0);
    for (int64_t from = 0; from < ranks_; ++from) {
      for (int64_t to = 0; to < ranks_; ++to) {
        if (counts(from, to)) sums[from / senders] += bytes(from, to);
      }
    }
    return *std::max_element(sums.begin(), sums.end());
  }

  const int64_t ranks_;
  std::vector<int64_t> bytes_;
};

enum class Gather : uint8_t { kRing, kDirect };

class TrafficCommunicator final : public Communicator {
 public:
  TrafficCommunicator(std::vector<int64_t> ranks, int member, Gather gather, Traffic* traffic)
      : ranks_(std::move(ranks)), member_(member), gather_(gather), traffic_(traffic) {}

  int rank() const override { return member_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  absl::Status AllReduce(const void*, void*, int64_t count, DType dtype, const Reduction&,
                         Stream&) override {
    return ToNext(AllReduceBytes(Bytes(dtype, count), size()));
  }
  absl::Status ReduceScatter(const void*, void*, int64_t recv_count, DType dtype, const Reduction&,
                             Stream&) override {
    return ToNext(BlockBytes(Bytes(dtype, recv_count), size()));
  }
  absl::Status AllGather(const void*, void*, int64_t send_count, DType dtype, Stream&) override {
    const int64_t block = Bytes(dtype, send_count);
    if (gather_ == Gather::kRing) return ToNext(BlockBytes(block, size()));
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != member_) Send(peer, block);
    }
    return absl::OkStatus();
  }
  absl::Status AllToAll(const void*, void*, int64_t count, DType dtype, Stream&) override {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != member_) Send(peer, Bytes(dtype, count));
    }
    return absl::OkStatus();
  }
  absl::Status SendRecv(absl::Span<const PeerMessage> sends, absl::Span<const PeerMessage>,
                        DType dtype, Stream&) override {
    for (const PeerMessage& message : sends) Send(message.peer, Bytes(dtype, message.count));
    return absl::OkStatus();
  }
  // The last member before the root forwards nothing.
  absl::Status Broadcast(void*, int64_t count, DType dtype, int root, Stream&) override {
    if ((member_ + 1) % size() == root) return absl::OkStatus();
    return ToNext(Bytes(dtype, count));
  }
  absl::Status ReduceScatterV(const void*, void*, absl::Span<const int64_t>, DType,
                              const Reduction&, Stream&) override {
    return absl::UnimplementedError("reduce_scatter_v is not counted");
  }
  absl::Status AllGatherV(const void*, void*, absl::Span<const int64_t>, DType, Stream&) override {
    return absl::UnimplementedError("all_gather_v is not counted");
  }
  absl::Status Barrier(Stream&) override {
    return absl::UnimplementedError("barrier is not counted");
  }
  void Abort() override {}
  absl::Status Health() const override { return absl::OkStatus(); }
  std::string ToString() const override { return "counted"; }

 private:
  void Send(int peer, int64_t bytes) { traffic_->Add(ranks_[member_], ranks_[peer], bytes); }
  absl::Status ToNext(int64_t bytes) {
    Send((member_ + 1) % size(), bytes);
    return absl::OkStatus();
  }

  const std::vector<int64_t> ranks_;
  const int member_;
  const Gather gather_;
  Traffic* const traffic_;
};

}  // namespace meshift

#endif  // MESHIFT_BENCH_TRAFFIC_H_
