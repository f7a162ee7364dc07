// Work that a redistributor has put on streams.
//
//   MESHIFT_ASSIGN_OR_RETURN(RunHandle run, redistribute({...}));
//   MESHIFT_RETURN_IF_ERROR(run.Wait(*consumer));   // later work on `consumer` comes after it
//   while (!run.IsDone()) ...                       // the host does something else
//   MESHIFT_RETURN_IF_ERROR(run.Wait());            // the host waits
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

// Copies mean the same work; cheap. Safe for concurrent use, but assignments. Dropping a handle
// neither waits nor cancels: the work goes on, its tensors must stay until it is done, and nobody
// can tell any more when that is, but by waiting for a later call that came after it, or by the
// redistributor's end, which waits for all work.
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

  // Whether Wait() would return without waiting. Never waits itself, but where MPI does. Goes on
  // with work where MPI allows the engine no thread of its own (meshift/mpi_engine.h). Some engines
  // work only while somebody waits (LocalWorldOptions::num_workers = 0): there it stays false until
  // somebody has.
  bool IsDone() const;
  // Waits until this work is done, not for other work. Returns the redistributor's first error. May
  // be called again. DEADLINE_EXCEEDED, where ranks are missing, names them where they can be
  // known; FAILED_PRECONDITION names the plans of ranks that disagree.
  absl::Status Wait() const;
  // Makes later work on `stream`, of the same engine, wait for this work; the host does not.
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
