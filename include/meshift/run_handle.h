// RunHandle: a handle to the work of one call of a Redistributor.
//
//   MESHIFT_ASSIGN_OR_RETURN(RunHandle run, redistribute({...}));
//   MESHIFT_RETURN_IF_ERROR(run.Wait(*consumer));   // later work on `consumer` comes after it
//   while (!run.IsDone()) ...                       // the host does something else
//   MESHIFT_RETURN_IF_ERROR(run.Wait());            // the host waits
//
// Only a Redistributor makes handles. A handle cannot cancel its work (see Redistributor::Abort).
// It keeps the redistributor's state alive, but not the engine, which must outlive it.
#ifndef MESHIFT_RUN_HANDLE_H_
#define MESHIFT_RUN_HANDLE_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "meshift/engine.h"
#include "meshift/version.h"

namespace MESHIFT_API meshift {

namespace run_internal {
class RedistributorImpl;
struct Run;
}  // namespace run_internal

// Copies are cheap and refer to the same work. Safe for concurrent use, except for assignments
// and moves.
// Dropping a handle neither waits nor cancels: the work continues, and its tensors must stay valid
// until it is done. Without the handle, wait for a later call that depends on it, or destroy the
// redistributor with all its handles and symmetric pools, which waits for all work, except on a
// lent stream (NcclLent::stream).
class RunHandle {
 public:
  RunHandle() = default;  // nothing to wait for
  RunHandle(const RunHandle& other);
  RunHandle(RunHandle&& other) noexcept
      : impl_(std::move(other.impl_)), run_(std::exchange(other.run_, nullptr)) {}
  RunHandle& operator=(RunHandle other) noexcept {
    impl_.swap(other.impl_);
    std::swap(run_, other.run_);
    return *this;
  }
  ~RunHandle() {
    if (run_ != nullptr) Release();
  }

  // Whether this work is done, or the redistributor has an error. Does not wait, unless MPI does.
  // Advances the work if the MPI engine has no thread of its own (meshift/mpi_engine.h). With
  // LocalWorldOptions::num_workers = 0 work runs only inside waits: there it stays false until a
  // thread has waited.
  bool IsDone() const;
  // Waits until this work is done. Returns the redistributor's first error. May be called again.
  // DEADLINE_EXCEEDED: ranks are missing; the message names them if they are known.
  // FAILED_PRECONDITION: ranks disagree, and the message names their plans; or, without effect on
  // the work, this thread may not call the engine (MPI), or the work is part of a CUDA graph.
  absl::Status Wait() const;
  // Makes later work on `stream`, of the same engine, wait for this work; the host does not wait.
  // Returns errors that are known by then, but none of the work itself.
  absl::Status Wait(Stream& stream) const;

 private:
  friend class run_internal::RedistributorImpl;
  RunHandle(std::shared_ptr<run_internal::RedistributorImpl> impl, run_internal::Run* run)
      : impl_(std::move(impl)), run_(run) {}
  void Release();

  std::shared_ptr<run_internal::RedistributorImpl> impl_;
  run_internal::Run* run_ = nullptr;  // counts its handles
};

}  // namespace meshift

#endif  // MESHIFT_RUN_HANDLE_H_
