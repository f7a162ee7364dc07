// Symmetric memory of processes on one host: an MPI shared-memory window that every member maps,
// and the flags by which members synchronise.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto window, SymmetricWindow::Create(group, request));
//   window->At(/*buffer=*/0, /*member=*/2);      // member 2's buffer, in this process
//
// Groups over several hosts are refused (UNIMPLEMENTED). Any thread may call At() and flags(),
// which do not check their arguments; a thread that may call MPI makes and destroys the window.
// Internal to comm/mpi.
#ifndef MESHIFT_COMM_MPI_SYMMETRIC_H_
#define MESHIFT_COMM_MPI_SYMMETRIC_H_

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/mpi/group.h"
#include "meshift/engine.h"

namespace meshift {

// A member's state, which the others read. `arrived` and `done` are numbers of the group's calls,
// from 1 on; they only grow.
struct alignas(64) SymmetricFlags {
  std::atomic<int64_t> arrived{0};  // this member's block and `call` are ready for this call
  std::atomic<int64_t> done{0};     // it has read all peers' blocks of this call
  std::atomic<bool> leaves{false};  // it is about to free its part of the window
  // The arguments, for the members to compare: kind, dtype, op, divisor, elements, a hash of the
  // block sizes, then buffer and offset of send and of recv.
  std::array<int64_t, 10> call = {};
};

// Destroying it is collective, as MPI_Win_free is. If the group has failed, or MPI is finalised,
// the memory leaks.
class SymmetricWindow {
 public:
  // Collective over the group's members, with equal requests, and without a time-out. UNIMPLEMENTED
  // on all members if they are on several hosts; INTERNAL: an error of MPI, also without enough
  // memory. Buffers begin at multiples of 4096 bytes.
  static absl::StatusOr<std::unique_ptr<SymmetricWindow>> Create(std::shared_ptr<MpiGroup> group,
                                                                 const SymmetricRequest& request);
  ~SymmetricWindow();
  SymmetricWindow(const SymmetricWindow&) = delete;
  SymmetricWindow& operator=(const SymmetricWindow&) = delete;

  // Announces that this member is about to destroy its window. Returns the first member that has
  // not announced it, or -1: then the destructor waits only until all have called theirs.
  int AnnounceLeave();

  MpiGroup* group() const { return group_.get(); }
  const SymmetricRequest& request() const { return request_; }
  char* At(int64_t buffer, int member) const { return bases_[member] + kHeader + buffer * stride_; }
  SymmetricFlags& flags(int member) const {
    return *reinterpret_cast<SymmetricFlags*>(bases_[member]);
  }

 private:
  static constexpr int64_t kHeader = 4096;  // bytes for the flags, before the first buffer
  SymmetricWindow(std::shared_ptr<MpiGroup> group, const SymmetricRequest& request);
  absl::Status Map();

  const std::shared_ptr<MpiGroup> group_;
  const SymmetricRequest request_;
  const int64_t stride_;  // bytes from one buffer to the next
  MPI_Comm host_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<char*> bases_;  // by member
};

class MpiSymmetricBuffer final : public SymmetricBuffer {
 public:
  MpiSymmetricBuffer(std::shared_ptr<SymmetricWindow> window, int64_t index)
      : SymmetricBuffer(window->request().first + index),
        window_(std::move(window)),
        index_(index) {}
  void* data() const override { return window_->At(index_, window_->group()->member()); }
  int64_t size_bytes() const override { return window_->request().bytes; }
  const std::shared_ptr<SymmetricWindow>& window() const { return window_; }
  int64_t index() const { return index_; }  // in the window

 private:
  const std::shared_ptr<SymmetricWindow> window_;
  const int64_t index_;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_SYMMETRIC_H_
