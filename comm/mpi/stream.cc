#include "comm/mpi/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/final_cast.h"
#include "base/status.h"
#include "comm/kernels/identity.h"
#include "comm/mpi/mpi_threads.h"
#include "meshift/dtype.h"
#include "meshift/sharding.h"

namespace meshift {
namespace {

// "group 1 {0,2}: barrier (call 3)"
std::string TextOf(const MpiTask& task) {
  return fmt::format("{}: {} (call {})", task.group->name(), task.operation.call().ToString(),
                     task.number);
}

absl::Status TimeoutError(MpiTask& task, int64_t timeout_ns) {
  const std::string missing = task.operation.MissingText();
  return absl::DeadlineExceededError(
      fmt::format("{} has waited {} ms for {}", TextOf(task), timeout_ns / 1'000'000,
                  missing.empty() ? "peers to receive its messages" : missing));
}

// A SendRecv overtakes copies of at least this many bytes, unless comparing the copies with the
// messages takes more than kMaxOverlapTests tests.
constexpr int64_t kMinOvertakenBytes = 16 << 10;
constexpr size_t kMaxOverlapTests = 1024;

struct ByteRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool Overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};

// The range from the lowest to the highest byte of one side of a copy. REQUIRES: it is not empty.
ByteRange RangeOf(const char* at, const Shape& strides, const StridedCopy& copy) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  ByteRange range{begin, begin + static_cast<uintptr_t>(copy.run_bytes())};
  for (size_t d = 0; d < strides.size(); ++d) {
    const int64_t reach = strides[d] * (copy.shape()[d] - 1);
    (reach < 0 ? range.begin : range.end) += static_cast<uintptr_t>(reach);
  }
  return range;
}

// Whether the copy may run after the messages are posted.
bool IsIndependent(const StridedCopy& copy, const MpiCall& call) {
  const ByteRange reads = RangeOf(copy.src(), copy.src_strides(), copy);
  const ByteRange writes = RangeOf(copy.dst(), copy.dst_strides(), copy);
  const auto range_of = [&](const PeerMessage& message) {
    const auto begin = reinterpret_cast<uintptr_t>(message.data);
    return ByteRange{begin, begin + static_cast<uintptr_t>(Bytes(call.dtype, message.count))};
  };
  return std::none_of(call.sends.begin(), call.sends.end(),
                      [&](const PeerMessage& m) { return writes.Overlaps(range_of(m)); }) &&
         std::none_of(call.recvs.begin(), call.recvs.end(), [&](const PeerMessage& m) {
           return writes.Overlaps(range_of(m)) || reads.Overlaps(range_of(m));
         });
}

}  // namespace

void MpiEvent::Reset(StreamState* stream) {
  if (stream_.get() != stream) stream_ = stream == nullptr ? nullptr : stream->shared_from_this();
  reached_ns_.store(-1, std::memory_order_relaxed);
}

void StreamState::Ring::Push(std::unique_ptr<MpiTask> task) {
  if (size_ == tasks_.size()) {
    std::vector<std::unique_ptr<MpiTask>> larger(tasks_.empty() ? 16 : 2 * tasks_.size());
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move(tasks_[(first_ + i) % size_]);
    tasks_ = std::move(larger);
    first_ = 0;
  }
  tasks_[(first_ + size_) % tasks_.size()] = std::move(task);
  ++size_;
}

std::unique_ptr<MpiTask> StreamState::Ring::Pop() {
  std::unique_ptr<MpiTask> task = std::move(tasks_[first_]);
  first_ = (first_ + 1) % tasks_.size();
  --size_;
  return task;
}

std::unique_ptr<MpiTask> StreamState::NewTask() {
  std::unique_ptr<MpiTask> task = TakeSpare();
  task->owner.reset();
  task->step = task->copies_of = task->call_of = nullptr;
  return task;
}

std::unique_ptr<MpiTask> StreamState::TakeSpare() {
  if (spare_.empty()) {
    const MutexLock lock(mutex_);
    spare_.swap(free_);
  }
  return TakeOwnSpare();
}

std::unique_ptr<MpiTask> StreamState::TakeOwnSpare() {
  if (spare_.empty()) return std::make_unique<MpiTask>();
  std::unique_ptr<MpiTask> task = std::move(spare_.back());
  spare_.pop_back();
  return task;
}

void StreamState::Keep(std::unique_ptr<MpiTask> task,
                       std::vector<std::unique_ptr<MpiTask>>* spare) {
  // Many are there after many calls at a time; they must not keep the programs of all of these.
  constexpr size_t kMostWithOwner = 16;
  task->event.reset();
  if (spare->size() >= kMostWithOwner) {
    task->owner.reset();
    task->copies_of = task->call_of = nullptr;
  }
  spare->push_back(std::move(task));
}

int64_t StreamState::BytesOf(const MpiTask& task) {
  switch (task.kind) {
    case MpiTask::Kind::kCollective:
      if (task.step != nullptr) return task.step->bytes();
      return task.operation.call().MessageBytes(task.group->size());
    case MpiTask::Kind::kWait:
    case MpiTask::Kind::kError:
      return 0;
    default:
      return task.bytes;
  }
}

void StreamState::Put(std::unique_ptr<MpiTask> task) {
  if (RunAtOnce(task.get())) return Keep(std::move(task), &spare_);
  const MutexLock lock(mutex_);
  Push(std::move(task));
  open_.fetch_add(1);
}

void StreamState::SetStep(const std::shared_ptr<const MpiExecutable::Steps>& steps, int32_t i,
                          const MpiBases& bases, MpiTask* task) {
  const MpiStep& step = (*steps)[i];
  if (task->owner != steps) {
    task->owner = steps;
    task->copies_of = task->call_of = nullptr;
  }
  task->step = &step;
  task->bases = bases;
  if (MpiGroup* const group = step.group().get(); group == nullptr) {
    task->kind = MpiTask::Kind::kCopy;
    task->bytes = step.bytes();
  } else {
    task->kind = MpiTask::Kind::kCollective;
    task->group = group;
    task->number = group->TakeNumber();
    task->progress_count = -1;
  }
}

void StreamState::Put(const std::shared_ptr<const MpiExecutable::Steps>& steps,
                      const ListRange& range, const MpiBases& bases, std::shared_ptr<Event>* done) {
  std::unique_ptr<MpiTask> task;
  int32_t i = range.first;
  const int32_t end = range.first + range.size;
  for (; i < end; ++i) {
    task = TakeSpare();
    SetStep(steps, i, bases, task.get());
    if (!RunAtOnce(task.get())) break;
    Keep(std::move(task), &spare_);
  }
  if (i == end) {
    if (done != nullptr) Mark(done);
    return;
  }
  // Under one lock, so that a SendRecv can overtake the copies before it.
  const MutexLock lock(mutex_);
  open_.fetch_add(end - i);
  while (true) {
    if (spare_.empty()) spare_.swap(free_);
    Push(std::move(task));
    if (++i == end) break;
    task = TakeOwnSpare();
    SetStep(steps, i, bases, task.get());
  }
  // Then the next call finds one without the lock.
  if (spare_.empty()) spare_.push_back(std::make_unique<MpiTask>());
  if (done != nullptr) MarkLast(done);
}

// No other thread runs tasks of an idle stream, and none puts one meanwhile.
bool StreamState::RunAtOnce(MpiTask* task) {
  if (!idle()) return false;
  // Before Execute, which may wait for its turn to call MPI.
  if (BytesOf(*task) > kInlineBytes && !failed_.load(std::memory_order_relaxed)) return false;
  if (watch_ != nullptr && task->kind == MpiTask::Kind::kCollective) return false;
  if (Execute(*task, {.max_bytes = kInlineBytes, .begins_only = true}) == Result::kStuck) {
    return false;
  }
  CountEnd();
  return true;
}

void StreamState::Mark(std::shared_ptr<Event>* event) {
  if (event->use_count() == 1 && idle()) {
    if (auto* const own = FinalCast<MpiEvent>(event->get()); own != nullptr) {
      own->Reset(this);
      own->Reach(error());
      return;
    }
  }
  const MutexLock lock(mutex_);
  MarkLast(event);
}

void StreamState::MarkLast(std::shared_ptr<Event>* event) {
  MpiEvent* own = event->use_count() == 1 ? FinalCast<MpiEvent>(event->get()) : nullptr;
  if (own == nullptr) {
    std::shared_ptr<MpiEvent> other;
    if (free_events_.empty()) {
      other = std::make_shared<MpiEvent>();
    } else {
      other = std::move(free_events_.back());
      free_events_.pop_back();
    }
    own = other.get();
    *event = std::move(other);
  }
  own->Reset(this);
  if (tasks_.empty()) {
    own->Reach(error_);
  } else {
    tasks_.back()->marks.emplace_back(*event, own);
  }
}

bool StreamState::Advance(const AdvanceOptions& options) {
  if (idle() || claimed_.exchange(true, std::memory_order_acquire)) return false;
  bool moved = false;
  while (MpiTask* const task = first_.load(std::memory_order_acquire)) {
    const int64_t progress_count = task->progress_count;
    const Result result = Execute(*task, options);
    moved = moved || result == Result::kDone || task->progress_count != progress_count;
    if (result == Result::kStuck) break;
    EndFirst();
  }
  claimed_.store(false, std::memory_order_release);
  return moved;
}

void StreamState::EndFirst() {
  const MutexLock lock(mutex_);
  std::unique_ptr<MpiTask> done = tasks_.Pop();
  first_.store(tasks_.first(), std::memory_order_relaxed);
  CountEnd();
  for (std::shared_ptr<MpiEvent>& event : done->marks) {
    event->Reach(error_);
    if (event.use_count() > 1) continue;
    event->Reset(nullptr);
    free_events_.push_back(std::move(event));
  }
  done->marks.clear();
  Keep(std::move(done), &free_);
  // mutex_ orders all changes.
  open_.store(open_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}

StreamState::Result StreamState::Execute(MpiTask& task, const AdvanceOptions& options) {
  const bool failed = failed_.load(std::memory_order_acquire);
  if (failed && task.kind != MpiTask::Kind::kCollective) return Result::kDone;
  const bool is_kernel = task.kind < MpiTask::Kind::kCollective;
  if (is_kernel && task.bytes > options.max_bytes) return Result::kStuck;
  switch (task.kind) {
    case MpiTask::Kind::kCopy:
      ExecuteCopies(task);
      return Result::kDone;
    case MpiTask::Kind::kFill:
      FillElements(task.element, task.element_bytes, task.dst, task.count);
      return Result::kDone;
    case MpiTask::Kind::kCast:
      task.cast(task.src, task.dst, task.count);
      return Result::kDone;
    case MpiTask::Kind::kReduce:
      Reduce(task.reduce, task.inputs, 0, task.count, task.dst);
      return Result::kDone;
    case MpiTask::Kind::kCollective:
      return ExecuteCollective(task, options);
    case MpiTask::Kind::kWait:
      if (!task.event->reached()) return Result::kStuck;
      if (!task.event->status().ok()) SetError(task.event->status());
      return Result::kDone;
    case MpiTask::Kind::kError:
      SetError(task.error);
      return Result::kDone;
  }
  return Result::kDone;
}

// Not in Put, to keep the submitting thread's work short.
void StreamState::FillIn(MpiTask* task) {
  const MpiStep* const step = std::exchange(task->step, nullptr);
  if (step == nullptr) return;
  if (task->kind == MpiTask::Kind::kCopy) {
    if (std::exchange(task->copies_of, step) != step) task->copies = step->copies();
    step->SetAddresses(task->bases, &task->copies);
  } else {
    MpiCall& call = task->operation.call();
    if (std::exchange(task->call_of, step) != step) call = step->call();
    step->SetAddresses(task->bases, &call);
  }
}

void StreamState::ExecuteCopies(MpiTask& task) {
  FillIn(&task);
  const int64_t stream_bytes = StreamBytes(cache_bytes_);
  MpiTask* const next = task.bytes >= kMinOvertakenBytes ? Second() : nullptr;
  if (next != nullptr) FillIn(next);
  const bool overtaken =
      next != nullptr && MayBegin(*next) && next->operation.call().kind == MpiCall::Kind::kSendRecv;
  if (!overtaken) {
    for (const StridedCopy& copy : task.copies) copy.Execute(stream_bytes);
    return;
  }
  const MpiCall& call = next->operation.call();
  const size_t messages = call.sends.size() + call.recvs.size();
  const bool many = task.copies.size() * messages > kMaxOverlapTests;
  absl::InlinedVector<const StridedCopy*, 8> later;
  for (const StridedCopy& copy : task.copies) {
    if (!many && IsIndependent(copy, call)) {
      later.push_back(&copy);
    } else {
      copy.Execute(stream_bytes);
    }
  }
  {
    const MpiTurn turn(turn_);
    Begin(next);
    next->operation.TakeArrived(task.bytes);
  }
  for (const StridedCopy* copy : later) copy->Execute(stream_bytes);
}

bool StreamState::MayBegin(const MpiTask& task) const {
  return task.kind == MpiTask::Kind::kCollective && !task.operation.started() &&
         !task.group->ended() && task.group->turn() == task.number;
}

void StreamState::Begin(MpiTask* task) {
  task->operation.Start(task->group, pool_, cache_bytes_);
  task->progress_count = -1;  // the first step that does not end it notes the time
}

StreamState::Result StreamState::ExecuteCollective(MpiTask& task, const AdvanceOptions& options) {
  const MpiTurn turn(turn_);
  Operation& operation = task.operation;
  MpiGroup& group = *task.group;
  const auto end = [&](const absl::Status& status) {
    if (operation.started()) operation.Cancel();
    SetError(group.Fail(status));
    return Result::kDone;
  };
  if (failed_.load(std::memory_order_acquire)) return end(error());
  if (group.ended()) return end(group.Health());
  if (!operation.started()) {
    if (options.max_bytes < INT64_MAX && BytesOf(task) > options.max_bytes) return Result::kStuck;
    FillIn(&task);
    if (group.turn() != task.number) return Result::kStuck;
    Begin(&task);
  }
  if (options.begins_only && operation.AwaitsMessages()) return Result::kStuck;
  const Operation::State state = operation.Step(options.max_bytes);
  if (state == Operation::State::kDone) {
    group.EndTurn();
    return Result::kDone;
  }
  if (state == Operation::State::kFailed) {
    return end(Annotate(operation.status(), TextOf(task)));
  }
  if (operation.progress_count() != task.progress_count) {
    task.progress_count = operation.progress_count();
    task.progress_ns = NowNs();
    return Result::kStuck;
  }
  if (options.timeouts == nullptr) return Result::kStuck;
  const int64_t timeout_ns =
      task.number == 0 ? options.timeouts->setup_ns() : options.timeouts->running_ns();
  if (options.now_ns - std::max(task.progress_ns, options.since_ns) <= timeout_ns) {
    return Result::kStuck;
  }
  if (watch_ != nullptr) watch_->set_overdue(timeout_ns);
  end(TimeoutError(task, timeout_ns));
  if (watch_ != nullptr) watch_->set_overdue(0);
  return Result::kDone;
}

void StreamState::SetError(const absl::Status& status) {
  const MutexLock lock(mutex_);
  if (!error_.ok()) return;
  error_ = status;
  failed_.store(true, std::memory_order_release);
}

std::string StreamState::CurrentText() const {
  const MutexLock lock(mutex_);
  if (!claimed_.load(std::memory_order_relaxed)) return "";
  // The second task may have begun before the copies of the first were done.
  for (const MpiTask* task : {tasks_.first(), tasks_.second()}) {
    if (task == nullptr || task->kind != MpiTask::Kind::kCollective) continue;
    if (task->operation.started()) return TextOf(*task);
  }
  return "";
}

absl::Status StreamState::error() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  const MutexLock lock(mutex_);
  return error_;
}

}  // namespace meshift
