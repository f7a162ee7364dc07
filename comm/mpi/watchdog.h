// Watches the one thread that calls MPI. That thread marks where a call begins and ends; other
// threads give it up, that is, wait for it no longer, if a call takes too long. A thread that was
// given up sleeps forever once MPI returns, so the thread that gave it up may read its data.
//
//   { const MpiWatchdog::Call call(watch); MPI_Testall(...); }       // the watched thread
//   if (watch->GiveUp(NowNs() - limit_ns)) ...                       // other threads
//
// It has no thread of its own, and cannot interrupt MPI. Times are in ns. Internal to comm/mpi.
#ifndef MESHIFT_COMM_MPI_WATCHDOG_H_
#define MESHIFT_COMM_MPI_WATCHDOG_H_

#include <atomic>
#include <cstdint>

namespace meshift {

int64_t NowNs();  // steady clock

class MpiWatchdog {
 public:
  // The scope of one call of MPI. With a null watch it does nothing. Scopes must not nest: the end
  // of the inner one ends the watch.
  class Call {
   public:
    explicit Call(MpiWatchdog* watch) : watch_(watch) {
      if (watch_ != nullptr) watch_->Enter();
    }
    ~Call() {
      if (watch_ != nullptr) watch_->Leave();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    MpiWatchdog* const watch_;
  };

  // For the watched thread: its next calls count as if they had begun `ns` earlier, because other
  // threads have waited that long already. 0 ends this.
  void set_overdue(int64_t ns) { overdue_ns_ = ns; }

  // For other threads: whether the watched thread is in a call that began before `ns`, a time of
  // NowNs().
  bool IsInSince(int64_t ns) const {
    const int64_t since = since_.load(std::memory_order_acquire);
    return since < ns && since != kLost;
  }
  // As IsInSince; if true, gives the thread up. True for one caller only.
  bool GiveUp(int64_t ns);
  bool lost() const { return since_.load(std::memory_order_acquire) == kLost; }

 private:
  static constexpr int64_t kOutside = INT64_MAX;
  static constexpr int64_t kLost = INT64_MIN;
  void Enter();
  void Leave();

  std::atomic<int64_t> since_{kOutside};  // the begin of the call, by NowNs()
  int64_t overdue_ns_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_WATCHDOG_H_
