// Wrappers of std::mutex with the annotations of clang's thread-safety analysis. A Mutex is locked
// and unlocked only by the scopes below, and is not recursive. (Abseil's locks are not used: TSan
// does not see them if a Linux distribution has built Abseil.)
//
//   class Counter {
//     void Add() { MutexLock lock(mutex_); ++count_; changed_.notify_all(); }
//     void AwaitAtLeast(int n) {
//       MutexLock lock(mutex_);
//       lock.Wait(changed_, [&]() MESHIFT_REQUIRES(mutex_) { return count_ >= n; });
//     }
//     Mutex mutex_;
//     std::condition_variable changed_;
//     int count_ MESHIFT_GUARDED_BY(mutex_) = 0;
//   };
#ifndef MESHIFT_BASE_MUTEX_H_
#define MESHIFT_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#if defined(__clang__)
#define MESHIFT_THREAD_ANNOTATION_(x) __attribute__((x))
#else
#define MESHIFT_THREAD_ANNOTATION_(x)
#endif
#define MESHIFT_GUARDED_BY(mutex) MESHIFT_THREAD_ANNOTATION_(guarded_by(mutex))
#define MESHIFT_REQUIRES(mutex) MESHIFT_THREAD_ANNOTATION_(requires_capability(mutex))

namespace meshift {

class MESHIFT_THREAD_ANNOTATION_(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  friend class MutexTryLock;
  std::mutex mutex_;
};

// Holds a Mutex for a scope.
class MESHIFT_THREAD_ANNOTATION_(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MESHIFT_THREAD_ANNOTATION_(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() MESHIFT_THREAD_ANNOTATION_(release_capability()) = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // Waits on `changed` until `done()` holds; the mutex is held whenever `done` is called.
  template <typename Done>
  void Wait(std::condition_variable& changed, Done done) {
    changed.wait(lock_, std::move(done));
  }

  // As Wait, but stops waiting after `timeout`; returns whether `done()` holds. REQUIRES: the time
  // of std::chrono::steady_clock plus `timeout` does not overflow.
  template <typename Done>
  bool WaitFor(std::condition_variable& changed, std::chrono::nanoseconds timeout, Done done) {
    return changed.wait_for(lock_, timeout, std::move(done));
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Holds a Mutex for a scope, if it was free. Not annotated: the analysis does not know that the
// Mutex is held.
class MutexTryLock {
 public:
  explicit MutexTryLock(Mutex& mutex) : lock_(mutex.mutex_, std::try_to_lock) {}
  MutexTryLock(const MutexTryLock&) = delete;
  MutexTryLock& operator=(const MutexTryLock&) = delete;

  bool held() const { return lock_.owns_lock(); }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace meshift

#endif  // MESHIFT_BASE_MUTEX_H_
