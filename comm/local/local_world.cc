#include "meshift/local_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/ranges_text.h"
#include "base/status.h"
#include "comm/engine/host_memory.h"
#include "comm/kernels/cast.h"
#include "comm/kernels/float_environment.h"
#include "comm/kernels/identity.h"
#include "comm/kernels/reduce.h"
#include "comm/local/group.h"
#include "comm/local/local_communicator.h"
#include "comm/local/local_kernels.h"
#include "comm/local/reduction_order.h"
#include "comm/local/scheduler.h"
#include "comm/local/symmetric.h"
#include "meshift/bootstrap.h"
#include "meshift/communicator.h"
#include "meshift/device_mesh.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "meshift/status.h"

namespace meshift {
namespace {

// Counts the memory that one rank has allocated.
class Memory {
 public:
  void Add(int64_t bytes) {
    const MutexLock lock(mutex_);
    stats_.bytes_in_use += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.bytes_in_use);
  }
  MemoryStats stats() const {
    const MutexLock lock(mutex_);
    return stats_;
  }

 private:
  mutable Mutex mutex_;
  MemoryStats stats_ MESHIFT_GUARDED_BY(mutex_);
};

// The groups made by Split() calls, each until all its members have called. The n-th calls of
// members with equal arguments mean the same group.
class Splits {
 public:
  explicit Splits(int64_t first_id) : next_id_(first_id) {}

  // Whether one of the last kChecked calls of SetChecked() had this parent and this list, or a
  // RankList that shares its memory. An equal list with its own memory does not count.
  bool IsChecked(int64_t parent, const RankList& ranks) const {
    const MutexLock lock(mutex_);
    return std::any_of(checked_.begin(), checked_.end(), [&](const auto& checked) {
      return checked.first == parent && checked.second.IsSameAs(ranks);
    });
  }
  void SetChecked(int64_t parent, const RankList& ranks) {
    const MutexLock lock(mutex_);
    checked_.emplace_back(parent, ranks);
    if (checked_.size() > kChecked) checked_.pop_front();
  }

  std::shared_ptr<Group> Get(int64_t parent, const RankList& ranks, int64_t number,
                             const GroupOptions& options, int member) {
    const MutexLock lock(mutex_);
    const auto [it, is_new] = pending_.try_emplace(Key(parent, ranks, number, options.ToString()));
    PendingGroups& pending = it->second;
    if (is_new) pending.calls.resize(ranks.size());
    const auto index = static_cast<size_t>(pending.calls[member]++ - pending.first);
    if (index == pending.groups.size()) {
      pending.groups.push_back({std::make_shared<Group>(ranks, number, next_id_++), 0});
    }
    std::shared_ptr<Group> group = pending.groups[index].group;
    if (++pending.groups[index].members == group->size()) {
      // Each member gets the groups of a key in order, so the first is complete first.
      pending.groups.pop_front();
      ++pending.first;
    }
    if (pending.groups.empty()) pending_.erase(it);
    return group;
  }

 private:
  // The parent's id, ranks, group number, options.
  using Key = std::tuple<int64_t, RankList, int64_t, std::string>;
  static constexpr size_t kChecked = 64;
  struct Entry {
    std::shared_ptr<Group> group;
    int members = 0;
  };
  struct PendingGroups {
    std::vector<int64_t> calls;  // number of calls, by member
    int64_t first = 0;           // the number of groups[0]
    std::deque<Entry> groups;
  };

  mutable Mutex mutex_;
  int64_t next_id_ MESHIFT_GUARDED_BY(mutex_);
  std::deque<std::pair<int64_t, RankList>> checked_ MESHIFT_GUARDED_BY(mutex_);
  absl::flat_hash_map<Key, PendingGroups> pending_ MESHIFT_GUARDED_BY(mutex_);
};

class LocalBuffer final : public Buffer {
 public:
  LocalBuffer(HostMemory data, int64_t size_bytes, std::shared_ptr<Memory> memory)
      : data_(std::move(data)), size_bytes_(size_bytes), memory_(std::move(memory)) {
    memory_->Add(size_bytes_);
  }
  ~LocalBuffer() override { memory_->Add(-size_bytes_); }
  void* data() const override { return data_.get(); }
  int64_t size_bytes() const override { return size_bytes_; }

 private:
  const HostMemory data_;
  const int64_t size_bytes_;
  const std::shared_ptr<Memory> memory_;
};

// State that the engines of a world share.
struct World {
  explicit World(const LocalWorldOptions& options)
      : settings{options.reduction_order, options.domain_size},
        scheduler(std::make_shared<Scheduler>(options.num_workers, Timeouts::Of(options.timeout))) {
  }
  ReductionSettings settings;
  std::shared_ptr<Scheduler> scheduler;
  Splits splits{1};
  LocalSymmetricSets symmetric;
};

absl::Status CheckSplit(const Group& parent, const RankList& ranks) {
  const RankList& all = parent.ranks();
  if (ranks.size() < 2) {
    return InvalidArgument("group {{{}}} has fewer than two ranks", RangesText(ranks));
  }
  // std::includes needs sorted ranks; strict order also excludes duplicates.
  if (std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end()) {
    return InvalidArgument("the ranks of group {{{}}} are not strictly ascending",
                           RangesText(ranks));
  }
  if (!std::includes(all.begin(), all.end(), ranks.begin(), ranks.end())) {
    return InvalidArgument("group {{{}}} is not part of {}", RangesText(ranks), parent.ToString());
  }
  return absl::OkStatus();
}

class LocalEngine final : public Engine {
 public:
  LocalEngine(World* world, std::shared_ptr<Group> everyone, int64_t rank, ControlChannel* control)
      : world_(world),
        rank_(rank),
        control_(control),
        communicator_(world->scheduler, &world->settings, std::move(everyone),
                      static_cast<int>(rank)) {
    // The ranks of one process share the memory for records. No watchdog: without workers work
    // advances only while a thread waits.
    constexpr int64_t kMaxCalls = 2000;
    constexpr int64_t kCallsOfAllRanks = 1 << 15;
    const int64_t calls =
        std::clamp<int64_t>(kCallsOfAllRanks / communicator_.size(), 16, kMaxCalls);
    SetRecord({.calls = calls, .watchdog = false}).IgnoreError();
  }

  const std::string& name() const override { return name_; }
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return communicator_.size(); }
  Communicator* world() override { return &communicator_; }
  ControlChannel* control() override { return control_; }
  absl::Status SetTimeouts(const Timeouts& timeouts) override {
    return world_->scheduler->timeouts().Set(timeouts);
  }
  Timeouts timeouts() const override { return world_->scheduler->timeouts().Get(); }
  // About the bytes that a core copies in a collective's start-up time.
  std::optional<int64_t> CoalesceBytes() const override { return int64_t{4} << 10; }
  MemoryStats memory() const { return memory_->stats(); }

  absl::StatusOr<std::shared_ptr<Communicator>> Split(Communicator& parent,
                                                      absl::Span<const int64_t> ranks,
                                                      int64_t group,
                                                      const GroupOptions& options) override;
  absl::StatusOr<std::shared_ptr<Communicator>> SplitList(Communicator& parent,
                                                          const RankList& ranks, int64_t group,
                                                          const GroupOptions& options) override;
  bool SplitsFreely() const override { return true; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> AllocateSymmetric(
      Communicator& communicator, const SymmetricRequest& request) override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override;
  absl::StatusOr<std::shared_ptr<Event>> Record(Stream& stream) override;
  absl::Status RecordInto(Stream& stream, std::shared_ptr<Event>* event) override;
  absl::Status WaitFor(Stream& stream, std::shared_ptr<Event> event) override;
  absl::Status Synchronize(Stream& stream) override;
  absl::Status Wait(const std::shared_ptr<Event>& event) override;
  absl::Status CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, Stream& stream) override;
  absl::Status FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                            Stream& stream) override;
  absl::Status FillZero(void* data, int64_t bytes, Stream& stream) override;
  absl::Status Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count,
                    Stream& stream) override;
  absl::Status ReduceInOrder(absl::Span<const void* const> inputs, void* out, int64_t count,
                             DType dtype, const Reduction& reduction, Stream& stream) override;

 private:
  absl::StatusOr<LocalCommunicator*> AsOwn(Communicator& communicator) const {
    auto* local = dynamic_cast<LocalCommunicator*>(&communicator);
    if (local == nullptr || local->scheduler() != world_->scheduler.get() ||
        local->group().ranks()[local->rank()] != rank_) {
      return InvalidArgument("rank {} is not a member of the communicator {}", rank_,
                             communicator.ToString());
    }
    return local;
  }
  absl::StatusOr<LocalStream*> AsLocal(Stream& stream) const {
    return AsLocalStream(stream, *world_->scheduler, rank_);
  }
  absl::Status Fill(const std::array<uint8_t, 16>& element, int64_t element_bytes, void* data,
                    int64_t count, Stream& stream);

  const std::string name_ = "local";
  World* const world_;
  const int64_t rank_;
  ControlChannel* const control_;
  const std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  LocalCommunicator communicator_;
};

absl::StatusOr<std::shared_ptr<Communicator>> LocalEngine::Split(Communicator& parent,
                                                                 absl::Span<const int64_t> ranks,
                                                                 int64_t group,
                                                                 const GroupOptions& options) {
  return SplitList(parent, RankList({ranks.begin(), ranks.end()}), group, options);
}

absl::StatusOr<std::shared_ptr<Communicator>> LocalEngine::SplitList(Communicator& parent,
                                                                     const RankList& ranks,
                                                                     int64_t group,
                                                                     const GroupOptions& options) {
  auto* local = dynamic_cast<LocalCommunicator*>(&parent);
  if (local == nullptr || local->scheduler() != world_->scheduler.get() ||
      local->group().ranks()[local->rank()] != rank_) {
    return InvalidArgument("rank {} splits a communicator that is not its own: {}", rank_,
                           parent.ToString());
  }
  const int64_t id = local->group().id();
  if (!world_->splits.IsChecked(id, ranks)) {
    MESHIFT_RETURN_IF_ERROR(CheckSplit(local->group(), ranks));
    world_->splits.SetChecked(id, ranks);
  }
  if (group < 0) return InvalidArgument("group number {} is negative", group);
  const auto* const self = std::lower_bound(ranks.begin(), ranks.end(), rank_);
  if (self == ranks.end() || *self != rank_) {
    return InvalidArgument("rank {} is not in its group {{{}}}", rank_, RangesText(ranks));
  }
  MESHIFT_RETURN_IF_ERROR(local->Health());
  const auto member = static_cast<int>(self - ranks.begin());
  std::shared_ptr<Group> made = world_->splits.Get(id, ranks, group, options, member);
  return std::make_shared<LocalCommunicator>(world_->scheduler, &world_->settings, std::move(made),
                                             member);
}

absl::StatusOr<std::unique_ptr<Buffer>> LocalEngine::Allocate(int64_t bytes) {
  MESHIFT_ASSIGN_OR_RETURN(HostMemory data, AllocateHost(bytes, rank_));
  return std::make_unique<LocalBuffer>(std::move(data), bytes, memory_);
}

absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> LocalEngine::AllocateSymmetric(
    Communicator& communicator, const SymmetricRequest& request) {
  MESHIFT_ASSIGN_OR_RETURN(LocalCommunicator * local, AsOwn(communicator));
  MESHIFT_RETURN_IF_ERROR(CheckRequest(request));
  MESHIFT_RETURN_IF_ERROR(local->Health());
  const int member = local->rank();
  const auto set = world_->symmetric.Get(local->group(), member, request);
  if (!set.ok()) {
    // All members get the error of an allocation, but only the later ones that requests differ.
    if (!absl::IsResourceExhausted(set.status())) local->Fail(set.status());
    return set.status();
  }
  std::vector<std::unique_ptr<SymmetricBuffer>> buffers;
  for (int64_t i = 0; i < request.count; ++i) {
    buffers.push_back(std::make_unique<LocalSymmetricBuffer>(
        *set, i, member, [memory = memory_](int64_t bytes) { memory->Add(bytes); }));
  }
  return buffers;
}

absl::StatusOr<std::unique_ptr<Stream>> LocalEngine::CreateStream() {
  return std::make_unique<LocalStream>(world_->scheduler, rank_);
}

absl::StatusOr<std::shared_ptr<Event>> LocalEngine::Record(Stream& stream) {
  std::shared_ptr<Event> event;
  MESHIFT_RETURN_IF_ERROR(RecordInto(stream, &event));
  return event;
}

absl::Status LocalEngine::RecordInto(Stream& stream, std::shared_ptr<Event>* event) {
  MESHIFT_ASSIGN_OR_RETURN(LocalStream * local, AsLocal(stream));
  Task task;
  // A pending task holds a reference to its event, so an event with one reference may be reused.
  if (event->use_count() == 1) task.record = std::dynamic_pointer_cast<LocalEvent>(*event);
  if (task.record == nullptr) {
    task.record = std::make_shared<LocalEvent>();
    *event = task.record;
  }
  world_->scheduler->Enqueue(*local, std::move(task));
  return absl::OkStatus();
}

absl::Status LocalEngine::WaitFor(Stream& stream, std::shared_ptr<Event> event) {
  MESHIFT_ASSIGN_OR_RETURN(LocalStream * local, AsLocal(stream));
  Task task;
  task.wait = std::dynamic_pointer_cast<LocalEvent>(std::move(event));
  if (task.wait == nullptr) {
    return InvalidArgument("the event is null or belongs to another engine");
  }
  world_->scheduler->Enqueue(*local, std::move(task));
  return absl::OkStatus();
}

absl::Status LocalEngine::Synchronize(Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(LocalStream * local, AsLocal(stream));
  return world_->scheduler->Synchronize(*local);
}

absl::Status LocalEngine::Wait(const std::shared_ptr<Event>& event) {
  auto* local = dynamic_cast<LocalEvent*>(event.get());
  if (local == nullptr) return InvalidArgument("the event is null or belongs to another engine");
  return world_->scheduler->Wait(*local);
}

absl::Status LocalEngine::CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(LocalStream * local, AsLocal(stream));
  Task task;
  MESHIFT_ASSIGN_OR_RETURN(task.kernel, CopyKernel::Create(copies, dtype));
  world_->scheduler->Enqueue(*local, std::move(task));
  return absl::OkStatus();
}

absl::Status LocalEngine::FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                                       Stream& stream) {
  using Element = std::array<uint8_t, 16>;
  MESHIFT_ASSIGN_OR_RETURN(const Element element, IdentityOf(dtype, op));
  return Fill(element, BitWidth(dtype) / 8, data, count, stream);
}

absl::Status LocalEngine::FillZero(void* data, int64_t bytes, Stream& stream) {
  return Fill({}, 1, data, bytes, stream);
}

absl::Status LocalEngine::Fill(const std::array<uint8_t, 16>& element, int64_t element_bytes,
                               void* data, int64_t count, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(LocalStream * local, AsLocal(stream));
  if (count < 0) return InvalidArgument("a count of {} to fill is negative", count);
  if (count > 0 && data == nullptr)
    return InvalidArgument("the buffer to fill is null, but the count is {}", count);
  Task task;
  task.kernel = std::make_unique<FillKernel>(element, element_bytes, data, count);
  world_->scheduler->Enqueue(*local, std::move(task));
  return absl::OkStatus();
}

absl::Status LocalEngine::Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
                               int64_t count, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(LocalStream * local, AsLocal(stream));
  MESHIFT_ASSIGN_OR_RETURN(const CastFunction function,
                           CheckedCast(src, src_dtype, dst, dst_dtype, count));
  Task task;
  task.kernel = std::make_unique<CastKernel>(function, src, Bytes(src_dtype, 1), dst,
                                             Bytes(dst_dtype, 1), count);
  world_->scheduler->Enqueue(*local, std::move(task));
  return absl::OkStatus();
}

absl::Status LocalEngine::ReduceInOrder(absl::Span<const void* const> inputs, void* out,
                                        int64_t count, DType dtype, const Reduction& reduction,
                                        Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(LocalStream * local, AsLocal(stream));
  MESHIFT_RETURN_IF_ERROR(CheckReduceInOrder(inputs, out, count, dtype, reduction));
  Task task;
  task.kernel = std::make_unique<ReduceKernel>(
      ReduceSpec{.dtype = dtype, .reduction = reduction, .runs = {}}, inputs, out, count);
  world_->scheduler->Enqueue(*local, std::move(task));
  return absl::OkStatus();
}

class LocalWorldImpl final : public LocalWorld {
 public:
  explicit LocalWorldImpl(const LocalWorldOptions& options) : world_(options) {
    std::vector<int64_t> ranks(options.num_ranks);
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto everyone = std::make_shared<Group>(RankList(std::move(ranks)), 0, 0);
    engines_.reserve(options.num_ranks);
    for (int64_t r = 0; r < options.num_ranks; ++r) {
      ControlChannel* const control = options.control.empty() ? nullptr : options.control[r];
      engines_.push_back(std::make_unique<LocalEngine>(&world_, everyone, r, control));
    }
  }
  ~LocalWorldImpl() override { world_.scheduler->Stop(); }

  Engine* engine(int64_t rank) override { return engines_[rank].get(); }
  MemoryStats memory(int64_t rank) const override { return engines_[rank]->memory(); }
  void SetReductionOrder(ReductionOrder order, int64_t domain_size) override {
    const MutexLock lock(world_.scheduler->mutex());
    world_.settings = {order, std::max<int64_t>(domain_size, 1)};
  }

 private:
  World world_;
  std::vector<std::unique_ptr<LocalEngine>> engines_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalWorld>> LocalWorld::Create(const LocalWorldOptions& options) {
  constexpr int64_t kMaxRanks = int64_t{1} << 20;
  constexpr int kMaxWorkers = 256;
  if (options.num_ranks < 1 || options.num_ranks > kMaxRanks) {
    return InvalidArgument("num_ranks {} is not between 1 and {}", options.num_ranks, kMaxRanks);
  }
  if (options.num_workers < 0 || options.num_workers > kMaxWorkers) {
    return InvalidArgument("num_workers {} is not between 0 and {}", options.num_workers,
                           kMaxWorkers);
  }
  if (options.domain_size < 1) {
    return InvalidArgument("domain_size {} is not positive", options.domain_size);
  }
  MESHIFT_RETURN_IF_ERROR(CheckArithmetic());
  if (options.timeout <= std::chrono::nanoseconds::zero()) {
    return InvalidArgument("a timeout of {} ns is not positive", options.timeout.count());
  }
  if (!options.control.empty() &&
      static_cast<int64_t>(options.control.size()) != options.num_ranks) {
    return InvalidArgument("{} control channels for {} ranks", options.control.size(),
                           options.num_ranks);
  }
  return std::make_unique<LocalWorldImpl>(options);
}

}  // namespace meshift
