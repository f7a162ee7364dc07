// The workers that run the streams, with random delays and in a random order of streams.
#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "testing/fake_gpu/machine.h"

namespace meshift::fake {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

#if defined(__SANITIZE_THREAD__)
// Operations that a test leaves unordered on purpose must not race in the stand-in itself.
Mutex& RunMutex() {
  static Mutex& mutex = *new Mutex();
  return mutex;
}
#endif

bool AllDone(const std::vector<PointRef>& points) {
  return std::all_of(points.begin(), points.end(), [](const PointRef& p) { return p->done; });
}

}  // namespace

Machine::Pick Machine::Choose(Time now, Time* wake_up) {
  if (!timers_.empty()) {
    if (timers_.begin()->first <= now) {
      Pick pick;
      pick.timer = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      return pick;
    }
    *wake_up = std::min(*wake_up, timers_.begin()->first);
  }
  // A uniform choice among the streams whose first item can run.
  ItemRef chosen;
  uint64_t candidates = 0;
  bool delayed = false;
  for (size_t i = 0; i < active_.size();) {
    Stream& stream = *active_[i];
    if (stream.queue.empty()) {
      active_[i] = active_.back();
      active_.pop_back();
      continue;
    }
    ++i;
    Item& item = *stream.queue.front();
    const DeviceState& device = *devices[static_cast<size_t>(stream.context->device)];
    if (device.killed || item.state == Item::State::kRunning ||
        item.state == Item::State::kPending || !AllDone(item.after)) {
      continue;
    }
    if (!item.timed) {
      item.timed = true;
      const auto most = static_cast<uint64_t>(options.delay_us);
      item.not_before = now;
      if (most > 0 && random.Below(4) == 0) item.not_before += microseconds(random.Below(most));
      // Sometimes much later than all others.
      if (most > 0 && random.Below(256) == 0) item.not_before += microseconds(20 * most);
    }
    const Time earliest = std::max(item.not_before, device.not_before);
    if (earliest > now) {
      delayed = true;
      *wake_up = std::min(*wake_up, earliest);
      continue;
    }
    if (random.Below(++candidates) == 0) chosen = stream.queue.front();
  }
  if (chosen == nullptr) return {};
  const bool finish = chosen->state == Item::State::kReady;
  chosen->state = Item::State::kRunning;
  // This worker is busy now; another one must run the other items.
  if (candidates > 1 || delayed) work_.notify_one();
  Pick pick;
  pick.item = std::move(chosen);
  pick.finish = finish;
  return pick;
}

void Machine::MarkDone(Item& item) {
  item.state = Item::State::kDone;
  item.done->done = true;
  item.done->when = steady_clock::now();
  if (item.done->changed != nullptr) item.done->changed->notify_all();
  item.task.reset();
  item.after.clear();
  std::deque<ItemRef>& queue = item.stream->queue;
  if (!queue.empty() && queue.front().get() == &item) queue.pop_front();
  // The worker that calls this runs the next item.
}

void Machine::Worker() {
  while (true) {
    Pick pick;
    {
      MutexLock lock(mutex);
      while (true) {
        const Time now = steady_clock::now();
        Time wake_up = now + milliseconds(500);
        pick = Choose(now, &wake_up);
        if (pick.item != nullptr || pick.timer) break;
        bool woken = false;
        lock.WaitFor(work_, wake_up - now, [&] { return std::exchange(woken, true); });
      }
      if (pick.item != nullptr && (pick.item->cancelled || pick.item->task == nullptr)) {
        MarkDone(*pick.item);
        continue;
      }
    }
    if (pick.timer) {
      pick.timer();
      continue;
    }
    Item& item = *pick.item;
    bool done = true;
    if (item.task != nullptr) {
#if defined(__SANITIZE_THREAD__)
      std::optional<MutexLock> running;
      // Except functions of the user, which may wait for other operations.
      if (std::string_view(item.name) != "cuLaunchHostFunc") running.emplace(RunMutex());
#endif
      if (pick.finish) {
        item.task->Finish();
      } else {
        done = item.task->Start(pick.item);
      }
    }
    MutexLock lock(mutex);
    if (done || item.cancelled) {
      MarkDone(item);
    } else {
      item.state = item.completed ? Item::State::kReady : Item::State::kPending;
    }
  }
}

void Machine::Complete(const ItemRef& item) {
  MutexLock lock(mutex);
  item->completed = true;
  if (item->state != Item::State::kPending) return;
  item->state = Item::State::kReady;
  item->timed = false;
  work_.notify_one();
}

void Machine::Cancel(const ItemRef& item) {
  if (item->state == Item::State::kDone || item->cancelled) return;
  item->cancelled = true;
  if (item->state == Item::State::kPending) item->state = Item::State::kReady;
  work_.notify_all();
}

void Machine::Later(std::chrono::microseconds delay, std::function<void()> run) {
  timers_.emplace(steady_clock::now() + delay, std::move(run));
  for (; workers_started_ < options.workers; ++workers_started_) {
    std::thread([this] { Worker(); }).detach();
  }
  work_.notify_one();
}

bool Machine::Await(MutexLock& lock, const PointRef& point, int device) {
  if (point == nullptr) return true;
  const auto dead = [&] { return device >= 0 && devices[static_cast<size_t>(device)]->killed; };
  if (!point->done && !dead()) {
    if (point->changed == nullptr) point->changed = std::make_unique<std::condition_variable>();
    waiters_.push_back(point->changed.get());
    lock.Wait(*point->changed, [&] { return point->done || dead(); });
    waiters_.erase(std::find(waiters_.begin(), waiters_.end(), point->changed.get()));
  }
  if (!point->done) return false;
  HostSaw(point);
  return true;
}

bool Machine::AwaitDevice(MutexLock& lock, int device) {
  // Streams may be made meanwhile; their work does not count for this call.
  std::vector<PointRef> tails;
  for (const Stream* stream : streams) {
    if (stream->tail != nullptr && (device < 0 || stream->context->device == device)) {
      tails.push_back(stream->tail);
    }
  }
  return std::all_of(tails.begin(), tails.end(),
                     [&](const PointRef& tail) { return Await(lock, tail, device); });
}

void Machine::SetKilled(int device, bool killed) {
  MutexLock lock(mutex);
  devices[static_cast<size_t>(device)]->killed = killed;
  for (std::condition_variable* waiter : waiters_) waiter->notify_all();
  work_.notify_all();
}

int64_t Machine::Unfinished() {
  MutexLock lock(mutex);
  int64_t count = 0;
  for (const Stream* stream : streams) count += static_cast<int64_t>(stream->queue.size());
  return count;
}

uint64_t Machine::ThreadId() {
  static std::atomic<uint64_t> threads = 0;
  thread_local const uint64_t id = ++threads;
  return id;
}

}  // namespace meshift::fake
