#include "meshift/mpi_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/cache_size.h"
#include "base/checked_math.h"
#include "base/final_cast.h"
#include "base/status.h"
#include "comm/engine/host_memory.h"
#include "comm/kernels/cast.h"
#include "comm/kernels/copy.h"
#include "comm/kernels/float_environment.h"
#include "comm/kernels/identity.h"
#include "comm/kernels/reduce.h"
#include "comm/mpi/executable.h"
#include "comm/mpi/group.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/mpi/mpi_threads.h"
#include "comm/mpi/progress.h"
#include "comm/mpi/requests.h"
#include "comm/mpi/stream.h"
#include "comm/mpi/symmetric.h"
#include "comm/mpi/watchdog.h"
#include "meshift/dtype.h"
#include "meshift/engine.h"
#include "meshift/placement.h"
#include "meshift/status.h"

namespace meshift {
namespace {

std::string GroupName(int64_t number, absl::Span<const int64_t> ranks) {
  return fmt::format("group {} {{{}}}", number, fmt::join(ranks, ","));
}

// The first line of MPI's version text. MPI allows this call to any thread, at any time.
std::string MpiLibraryVersion() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text = {};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "MPI";
  const std::string all(text.data(), static_cast<size_t>(length));
  return all.substr(0, all.find('\n'));
}

class HostBuffer final : public Buffer {
 public:
  HostBuffer(HostMemory data, int64_t size_bytes, std::shared_ptr<const Progress> progress)
      : data_(std::move(data)), size_bytes_(size_bytes), progress_(std::move(progress)) {}
  ~HostBuffer() override {
    if (!progress_->Health().ok()) static_cast<void>(data_.release());  // MPI may still write there
  }
  void* data() const override { return data_.get(); }
  int64_t size_bytes() const override { return size_bytes_; }

 private:
  HostMemory data_;
  const int64_t size_bytes_;
  const std::shared_ptr<const Progress> progress_;
};

// Maps a pair (k, j), each less than `per_level`, to two MPI tags (comm/mpi/group.h).
class Tags {
 public:
  explicit Tags(int64_t upper_bound) {
    while ((per_level_ * 2) * (per_level_ * 2) * 2 - 1 <= upper_bound) per_level_ *= 2;
  }
  int64_t per_level() const { return per_level_; }
  int Tag(int64_t k, int64_t j) const { return static_cast<int>((k * per_level_ + j) * 2); }
  // Whether groups can be split from the group with this tag: only if its pair is (k, 0).
  bool IsParent(int tag) const { return tag / 2 % per_level_ == 0; }
  int64_t First(int tag) const { return tag / 2 / per_level_; }

 private:
  int64_t per_level_ = 1;
};

// The engine's private duplicate of the program's communicator.
struct OwnComm {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;
  static absl::StatusOr<OwnComm> Duplicate(MPI_Comm given);
};

absl::StatusOr<OwnComm> OwnComm::Duplicate(MPI_Comm given) {
  OwnComm own;
  MESHIFT_RETURN_IF_ERROR(MpiError(MPI_Comm_dup(given, &own.comm), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(own.comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(own.comm, &own.rank);
  MPI_Comm_size(own.comm, &own.size);
  return own;
}

class MpiEngine final : public Engine {
 public:
  MpiEngine(const OwnComm& own, Tags tags, ControlChannel* control,
            std::shared_ptr<Progress> progress)
      : comm_(own.comm),
        tags_(tags),
        rank_(own.rank),
        control_(control),
        progress_(std::move(progress)) {
    std::vector<int64_t> ranks(own.size);
    std::iota(ranks.begin(), ranks.end(), 0);
    world_ = std::make_unique<MpiCommunicator>(
        progress_, std::make_shared<MpiGroup>(comm_, std::move(ranks), rank_, tags_.Tag(0, 0),
                                              fmt::format("the world of {} ranks", own.size),
                                              progress_->watch()));
  }
  ~MpiEngine() override {
    // MPI_Comm_free waits for pending messages, which a failed group may have, and needs a thread
    // that may call MPI. Otherwise the communicator leaks.
    if (failed_ || !world_->Health().ok() || !progress_->MayCall().ok()) return;
    const auto free = [comm = comm_]() mutable { return MPI_Comm_free(&comm), true; };
    progress_->Do(world_->ToString(), free).IgnoreError();
  }

  const std::string& name() const override { return name_; }
  std::string Library() const override { return MpiLibraryVersion(); }
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_->size(); }
  Communicator* world() override { return world_.get(); }
  ControlChannel* control() override { return control_; }
  CallerProgress* caller_progress() override { return progress_->callers(); }
  absl::Status SetTimeouts(const Timeouts& timeouts) override {
    return progress_->timeouts().Set(timeouts);
  }
  Timeouts timeouts() const override { return progress_->timeouts().Get(); }
  // About the bytes that processes of one host copy in a collective's start-up time.
  std::optional<int64_t> CoalesceBytes() const override { return int64_t{16} << 10; }

  absl::StatusOr<std::shared_ptr<Communicator>> Split(Communicator& parent,
                                                      absl::Span<const int64_t> ranks,
                                                      int64_t group,
                                                      const GroupOptions& options) override;
  bool SplitsFreely() const override { return true; }
  absl::Status SplitNoColor(Communicator& parent) override {
    MESHIFT_ASSIGN_OR_RETURN(MpiCommunicator * mpi, AsOwn(parent));
    mpi->TakeSplit();
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> AllocateSymmetric(
      Communicator& communicator, const SymmetricRequest& request) override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    MESHIFT_RETURN_IF_ERROR(progress_->MayCall());
    return std::make_unique<MpiStream>(progress_);
  }
  absl::StatusOr<std::shared_ptr<Event>> Record(Stream& stream) override {
    std::shared_ptr<Event> event;
    MESHIFT_RETURN_IF_ERROR(RecordInto(stream, &event));
    return event;
  }
  ABSL_ATTRIBUTE_HOT absl::Status RecordInto(Stream& stream,
                                             std::shared_ptr<Event>* event) override;
  ABSL_ATTRIBUTE_HOT absl::Status WaitFor(Stream& stream, std::shared_ptr<Event> event) override;
  absl::Status Synchronize(Stream& stream) override;
  absl::Status Wait(const std::shared_ptr<Event>& event) override;
  absl::Status CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, Stream& stream) override;
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(
      const Program& program, absl::Span<Communicator* const> communicators) override;
  absl::Status FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                            Stream& stream) override;
  absl::Status FillZero(void* data, int64_t bytes, Stream& stream) override {
    return Fill({}, 1, data, bytes, stream);
  }
  absl::Status Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count,
                    Stream& stream) override;
  absl::Status ReduceInOrder(absl::Span<const void* const> inputs, void* out, int64_t count,
                             DType dtype, const Reduction& reduction, Stream& stream) override;

 private:
  absl::StatusOr<MpiStream*> AsMpi(Stream& stream) const { return AsMpiStream(stream, *progress_); }
  absl::StatusOr<MpiCommunicator*> AsOwn(Communicator& communicator) const {
    auto* mpi = dynamic_cast<MpiCommunicator*>(&communicator);
    if (mpi == nullptr || mpi->progress() != progress_.get()) {
      return InvalidArgument("rank {} uses a communicator that is not its own: {}", rank_,
                             communicator.ToString());
    }
    MESHIFT_RETURN_IF_ERROR(progress_->MayCall());
    return mpi;
  }
  absl::StatusOr<std::shared_ptr<SymmetricWindow>> MakeWindow(
      const std::shared_ptr<MpiGroup>& group, const SymmetricRequest& request);
  absl::Status Fill(const std::array<uint8_t, 16>& element, int64_t element_bytes, void* data,
                    int64_t count, Stream& stream);
  absl::Status NoteFailure(absl::Status status) {
    if (!status.ok()) failed_ = true;
    return status;
  }

  const std::string name_ = "mpi";
  const MPI_Comm comm_;
  const Tags tags_;
  const int rank_;
  ControlChannel* const control_;
  std::atomic<bool> failed_{false};
  const std::shared_ptr<Progress> progress_;
  std::unique_ptr<MpiCommunicator> world_;
};

absl::StatusOr<std::shared_ptr<Communicator>> MpiEngine::Split(Communicator& parent,
                                                               absl::Span<const int64_t> ranks,
                                                               int64_t group, const GroupOptions&) {
  MESHIFT_ASSIGN_OR_RETURN(MpiCommunicator * mpi, AsOwn(parent));
  const MpiGroup& from = mpi->group();
  const std::string name = GroupName(group, ranks);
  if (ranks.size() < 2) return InvalidArgument("{} has fewer than two ranks", name);
  if (group < 0) return InvalidArgument("group number {} is negative", group);
  // std::includes needs sorted ranks; strict order also excludes duplicates.
  if (std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end()) {
    return InvalidArgument("the ranks of {} are not strictly ascending", name);
  }
  if (!std::includes(from.ranks().begin(), from.ranks().end(), ranks.begin(), ranks.end())) {
    return InvalidArgument("{} is not part of {}", name, from.name());
  }
  const auto self = std::lower_bound(ranks.begin(), ranks.end(), rank_);
  if (self == ranks.end() || *self != rank_) {
    return InvalidArgument("rank {} is not in its {}", rank_, name);
  }
  MESHIFT_RETURN_IF_ERROR(from.Health());
  if (!tags_.IsParent(from.tag())) {
    return Unimplemented(
        "{} is split from {}; only two levels of splits below the world are supported", name,
        from.name());
  }
  // Number 0 is the parent itself.
  const int64_t number = mpi->TakeSplit() + 1;
  if (number >= tags_.per_level()) {
    return absl::ResourceExhaustedError(fmt::format(
        "{} was split {} times; no MPI tags are left for more", from.name(), number - 1));
  }
  const int tag =
      mpi == world_.get() ? tags_.Tag(number, 0) : tags_.Tag(tags_.First(from.tag()), number);
  return std::make_shared<MpiCommunicator>(
      progress_, std::make_shared<MpiGroup>(comm_, std::vector<int64_t>(ranks.begin(), ranks.end()),
                                            static_cast<int>(self - ranks.begin()), tag, name,
                                            progress_->watch()));
}

absl::StatusOr<std::unique_ptr<Buffer>> MpiEngine::Allocate(int64_t bytes) {
  MESHIFT_ASSIGN_OR_RETURN(HostMemory data, AllocateHost(bytes, rank_));
  return std::make_unique<HostBuffer>(std::move(data), bytes, progress_);
}

absl::StatusOr<std::vector<std::unique_ptr<SymmetricBuffer>>> MpiEngine::AllocateSymmetric(
    Communicator& communicator, const SymmetricRequest& request) {
  MESHIFT_ASSIGN_OR_RETURN(MpiCommunicator * mpi, AsOwn(communicator));
  MESHIFT_RETURN_IF_ERROR(CheckRequest(request));
  // MPI_Win_allocate_shared has no time-out. So members first exchange their requests, which has
  // one, and compare them.
  const MpiGroup& group = mpi->group();
  using Asked = std::array<int64_t, 3>;
  const Asked mine = {request.first, request.count, request.bytes};
  auto all = std::make_unique<std::vector<Asked>>(group.size() + 1, mine);
  MpiStream stream(progress_);
  absl::Status status =
      mpi->AllGather(&all->back(), all->data(), sizeof(Asked), DType::kU8, stream);
  if (status.ok()) status = Synchronize(stream);
  if (!status.ok()) {
    static_cast<void>(all.release());  // MPI may still write there
    return NoteFailure(status);
  }
  for (int member = 1; member < group.size(); ++member) {
    const auto text = [&](const Asked& asked) {
      return SymmetricRequest{asked[0], asked[1], asked[2]}.ToString();
    };
    if ((*all)[member] == (*all)[0]) continue;
    return NoteFailure(mpi->group().Fail(FailedPrecondition(
        "{}: rank {} asks for {}, and rank {} for {}", group.name(), group.rank_of(0),
        text((*all)[0]), group.rank_of(member), text((*all)[member]))));
  }
  MESHIFT_ASSIGN_OR_RETURN(const std::shared_ptr<SymmetricWindow> window,
                           MakeWindow(mpi->shared_group(), request));
  std::vector<std::unique_ptr<SymmetricBuffer>> buffers;
  for (int64_t i = 0; i < request.count; ++i) {
    buffers.push_back(std::make_unique<MpiSymmetricBuffer>(window, i));
  }
  return buffers;
}

absl::StatusOr<std::shared_ptr<SymmetricWindow>> MpiEngine::MakeWindow(
    const std::shared_ptr<MpiGroup>& group, const SymmetricRequest& request) {
  using Made = absl::StatusOr<std::unique_ptr<SymmetricWindow>>;
  const auto made = std::make_shared<Made>(absl::UnknownError("MPI has not returned"));
  const std::string what = fmt::format("{}: symmetric memory", group->name());
  MESHIFT_RETURN_IF_ERROR(NoteFailure(progress_->Do(what, [made, group, request] {
    *made = SymmetricWindow::Create(group, request);
    return true;
  })));
  MESHIFT_RETURN_IF_ERROR(made->status());
  if (progress_->is_free()) return std::shared_ptr<SymmetricWindow>(*std::move(*made));
  // MPI_Win_free blocks until all members call it. So a thread that other work needs to call MPI
  // frees the window only once all members have said that they will.
  const auto free = [what, progress = progress_](SymmetricWindow* window) {
    if (window->group()->ended()) {
      delete window;
      return;
    }
    const int64_t begin_ns = NowNs();
    const auto step = [window, begin_ns, timeout_ns = progress->timeouts().setup_ns()] {
      MpiGroup& group = *window->group();
      const int missing = group.ended() ? -1 : window->AnnounceLeave();
      if (missing >= 0 && NowNs() - begin_ns < timeout_ns) return false;
      if (missing >= 0) {
        group
            .Fail(absl::DeadlineExceededError(
                fmt::format("{}: rank {} has not freed its symmetric memory within {} ms",
                            group.name(), group.rank_of(missing), timeout_ns / 1'000'000)))
            .IgnoreError();
      }
      delete window;
      return true;
    };
    progress->Do(what, step).IgnoreError();
  };
  return std::shared_ptr<SymmetricWindow>(made->value().release(), free);
}

absl::Status MpiEngine::RecordInto(Stream& stream, std::shared_ptr<Event>* event) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpi(stream));
  mpi->state()->Mark(event);
  return absl::OkStatus();
}

absl::Status MpiEngine::WaitFor(Stream& stream, std::shared_ptr<Event> event) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpi(stream));
  auto* const own = FinalCast<MpiEvent>(event.get());
  if (own == nullptr) return InvalidArgument("the event is null or belongs to another engine");
  if (own->reached() && own->status().ok()) return absl::OkStatus();
  auto task = mpi->state()->NewTask();
  task->kind = MpiTask::Kind::kWait;
  task->event = std::shared_ptr<MpiEvent>(std::move(event), own);
  mpi->Put(std::move(task));
  return absl::OkStatus();
}

absl::Status MpiEngine::Synchronize(Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpi(stream));
  const absl::Status status = progress_->AwaitIdle(mpi->state());
  return NoteFailure(status.ok() ? mpi->state()->error() : status);
}

absl::Status MpiEngine::Wait(const std::shared_ptr<Event>& event) {
  const auto* mpi = FinalCast<const MpiEvent>(event.get());
  if (mpi == nullptr) return InvalidArgument("the event is null or belongs to another engine");
  MESHIFT_RETURN_IF_ERROR(progress_->CheckThread());
  const absl::Status status = progress_->Await(*mpi);
  return NoteFailure(status.ok() ? mpi->status() : status);
}

absl::Status MpiEngine::CopyBoxes(absl::Span<const BoxCopy> copies, DType dtype, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpi(stream));
  auto task = mpi->state()->NewTask();
  task->kind = MpiTask::Kind::kCopy;
  task->copies.resize(copies.size());
  task->bytes = 0;
  for (size_t i = 0; i < copies.size(); ++i) {
    MESHIFT_RETURN_IF_ERROR(task->copies[i].Reset(copies[i], dtype));
    task->bytes += task->copies[i].bytes();
  }
  mpi->Put(std::move(task));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Executable>> MpiEngine::Prepare(
    const Program& program, absl::Span<Communicator* const> communicators) {
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<Executable> fallback,
                           Engine::Prepare(program, communicators));
  // MpiBases holds the addresses of one tensor's buffers.
  if (program.num_tensors > 1) return fallback;
  std::vector<std::shared_ptr<MpiGroup>> groups(communicators.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    if (communicators[i] == nullptr) continue;
    MESHIFT_ASSIGN_OR_RETURN(const MpiCommunicator* mpi, AsOwn(*communicators[i]));
    groups[i] = mpi->shared_group();
  }
  MESHIFT_ASSIGN_OR_RETURN(auto steps, MpiExecutable::StepsOf(program, groups));
  const auto is_prepared = [](const MpiStep& step) { return step.is_prepared(); };
  if (std::all_of(steps->begin(), steps->end(), is_prepared)) fallback = nullptr;
  return std::make_unique<MpiExecutable>(progress_, std::move(steps), std::move(fallback));
}

absl::Status MpiEngine::FillIdentity(void* data, int64_t count, DType dtype, ReduceOp op,
                                     Stream& stream) {
  using Element = std::array<uint8_t, 16>;
  MESHIFT_ASSIGN_OR_RETURN(const Element element, IdentityOf(dtype, op));
  return Fill(element, BitWidth(dtype) / 8, data, count, stream);
}

absl::Status MpiEngine::Fill(const std::array<uint8_t, 16>& element, int64_t element_bytes,
                             void* data, int64_t count, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpi(stream));
  if (count < 0) return InvalidArgument("a count of {} to fill is negative", count);
  if (count > 0 && data == nullptr) {
    return InvalidArgument("the buffer to fill is null, but count is {}", count);
  }
  auto task = mpi->state()->NewTask();
  task->kind = MpiTask::Kind::kFill;
  task->element = element;
  task->element_bytes = element_bytes;
  task->dst = data;
  task->count = count;
  task->bytes = element_bytes * count;
  mpi->Put(std::move(task));
  return absl::OkStatus();
}

absl::Status MpiEngine::Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
                             int64_t count, Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpi(stream));
  MESHIFT_ASSIGN_OR_RETURN(const CastFunction function,
                           CheckedCast(src, src_dtype, dst, dst_dtype, count));
  auto task = mpi->state()->NewTask();
  task->kind = MpiTask::Kind::kCast;
  task->cast = function;
  task->src = src;
  task->dst = dst;
  task->count = count;
  task->bytes = Bytes(src_dtype, count) + Bytes(dst_dtype, count);
  mpi->Put(std::move(task));
  return absl::OkStatus();
}

absl::Status MpiEngine::ReduceInOrder(absl::Span<const void* const> inputs, void* out,
                                      int64_t count, DType dtype, const Reduction& reduction,
                                      Stream& stream) {
  MESHIFT_ASSIGN_OR_RETURN(MpiStream * mpi, AsMpi(stream));
  MESHIFT_RETURN_IF_ERROR(CheckReduceInOrder(inputs, out, count, dtype, reduction));
  auto task = mpi->state()->NewTask();
  task->kind = MpiTask::Kind::kReduce;
  task->reduce = {.dtype = dtype, .reduction = reduction, .runs = {}};
  task->inputs.assign(inputs.begin(), inputs.end());
  task->dst = out;
  task->count = count;
  task->bytes = SaturatingMul(static_cast<int64_t>(inputs.size()) + 1, Bytes(dtype, count));
  mpi->Put(std::move(task));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateMpiEngine(const MpiEngineOptions& options) {
  if (options.timeout <= std::chrono::nanoseconds::zero()) {
    return InvalidArgument("a timeout of {} ns is not positive", options.timeout.count());
  }
  const int64_t cache_bytes = options.cache_bytes ? *options.cache_bytes : LastLevelCacheBytes();
  if (cache_bytes < 0) {
    return InvalidArgument("cache_bytes is {}; it must be 0 or more", cache_bytes);
  }
  MESHIFT_RETURN_IF_ERROR(CheckArithmetic());
  MESHIFT_ASSIGN_OR_RETURN(const MpiThreads threads, MpiThreads::Query());
  if (options.bounded_waits && !threads.any()) {
    return FailedPrecondition(
        "bounded_waits needs MPI_THREAD_MULTIPLE, since a thread of the engine calls MPI; MPI was "
        "initialized for {}",
        threads.level());
  }
  const MPI_Comm given =
      options.communicator ? MPI_Comm_f2c(*options.communicator) : MPI_COMM_WORLD;
  auto progress =
      Progress::Create(Timeouts::Of(options.timeout), threads, options.bounded_waits, cache_bytes);
  const auto own = std::make_shared<absl::StatusOr<OwnComm>>();
  MESHIFT_RETURN_IF_ERROR(progress->Do("MPI_Comm_dup", [own, given] {
    *own = OwnComm::Duplicate(given);
    return true;
  }));
  MESHIFT_RETURN_IF_ERROR(own->status());
  int64_t upper_bound = 32767;  // MPI's guaranteed minimum of MPI_TAG_UB
  void* attribute = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &attribute, &found);
  if (found != 0) upper_bound = *static_cast<int*>(attribute);
  return std::make_unique<MpiEngine>(**own, Tags(upper_bound), options.control,
                                     std::move(progress));
}

std::string MpiAbsence() { return ""; }

}  // namespace meshift
