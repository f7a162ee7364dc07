// Symmetric memory of processes on one host: a window of MPI's shared memory, which every member
// maps, and the flags by which members meet in it.
//
//   MESHIFT_ASSIGN_OR_RETURN(auto window, SymmetricWindow::Create(group, request));
//   window->At(/*buffer=*/0, /*member=*/2);      // member 2's buffer, in this process
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

// What a member is about to do, for the others to compare. `arrived` and `done` are numbers of
// calls of the group, from 1 on: they only grow.
struct alignas(64) SymmetricFlags {
  std::atomic<int64_t> arrived{0};  // this member's block, and `call`, are ready for that call
  std::atomic<int64_t> done{0};     // it reads nobody's memory for that call any more
  std::atomic<bool> leaves{false};  // it is about to free its part of the window
  // Kind, dtype, op, divisor, elements, a hash of the blocks' sizes, places of send and recv.
  std::array<int64_t, 10> call = {};
};

// Destroying it is collective, as MPI_Win_free is, unless the group has failed: then it stays.
class SymmetricWindow {
 public:
  // Collective over the group's members, which have asked for the same. UNIMPLEMENTED, on all of
  // them, where they are on several hosts.
  static absl::StatusOr<std::unique_ptr<SymmetricWindow>> Create(std::shared_ptr<MpiGroup> group,
                                                                 const SymmetricRequest& request);
  ~SymmetricWindow();
  SymmetricWindow(const SymmetricWindow&) = delete;
  SymmetricWindow& operator=(const SymmetricWindow&) = delete;

  // Says that this member is about to destroy its part; the first that does not say so, or -1. Then
  // destroying it waits for nobody.
  int LeaveAndLook();

  MpiGroup* group() const { return group_.get(); }
  const SymmetricRequest& request() const { return request_; }
  char* At(int64_t buffer, int member) const { return bases_[member] + kHeader + buffer * stride_; }
  SymmetricFlags& flags(int member) const {
    return *reinterpret_cast<SymmetricFlags*>(bases_[member]);
  }

 private:
  static constexpr int64_t kHeader = 4096;
  SymmetricWindow(std::shared_ptr<MpiGroup> group, const SymmetricRequest& request);
  absl::Status Map();

  const std::shared_ptr<MpiGroup> group_;
  const SymmetricRequest request_;
  const int64_t stride_;  // from one buffer to the next
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
