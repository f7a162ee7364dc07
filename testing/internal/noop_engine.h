// An engine whose calls do nothing, and allocate nothing after the first time, so that measurements
// show the cost of the caller. For tests and benchmarks.
//
//   NoopEngine engine(/*rank=*/1, /*world_size=*/4);
#ifndef MESHIFT_TESTING_INTERNAL_NOOP_ENGINE_H_
#define MESHIFT_TESTING_INTERNAL_NOOP_ENGINE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/communicator.h"
#include "meshift/engine.h"

namespace meshift {

class NoopCommunicator final : public Communicator {
 public:
  NoopCommunicator(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::Status AllReduce(const void*, void*, int64_t, DType, const Reduction&, Stream&) override {
    return absl::OkStatus();
  }
  absl::Status ReduceScatter(const void*, void*, int64_t, DType, const Reduction&,
                             Stream&) override {
    return absl::OkStatus();
  }
  absl::Status AllGather(const void*, void*, int64_t, DType, Stream&) override {
    return absl::OkStatus();
  }
  absl::Status ReduceScatterV(const void*, void*, absl::Span<const int64_t>, DType,
                              const Reduction&, Stream&) override {
    return absl::OkStatus();
  }
  absl::Status AllGatherV(const void*, void*, absl::Span<const int64_t>, DType, Stream&) override {
    return absl::OkStatus();
  }
  absl::Status AllToAll(const void*, void*, int64_t, DType, Stream&) override {
    return absl::OkStatus();
  }
  absl::Status SendRecv(absl::Span<const PeerMessage>, absl::Span<const PeerMessage>, DType,
                        Stream&) override {
    return absl::OkStatus();
  }
  absl::Status Broadcast(void*, int64_t, DType, int, Stream&) override { return absl::OkStatus(); }
  absl::Status Barrier(Stream&) override { return absl::OkStatus(); }
  SymmetricSupport SupportOf(const SymmetricCall&) const override {
    return SymmetricSupport::kSameBits;
  }
  absl::Status CallSymmetric(const SymmetricCall&, Stream&) override { return absl::OkStatus(); }
  void Abort() override {}
  absl::Status Health() const override { return absl::OkStatus(); }
  std::string ToString() const override { return "noop"; }

 private:
  const int rank_;
  const int size_;
};

class NoopEngine : public Engine {
 public:
  NoopEngine(int64_t rank, int64_t world_size, ControlChannel* control = nullptr)
      : rank_(rank),
        world_(static_cast<int>(rank), static_cast<int>(world_size)),
        control_(control) {}

  const std::string& name() const override { return name_; }
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_.size(); }
  Communicator* world() override { return &world_; }
  ControlChannel* control() override { return control_; }
  absl::StatusOr<std::shared_ptr<Communicator>> Split(Communicator&,
                                                      absl::Span<const int64_t> ranks, int64_t,
                                                      const GroupOptions&) override {
    const auto self = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_shared<NoopCommunicator>(static_cast<int>(self),
                                              static_cast<int>(ranks.size()));
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return std::make_unique<NoopBuffer>(bytes);
  }
  absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> AllocateSymmetric(
      Communicator&, const SymmetricRequest& request) override {
    std::vector<std::unique_ptr<SymmetricBuffer>> buffers;
    for (int64_t i = 0; i < request.count; ++i) {
      buffers.push_back(std::make_unique<NoopSymmetric>(request.first + i, request.bytes));
    }
    return buffers;
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return std::make_unique<Stream>();
  }
  absl::StatusOr<std::shared_ptr<Event>> Record(Stream&) override {
    return std::make_shared<NoopEvent>();
  }
  absl::Status RecordInto(Stream&, std::shared_ptr<Event>* event) override {
    if (*event == nullptr) *event = std::make_shared<NoopEvent>();
    return absl::OkStatus();
  }
  absl::Status WaitFor(Stream&, std::shared_ptr<Event>) override { return absl::OkStatus(); }
  absl::Status Synchronize(Stream&) override { return absl::OkStatus(); }
  absl::Status Wait(const std::shared_ptr<Event>&) override { return absl::OkStatus(); }
  absl::Status CopyBoxes(absl::Span<const BoxCopy>, DType, Stream&) override {
    return absl::OkStatus();
  }
  absl::Status FillIdentity(void*, int64_t, DType, ReduceOp, Stream&) override {
    return absl::OkStatus();
  }
  absl::Status FillZero(void*, int64_t, Stream&) override { return absl::OkStatus(); }
  absl::Status Cast(const void*, DType, void*, DType, int64_t, Stream&) override {
    return absl::OkStatus();
  }
  absl::Status ReduceInOrder(absl::Span<const void* const>, void*, int64_t, DType, const Reduction&,
                             Stream&) override {
    return absl::OkStatus();
  }

 private:
  class NoopBuffer final : public Buffer {
   public:
    explicit NoopBuffer(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {}
    void* data() const override { return const_cast<char*>(bytes_.data()); }
    int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()); }

   private:
    std::vector<char> bytes_;
  };
  class NoopSymmetric final : public SymmetricBuffer {
   public:
    NoopSymmetric(int64_t number, int64_t bytes)
        : SymmetricBuffer(number), bytes_(static_cast<size_t>(bytes)) {}
    void* data() const override { return const_cast<char*>(bytes_.data()); }
    int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()); }

   private:
    std::vector<char> bytes_;
  };
  class NoopEvent final : public Event {
   public:
    int64_t ReachedNs() const override { return 1; }
  };

  const std::string name_ = "noop";
  const int64_t rank_;
  NoopCommunicator world_;
  ControlChannel* const control_;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_NOOP_ENGINE_H_
