// An engine that does nothing but record its calls. For tests.
//
//   FakeEngine engine(/*rank=*/1, /*world_size=*/4);
//   ...
//   engine.log();            // {"split 1 of {2,3}", "all_gather 8 f32", ...}
//   engine.FailOn("all_gather", absl::InternalError("cable"));
#ifndef MESHIFT_TESTING_INTERNAL_FAKE_ENGINE_H_
#define MESHIFT_TESTING_INTERNAL_FAKE_ENGINE_H_

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "meshift/communicator.h"
#include "meshift/engine.h"
#include "meshift/planner_options.h"

namespace meshift {

// Shared by the engine and its communicators.
struct FakeLog {
  std::vector<std::string> lines;
  std::map<std::string, absl::Status> failures;  // by the first word of the line
  int aborts = 0;

  absl::Status Add(std::string line) {
    const std::string word = line.substr(0, line.find(' '));
    lines.push_back(std::move(line));
    const auto it = failures.find(word);
    return it == failures.end() ? absl::OkStatus() : it->second;
  }
};

class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(std::vector<int64_t> ranks, int64_t rank, FakeLog* log)
      : ranks_(std::move(ranks)), rank_(rank), log_(log) {}

  const std::vector<int64_t>& ranks() const { return ranks_; }
  int rank() const override {
    return static_cast<int>(std::find(ranks_.begin(), ranks_.end(), rank_) - ranks_.begin());
  }
  int size() const override { return static_cast<int>(ranks_.size()); }

  absl::Status AllReduce(const void*, void*, int64_t count, DType dtype, const Reduction& reduction,
                         Stream&) override {
    return log_->Add(fmt::format("all_reduce {} {} {}", count, Name(dtype), Name(reduction.op)));
  }
  absl::Status ReduceScatter(const void*, void*, int64_t count, DType dtype,
                             const Reduction& reduction, Stream&) override {
    return log_->Add(
        fmt::format("reduce_scatter {} {} {}", count, Name(dtype), Name(reduction.op)));
  }
  absl::Status AllGather(const void*, void*, int64_t count, DType dtype, Stream&) override {
    return log_->Add(fmt::format("all_gather {} {}", count, Name(dtype)));
  }
  absl::Status ReduceScatterV(const void*, void*, absl::Span<const int64_t> counts, DType dtype,
                              const Reduction& reduction, Stream&) override {
    return log_->Add(fmt::format("reduce_scatter {} {} {}", fmt::join(counts, ","), Name(dtype),
                                 Name(reduction.op)));
  }
  absl::Status AllGatherV(const void*, void*, absl::Span<const int64_t> counts, DType dtype,
                          Stream&) override {
    return log_->Add(fmt::format("all_gather {} {}", fmt::join(counts, ","), Name(dtype)));
  }
  absl::Status AllToAll(const void*, void*, int64_t count, DType dtype, Stream&) override {
    return log_->Add(fmt::format("all_to_all {} {}", count, Name(dtype)));
  }
  absl::Status SendRecv(absl::Span<const PeerMessage> sends, absl::Span<const PeerMessage> recvs,
                        DType dtype, Stream&) override {
    return log_->Add(
        fmt::format("send_recv {} sends {} recvs {}", sends.size(), recvs.size(), Name(dtype)));
  }
  absl::Status Broadcast(void*, int64_t count, DType dtype, int root, Stream&) override {
    return log_->Add(fmt::format("broadcast {} {} from {}", count, Name(dtype), root));
  }
  absl::Status Barrier(Stream&) override { return log_->Add("barrier"); }
  void Abort() override { ++log_->aborts; }
  absl::Status Health() const override { return absl::OkStatus(); }
  std::string ToString() const override { return fmt::format("{{{}}}", fmt::join(ranks_, ",")); }

 private:
  const std::vector<int64_t> ranks_;
  const int64_t rank_;
  FakeLog* const log_;
};

class FakeEngine final : public Engine {
 public:
  FakeEngine(int64_t rank, int64_t world_size)
      : rank_(rank), world_(Iota(world_size), rank, &log_) {}

  const std::vector<std::string>& log() const { return log_.lines; }
  int aborts() const { return log_.aborts; }
  int allocations() const { return allocations_; }
  void ClearLog() { log_.lines.clear(); }
  // Makes calls whose line begins with `word` fail from now on.
  void FailOn(const std::string& word, absl::Status status) {
    log_.failures[word] = std::move(status);
  }

  // Sets the engine's capabilities, which otherwise follow from its name.
  void SetCapabilities(EngineCapabilities capabilities) { capabilities_ = std::move(capabilities); }

  const std::string& name() const override { return name_; }
  EngineCapabilities Capabilities() const override {
    return capabilities_.value_or(Engine::Capabilities());
  }
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_.size(); }
  Communicator* world() override { return &world_; }
  absl::StatusOr<std::shared_ptr<Communicator>> Split(Communicator& parent,
                                                      absl::Span<const int64_t> ranks,
                                                      int64_t group,
                                                      const GroupOptions& options) override {
    const std::string text = options.ToString();
    const absl::Status status =
        log_.Add(fmt::format("split {} of {}: {{{}}}{}{}", group, parent.ToString(),
                             fmt::join(ranks, ","), text.empty() ? "" : ", ", text));
    if (!status.ok()) return status;
    return std::make_shared<FakeCommunicator>(std::vector<int64_t>(ranks.begin(), ranks.end()),
                                              rank_, &log_);
  }
  absl::Status SplitNoColor(Communicator& parent) override {
    return log_.Add(fmt::format("skip_split of {}", parent.ToString()));
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    ++allocations_;
    return std::make_unique<FakeBuffer>(bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return std::make_unique<Stream>();
  }
  absl::StatusOr<std::shared_ptr<Event>> Record(Stream&) override {
    return std::make_shared<FakeEvent>(++events_);
  }
  absl::Status WaitFor(Stream&, std::shared_ptr<Event>) override { return absl::OkStatus(); }
  absl::Status Synchronize(Stream&) override { return log_.Add("synchronize"); }
  absl::Status Wait(const std::shared_ptr<Event>&) override { return log_.Add("wait"); }
  absl::Status CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, Stream&) override {
    return log_.Add(fmt::format("copy {} {}", copies.size(), Name(dtype)));
  }
  absl::Status FillIdentity(void*, int64_t count, DType dtype, ReduceOp op, Stream&) override {
    return log_.Add(fmt::format("fill_identity {} {} {}", count, Name(dtype), Name(op)));
  }
  absl::Status FillZero(void*, int64_t bytes, Stream&) override {
    return log_.Add(fmt::format("fill_zero {}", bytes));
  }
  absl::Status Cast(const void*, DType src_dtype, void*, DType dst_dtype, int64_t count,
                    Stream&) override {
    return log_.Add(fmt::format("cast {} {} to {}", count, Name(src_dtype), Name(dst_dtype)));
  }
  absl::Status ReduceInOrder(absl::Span<const void* const> inputs, void*, int64_t count,
                             DType dtype, const Reduction& reduction, Stream&) override {
    return log_.Add(fmt::format("reduce_in_order {} inputs {} {} {}", inputs.size(), count,
                                Name(dtype), Name(reduction.op)));
  }

 private:
  class FakeBuffer final : public Buffer {
   public:
    explicit FakeBuffer(int64_t bytes) : data_(static_cast<size_t>(bytes)) {}
    void* data() const override { return const_cast<char*>(data_.data()); }
    int64_t size_bytes() const override { return static_cast<int64_t>(data_.size()); }

   private:
    std::vector<char> data_;
  };
  class FakeEvent final : public Event {
   public:
    explicit FakeEvent(int64_t ns) : ns_(ns) {}
    int64_t ReachedNs() const override { return ns_; }

   private:
    const int64_t ns_;
  };
  static std::vector<int64_t> Iota(int64_t n) {
    std::vector<int64_t> ranks(n);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  const std::string name_ = "fake";
  std::optional<EngineCapabilities> capabilities_;
  const int64_t rank_;
  FakeLog log_;
  FakeCommunicator world_;
  int allocations_ = 0;
  int64_t events_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_TESTING_INTERNAL_FAKE_ENGINE_H_
