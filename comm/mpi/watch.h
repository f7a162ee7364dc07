// Whether the one thread that calls MPI comes back from it. The thread says when it goes there and
// when it is back; others give it up when it stays too long. A thread that was given up never comes
// out of the call, so that whoever gave it up may look at what it worked on.
//
//   { const MpiWatch::Call call(watch); MPI_Testall(...); }       // the thread
//   if (watch->GiveUp(NowNs() - limit_ns)) ...                    // others
#ifndef MESHIFT_COMM_MPI_WATCH_H_
#define MESHIFT_COMM_MPI_WATCH_H_

#include <atomic>
#include <cstdint>

namespace meshift {

int64_t NowNs();  // of the steady clock

class MpiWatch {
 public:
  // The length of a call of MPI. Null: nobody watches.
  class Call {
   public:
    explicit Call(MpiWatch* watch) : watch_(watch) {
      if (watch_ != nullptr) watch_->Enter();
    }
    ~Call() {
      if (watch_ != nullptr) watch_->Leave();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    MpiWatch* const watch_;
  };

  // Of the thread: its next calls count as if it had been in them for so long already, since others
  // have waited as long. 0: no more.
  void set_overdue(int64_t ns) { overdue_ns_ = ns; }

  // Of others. Whether the thread is in a call that began before `ns`.
  bool IsInSince(int64_t ns) const {
    const int64_t since = since_.load(std::memory_order_acquire);
    return since < ns && since != kLost;
  }
  // The same; and if so it is given up.
  bool GiveUp(int64_t ns);
  bool lost() const { return since_.load(std::memory_order_acquire) == kLost; }

 private:
  static constexpr int64_t kOutside = INT64_MAX;
  static constexpr int64_t kLost = INT64_MIN;
  void Enter();
  void Leave();

  std::atomic<int64_t> since_{kOutside};  // when the call began
  int64_t overdue_ns_ = 0;
};

}  // namespace meshift

#endif  // MESHIFT_COMM_MPI_WATCH_H_
