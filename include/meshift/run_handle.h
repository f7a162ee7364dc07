// Work that a redistributor has put on streams.
//
//   MESHIFT_ASSIGN_OR_RETURN(RunHandle run, redistribute({...}));
//   MESHIFT_RETURN_IF_ERROR(run.Wait(*consumer));   // later work on `consumer` comes after it
//   MESHIFT_RETURN_IF_ERROR(run.Wait());            // the host waits
#ifndef MESHIFT_RUN_HANDLE_H_
#define MESHIFT_RUN_HANDLE_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "meshift/engine.h"

namespace meshift {

namespace run_internal {
class RunCore;
struct Run;
}  // namespace run_internal

// Copies mean the same work; cheap. Safe for concurrent use, but assignments.
class RunHandle {
 public:
  RunHandle() = default;  // nothing to wait for
  RunHandle(const RunHandle& other);
  RunHandle(RunHandle&& other) noexcept
      : core_(std::move(other.core_)), run_(std::exchange(other.run_, nullptr)) {}
  RunHandle& operator=(RunHandle other) noexcept {
    core_.swap(other.core_);
    std::swap(run_, other.run_);
    return *this;
  }
  ~RunHandle() {
    if (run_ != nullptr) Release();
  }

  // Waits until this work is done, not for other work. Returns the redistributor's first error. May
  // be called again. DEADLINE_EXCEEDED, where ranks are missing, names them where they can be
  // known; FAILED_PRECONDITION names the plans of ranks that disagree.
  absl::Status Wait() const;
  // Makes later work on `stream`, of the same engine, wait for this work; the host does not.
  absl::Status Wait(Stream& stream) const;

 private:
  friend class run_internal::RunCore;
  RunHandle(std::shared_ptr<run_internal::RunCore> core, run_internal::Run* run)
      : core_(std::move(core)), run_(run) {}
  void Release();

  std::shared_ptr<run_internal::RunCore> core_;
  run_internal::Run* run_ = nullptr;  // counts its handles
};

}  // namespace meshift

#endif  // MESHIFT_RUN_HANDLE_H_
