#include "comm/nccl/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/nccl/backoff.h"
#include "comm/nccl/device.h"
#include "comm/nccl/groups.h"
#include "comm/nccl/launches.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/shutdown_times.h"
#include "comm/nccl/side_thread.h"
#include "comm/nccl/watchdog.h"
#include "meshift/bootstrap.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Whether the error is about bad arguments, so that the call has done nothing. A non-blocking
// communicator may keep even such an error, and then cannot be used any more.
bool MayBeHarmless(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kFailedPrecondition;
}

}  // namespace

NcclContext::NcclContext(std::shared_ptr<const NcclLibrary> nccl,
                         std::shared_ptr<CudaDevice> device, int64_t rank,
                         NcclContextOptions options)
    : nccl_(std::move(nccl)),
      device_(std::move(device)),
      rank_(rank),
      options_(std::move(options)),
      timeouts_(options_.timeouts),
      groups_(std::make_shared<NcclGroups>(nccl_, device_)) {
  utility_->handle = device_->utility();
}

absl::StatusOr<std::shared_ptr<NcclContext>> NcclContext::Create(
    std::shared_ptr<const NcclLibrary> nccl, std::shared_ptr<CudaDevice> device, int64_t rank,
    NcclContextOptions options) {
  const CudaDevice::Scope scope(*device);
  auto context = std::shared_ptr<NcclContext>(
      new NcclContext(std::move(nccl), std::move(device), rank, std::move(options)));
  MESHIFT_ASSIGN_OR_RETURN(context->launches_,
                           Launches::Create(context->device_, context->options_.max_in_flight));
  NcclContext* const own = context.get();  // its destructor stops the watchdog first
  context->watchdog_ = std::make_unique<Watchdog>([own] { own->CheckForErrors(); },  //
                                                  [own] { return own->CheckInterval(); });
  return context;
}

NcclContext::~NcclContext() {
  watchdog_ = nullptr;
  launches_ = nullptr;
  for (const std::shared_ptr<NcclGroup>& group : groups_->all()) {
    if (group->barrier_memory != 0) device_->FreeLater(group->barrier_memory, nullptr);
  }
  const CudaDevice::Scope scope(*device_);
  if (failed_.load()) device_->AbandonUtility();
  if (unsettled_.load()) device_->LeakAtEnd();
}

absl::Status NcclContext::Join(ControlChannel* control, absl::Span<const int64_t> ranks) {
  MESHIFT_ASSIGN_OR_RETURN(std::unique_ptr<ControlRoot> root,
                           control->Join(ranks, [this](const absl::Status& error) {
                             Fail(error, /*told=*/true).IgnoreError();
                           }));
  const MutexLock lock(error_mutex_);
  root_ = std::move(root);
  return absl::OkStatus();
}

absl::Status NcclContext::Error() const {
  const MutexLock lock(error_mutex_);
  return error_.ok() ? FailedPrecondition("rank {}: its communicators have ended", rank_) : error_;
}

absl::Status NcclContext::Fail(const absl::Status& error, bool told) {
  ControlRoot* root = nullptr;
  {
    const MutexLock lock(error_mutex_);
    if (!error_.ok()) return error_;
    error_ = error;
    root = root_.get();
    failed_ns_.store(
        std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count(),
        std::memory_order_release);
    failed_.store(true, std::memory_order_release);
  }
  groups_->Abort();
  if (root != nullptr && !told) root->Fail(error);
  return error;
}

nanoseconds NcclContext::CheckInterval() const {
  const Timeouts timeouts = timeouts_.Get();
  const nanoseconds shorter = std::min(timeouts.setup, timeouts.running);
  return std::clamp<nanoseconds>(shorter / 10, milliseconds(1), milliseconds(200));
}

void NcclContext::CheckForErrors() {
  if (failed_.load()) return;
  const CudaDevice::Scope scope(*device_);
  absl::Status error = groups_->AsyncErrors();
  if (error.ok() && options_.lender_error) {
    error = options_.lender_error();
    if (!error.ok()) error = Annotate(error, "the lent communicator");
  }
  if (error.ok()) {
    const absl::StatusOr<std::optional<Launches::Late>> late =
        launches_->CheckTimeouts(timeouts_.Get());
    if (!late.ok()) {
      error = late.status();
    } else if (late->has_value()) {
      error = absl::DeadlineExceededError(fmt::format(
          "rank {}: {} has not {} within {} ms{}", rank_, (*late)->text,
          (*late)->launched ? "ended" : "been launched", (*late)->limit_ns / 1000000,
          (*late)->launched ? ""
                            : ": inside NCCL, which waits for its peers to connect, or for room in "
                              "the device's queue"));
    }
  }
  if (!error.ok()) Fail(error).IgnoreError();
}

absl::StatusOr<NcclResult> NcclContext::Call(NcclGroup& group, bool makes,
                                             absl::FunctionRef<NcclResult()> call) {
  if (!groups_->Begin(group)) return Error();
  NcclResult result = call();
  // On a non-blocking communicator NCCL may return success before it has finished
  // (github.com/NVIDIA/nccl, issue 1472), so AwaitComm must ask for its state.
  if (makes && !group.blocking && result.code == ncclSuccess) result.code = ncclInProgress;
  groups_->End(group, /*through=*/result.code != ncclInProgress);
  return result;
}

absl::Status NcclContext::AwaitComm(NcclGroup& group, const NcclResult& result,
                                    nanoseconds at_most) {
  ncclResult_t state = result.code;
  for (Backoff pause; state == ncclInProgress; pause.Next()) {
    if (failed_.load()) return Error();
    if (at_most.count() > 0 && pause.elapsed() > at_most) {
      return Fail(absl::DeadlineExceededError(
          fmt::format("rank {}: {} of {} has not ended within {} ms", rank_, result.function,
                      group.ToString(), at_most / milliseconds(1))));
    }
    if (!groups_->Ask(group, &state)) return Error();
  }
  if (state == ncclSuccess) [[likely]] {
    return absl::OkStatus();
  }
  if (failed_.load()) return Error();
  absl::Status status = groups_->StatusOf(group, state, result.function);
  if (MayBeHarmless(status)) {
    ncclResult_t kept = ncclSuccess;
    if (group.blocking || group.lent) return status;
    if (groups_->Ask(group, &kept) && kept == ncclSuccess) return status;
  }
  return Fail(status);
}

bool NcclContext::Settle(NcclGroup& group) {
  if (!group.lent) return groups_->AwaitAbort(kSettleGrace);
  // A lent communicator must not be aborted.
  for (Backoff pause; pause.elapsed() < kSettleGrace; pause.Next()) {
    ncclResult_t state = ncclInProgress;
    if (!groups_->Ask(group, &state)) return false;
    if (state != ncclInProgress) return true;
  }
  return false;
}

absl::Status NcclContext::RunAside(const char* function, const NcclGroup& group,
                                   std::function<absl::Status()> work) {
  const auto result = std::make_shared<absl::Status>();
  const std::unique_ptr<SideThread> thread =
      SideThread::Start(device_, [self = shared_from_this(), result, work = std::move(work)] {
        *result = work();
        return true;
      });
  const auto start = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> failed_since;
  while (!thread->Await(milliseconds(5))) {
    const auto now = std::chrono::steady_clock::now();
    const nanoseconds setup = timeouts_.Get().setup;
    if (failed_.load()) {
      if (!failed_since) failed_since = now;
      if (now - *failed_since < kSettleGrace + kGrace) continue;
      unsettled_.store(true, std::memory_order_release);
      return Error();
    }
    if (now - start <= setup) continue;
    Fail(absl::DeadlineExceededError(fmt::format("rank {}: {} of {} has not ended within {} ms",
                                                 rank_, function, group.ToString(),
                                                 setup / milliseconds(1))))
        .IgnoreError();
  }
  return *result;
}

void NcclContext::EndGroups() {
  const std::vector<std::shared_ptr<NcclGroup>> groups = groups_->all();
  for (const std::shared_ptr<NcclGroup>& group : groups) {
    if (failed_.load()) return;
    if (group->lent || group->blocking || group->comm() == nullptr) continue;
    const absl::StatusOr<NcclResult> result = Call(*group, /*makes=*/true, [&]() -> NcclResult {
      return {nccl_->CommFinalize(group->comm()), "ncclCommFinalize"};
    });
    if (!result.ok()) return;
    // It does not finish while a CUDA graph has operations of the communicator.
    AwaitComm(*group, *result, timeouts_.Get().setup).IgnoreError();
  }
  if (failed_.load()) return;
  std::vector<ncclComm_t> comms;
  // Children first: they may share resources of their parent.
  for (auto it = groups.rbegin(); it != groups.rend(); ++it) {
    if ((*it)->lent) continue;
    if (const ncclComm_t comm = groups_->Take(**it); comm != nullptr) comms.push_back(comm);
  }
  if (comms.empty()) return;
  // ncclCommDestroy waits for the ranks of the same host to call it too (NCCL's documentation calls
  // it intra-node collective). All ranks use the same order, so they do not deadlock.
  const std::unique_ptr<SideThread> thread =
      SideThread::Start(device_, [nccl = nccl_, comms = std::move(comms)] {
        bool destroyed = true;
        for (const ncclComm_t comm : comms) {
          destroyed = nccl->CommDestroy(comm) == ncclSuccess && destroyed;
        }
        return destroyed;
      });
  const auto start = std::chrono::steady_clock::now();
  while (!thread->IsDone() && !failed_.load()) {
    thread->Await(milliseconds(5));
    const nanoseconds setup = timeouts_.Get().setup;
    if (std::chrono::steady_clock::now() - start <= setup) continue;
    Fail(absl::DeadlineExceededError(
             fmt::format("rank {}: its communicators have not ended within {} ms", rank_,
                         setup / milliseconds(1))))
        .IgnoreError();
  }
  if (failed_.load()) thread->Await(kPatience);
}

void NcclContext::Close() {
  if (!failed_.load() && AwaitAll().ok()) {
    const MutexLock lock(mutex_);
    const CudaDevice::Scope scope(*device_);
    EndGroups();
  }
  watchdog_ = nullptr;
  std::unique_ptr<ControlRoot> root;
  {
    const MutexLock lock(error_mutex_);
    root.swap(root_);
  }
  root = nullptr;
  if (failed_.load()) groups_->AwaitAbort(kPatience);
}

}  // namespace meshift
