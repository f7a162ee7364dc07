#include "comm/mpi/symmetric.h"

#include <new>

#include "absl/status/status.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "comm/mpi/requests.h"
#include "meshift/status.h"

namespace meshift {
namespace {

constexpr int64_t kAlignment = 4096;  // bytes; a page

}  // namespace

static_assert(std::atomic<int64_t>::is_always_lock_free, "flags are shared by processes");

SymmetricWindow::SymmetricWindow(std::shared_ptr<MpiGroup> group, const SymmetricRequest& request)
    : group_(std::move(group)), request_(request), stride_(RoundUp(request.bytes, kAlignment)) {}

absl::StatusOr<std::unique_ptr<SymmetricWindow>> SymmetricWindow::Create(
    std::shared_ptr<MpiGroup> group, const SymmetricRequest& request) {
  std::unique_ptr<SymmetricWindow> window(new SymmetricWindow(std::move(group), request));
  MESHIFT_RETURN_IF_ERROR(window->Map());
  return window;
}

absl::Status SymmetricWindow::Map() {
  const std::vector<int> ranks(group_->ranks().begin(), group_->ranks().end());
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group own = MPI_GROUP_NULL;
  MPI_Comm members = MPI_COMM_NULL;
  MESHIFT_RETURN_IF_ERROR(MpiError(MPI_Comm_group(group_->comm(), &all), "MPI_Comm_group"));
  int code = MPI_Group_incl(all, group_->size(), ranks.data(), &own);
  if (code == MPI_SUCCESS) {
    code = MPI_Comm_create_group(group_->comm(), own, group_->tag(), &members);
    MPI_Group_free(&own);
  }
  MPI_Group_free(&all);
  MESHIFT_RETURN_IF_ERROR(MpiError(code, "MPI_Comm_create_group"));
  code =
      MPI_Comm_split_type(members, MPI_COMM_TYPE_SHARED, group_->member(), MPI_INFO_NULL, &host_);
  MPI_Comm_free(&members);
  MESHIFT_RETURN_IF_ERROR(MpiError(code, "MPI_Comm_split_type"));
  int here = 0;
  MPI_Comm_size(host_, &here);
  // All members see this: every host has fewer than the group's size.
  if (here != group_->size()) {
    return Unimplemented(
        "{} of the {} members of {} are on this host; MPI shares memory among all or none", here,
        group_->size(), group_->name());
  }
  MPI_Comm_set_errhandler(host_, MPI_ERRORS_RETURN);
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  char* base = nullptr;
  code = MPI_Win_allocate_shared(
      static_cast<MPI_Aint>(kHeader + request_.count * stride_ + kAlignment), 1, info, host_, &base,
      &window_);
  MPI_Info_free(&info);
  MESHIFT_RETURN_IF_ERROR(MpiError(code, "MPI_Win_allocate_shared"));
  for (int member = 0; member < here; ++member) {
    MPI_Aint bytes = 0;
    int unit = 0;
    MESHIFT_RETURN_IF_ERROR(MpiError(MPI_Win_shared_query(window_, member, &bytes, &unit, &base),
                                     "MPI_Win_shared_query"));
    // MPI aligns parts to less than a cache line. Mappings are page-aligned in every process, so
    // all members round up to the same place.
    const auto address = reinterpret_cast<uintptr_t>(base);
    bases_.push_back(base + (RoundUp(static_cast<int64_t>(address), kAlignment) -
                             static_cast<int64_t>(address)));
  }
  new (bases_[group_->member()]) SymmetricFlags();
  // No member reads flags before they are constructed.
  return MpiError(MPI_Barrier(host_), "MPI_Barrier");
}

int SymmetricWindow::AnnounceLeave() {
  flags(group_->member()).leaves.store(true, std::memory_order_release);
  for (int member = 0; member < group_->size(); ++member) {
    if (!flags(member).leaves.load(std::memory_order_acquire)) return member;
  }
  return -1;
}

SymmetricWindow::~SymmetricWindow() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0 || group_->ended()) return;
  // Other members may poll for this announcement.
  if (static_cast<int>(bases_.size()) == group_->size()) AnnounceLeave();
  if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
  if (host_ != MPI_COMM_NULL) MPI_Comm_free(&host_);
}

}  // namespace meshift
