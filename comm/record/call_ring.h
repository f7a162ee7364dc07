// A ring buffer of the last calls of an engine's redistributors: when each was issued, and the
// events with which it ends, so that another thread can find out when it ended. A source is one
// redistributor, by its number from AddSource(). Internal to comm/.
//
//   DoneEvents done;
//   CallSlot* slot = ring.Begin(source, {.call = 7, .text = &text}, &done);
//   ... issue the call, which records `done.events` ...
//   ring.End(slot, {.done = &done, .num_done = 1});
//   ... on another thread ...
//   ring.Poll(&oldest);
//
// A new call replaces the oldest one that is not being issued. The ring keeps one replaced call in
// flight per source, until it ends or the source is removed. Begin takes a lock, End none.
//
// In a steady state Begin and End do not allocate, since events are reused. A caller passes the
// events of its earlier call to Begin again. If the ring can end that call at once, the caller
// keeps them. Otherwise the ring takes them, and gives the caller others. Times in ns are on the
// steady clock.
#ifndef MESHIFT_COMM_RECORD_CALL_RING_H_
#define MESHIFT_COMM_RECORD_CALL_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/engine/engine_record.h"
#include "comm/record/call_text.h"
#include "comm/record/tick_clock.h"
#include "meshift/engine.h"

namespace meshift {

using EventList = absl::InlinedVector<std::shared_ptr<Event>, 1>;
struct CallSlot;

// The events with which a call ends. They belong to the caller, which reuses them: after End the
// ring reads them until the caller passes them to Begin again, or the source is removed. They must
// not be destroyed before.
struct DoneEvents {
  EventList events;
  CallSlot* slot = nullptr;  // the ring's: the slot that reads `events`
};

enum class CallState : uint8_t {
  kNone,
  kIssuing,  // between Begin and End
  kInFlight,
  kEnded,
  kCaptured,  // in a CUDA graph, which may run at any time
  kFailed,    // was issuing or in flight when its redistributor was destroyed
};

// The data of a call that Begin stores.
struct CallHead {
  bool is_first = false;   // the first call of its program
  uint32_t num_done = 1;   // expected number of events with which it ends
  uint32_t num_after = 0;  // number of events that it waits for
  // The earlier call that ended with the same events is known to have ended.
  bool has_ended = false;
  int64_t call = 0;  // the source's number of the call
  const std::shared_ptr<const CallText>* text = nullptr;
};

// The data of a call that End adds.
struct CallTail {
  DoneEvents* done = nullptr;  // the first `num_done` are its end
  size_t num_done = 0;
  EventList* after = nullptr;  // the events that it waits for; swapped for others
  size_t num_after = 0;
  int64_t after_number = -1;  // it waits for calls of the engine up to this number; -1: none
};

// Two cache lines: each call uses a slot that has left the caches since its last use
// (bench/record_cost.h).
struct alignas(128) CallSlot {
  // Set by Begin.
  int64_t number = -1;  // counts the engine's calls
  int64_t call = 0;     // counts the source's calls
  int64_t issued = 0;   // ticks
  std::shared_ptr<const CallText> text;
  uint32_t source : 31 = 0;
  bool is_first : 1 = false;
  int32_t thread = 0;
  // Set by End, while the state is kIssuing.
  uint32_t num_done = 0;
  uint32_t num_after = 0;
  DoneEvents* done = nullptr;  // the caller's, or `kept`; null: none
  std::unique_ptr<DoneEvents> kept;
  EventList after;
  int64_t after_number = -1;
  // -1 from Begin on, until PollSlot sets the time.
  int64_t started_ns = -1;  // while in flight: when the events that it waits for were reached
  int64_t ended_ns = -1;

  absl::Span<const std::shared_ptr<Event>> Done() const {
    if (done == nullptr) return {};
    return {done->events.data(), num_done};
  }
  absl::Span<const std::shared_ptr<Event>> After() const { return {after.data(), num_after}; }
};
static_assert(sizeof(CallSlot) == 128);

// A copy of a call. Times are on the steady clock; -1: unknown.
struct RecordedCall {
  int64_t number = 0;
  uint32_t source = 0;
  int64_t call = 0;
  CallState state = CallState::kNone;
  int64_t issued_ns = -1;
  int64_t started_ns = -1;
  int64_t ended_ns = -1;
  int32_t thread = 0;
  bool is_first = false;
  std::shared_ptr<const CallText> text;
};

// The oldest unfinished call of a source.
struct OldestCall {
  bool found = false;
  RecordedCall call;
  // Since when it could run; none if it still waits for other work.
  std::optional<int64_t> since_ns;
  int64_t after_number = -1;
};

// Safe for concurrent use.
class CallRing {
 public:
  using Reporter = std::function<void(const EndedCall&)>;
  // `size` is the number of slots. `report` may be null; it gets each call that Poll(), Snapshot(),
  // Begin() or RemoveSource() finds ended, or that loses its slot before it is found ended (`ns` is
  // then -1), unless its source is closed. It does not get captured calls. It runs under the lock
  // and must not call the ring. `engine` must outlive all sources.
  CallRing(Engine* engine, int64_t size, Reporter report);

  // Returns the source's number: a new one, or that of a removed source without remembered calls.
  uint32_t AddSource();
  // Its calls are not checked any more, and keep their present state.
  void CloseSource(uint32_t source);
  // Ends the source. Its unfinished calls become kFailed; one that has lost its slot is forgotten,
  // and not reported. With the last source all events are released.
  void RemoveSource(uint32_t source);

  // Makes now the events that the first call would make.
  void Reserve();
  // Begins a call. While there are spare events, replaces those of the first head.num_done in
  // `done` that may not be recorded again. `done` may be null. Returns null if the ring is full of
  // calls that are being issued.
  ABSL_ATTRIBUTE_HOT CallSlot* Begin(uint32_t source, const CallHead& head, DoneEvents* done);
  // Ends the issuing of a call. Called by the thread that called Begin.
  ABSL_ATTRIBUTE_HOT void End(CallSlot* slot, const CallTail& tail);

  // Finds out which calls have ended, and the oldest unfinished call of each source: (*oldest)[i]
  // is that of source i. Skips closed sources.
  void Poll(std::vector<OldestCall>* oldest);
  // Copies of all remembered calls, ordered by number.
  std::vector<RecordedCall> Snapshot();

 private:
  struct Source {
    bool removed = false;
    bool closed = false;
    bool has_forgotten = false;  // finished calls were evicted since the last Poll()
    int64_t last_ended_ns = 0;   // the latest end of its calls
    int64_t oldest = -1;         // number of the oldest unfinished call at the last Poll()
    int64_t oldest_since_ns = 0;
    // The oldest call in flight, if its slot was needed for another call.
    std::unique_ptr<CallSlot> pinned;
  };
  using State = std::atomic<CallState>;

  State& StateOf(const CallSlot& slot) { return states_[&slot - slots_.data()]; }
  size_t Next(size_t place) const { return place + 1 == slots_.size() ? 0 : place + 1; }
  bool IsReached(const CallSlot& slot) const;
  void Evict(CallSlot* slot) MESHIFT_REQUIRES(mutex_);
  void MakeSpare() MESHIFT_REQUIRES(mutex_);
  // Reserves space for this many events in each list, but for those of slots that are being issued.
  void MakeRoom(size_t num_events) MESHIFT_REQUIRES(mutex_);
  // Moves the slot's own events to the spare ones, or releases them; gives back the caller's.
  void Recycle(CallSlot* slot) MESHIFT_REQUIRES(mutex_);
  void Release(absl::Span<std::shared_ptr<Event>> events, bool may_reuse) MESHIFT_REQUIRES(mutex_);
  // Lets the caller record its events again if EndAtOnce does, else keeps them.
  void GiveBack(DoneEvents* done, bool has_ended) MESHIFT_REQUIRES(mutex_);
  // Ends a call that has ended with one event, if that may be recorded again and there are no
  // reports, which are made in the order of calls. Copy() and Snapshot() complete its times.
  ABSL_ATTRIBUTE_HOT bool EndAtOnce(CallSlot* slot) MESHIFT_REQUIRES(mutex_);
  // Passes the oldest slots if they have no events.
  void SkipRecycled() MESHIFT_REQUIRES(mutex_);
  // Recycles the events of some of the oldest calls, at most up to the first unfinished one of an
  // open source.
  void RecycleEnded() MESHIFT_REQUIRES(mutex_);
  // Replaces those of the first `size` events that are null or have other references, while spares
  // remain.
  void TakeEvents(size_t size, EventList* events) MESHIFT_REQUIRES(mutex_);
  // Whether the call has ended; if so, sets its times.
  bool PollSlot(CallSlot* slot, const TickClock::Reading& now) MESHIFT_REQUIRES(mutex_);
  void Report(const CallSlot& slot) const MESHIFT_REQUIRES(mutex_);
  void Consider(const CallSlot& slot, CallState state, const TickClock::Reading& now,
                std::vector<OldestCall>* oldest) MESHIFT_REQUIRES(mutex_);
  void SetSince(const TickClock::Reading& now, OldestCall* oldest) MESHIFT_REQUIRES(mutex_);
  RecordedCall Copy(const CallSlot& slot, CallState state, const TickClock::Reading& now) const
      MESHIFT_REQUIRES(mutex_);

  Engine* const engine_;
  const Reporter report_;
  const TickClock clock_;
  const size_t max_spare_;
  Mutex mutex_;
  size_t room_ MESHIFT_GUARDED_BY(mutex_) = 1;  // reserved number of events of each list
  size_t at_ MESHIFT_GUARDED_BY(mutex_) = 0;    // the next slot
  // The `unrecycled_` slots before `at_`, of which this is the first, may have events.
  size_t recycle_at_ MESHIFT_GUARDED_BY(mutex_) = 0;
  size_t unrecycled_ MESHIFT_GUARDED_BY(mutex_) = 0;
  int64_t next_number_ MESHIFT_GUARDED_BY(mutex_) = 0;
  // A slot in state kIssuing belongs to the thread that issues the call; mutex_ guards the others.
  std::vector<CallSlot> slots_;
  std::unique_ptr<State[]> states_;
  std::vector<Source> sources_ MESHIFT_GUARDED_BY(mutex_);
  // Events without other references, to be reused.
  bool has_made_spare_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Event>> spare_ MESHIFT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<DoneEvents>> spare_lists_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_CALL_RING_H_
