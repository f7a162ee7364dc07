// The last calls of an engine's redistributors: when each was issued and what it waits for, so that
// somebody else can say when it ended. Internal to comm/record.
//
//   CallSlot* slot = ring.Begin(source, {.call = 7, .text = &text}, &events);   // marks them
//   ring.End(slot, {...});
//   ... another thread ...
//   ring.Look(&sources);
//
// Begin takes a lock for a few instructions. Neither allocates once as many calls have been in
// flight as ever are: a call that needs an event takes one of the oldest calls that have ended.
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

enum class CallState : uint8_t {
  kNone,
  kIssuing,  // its thread is still at it
  kInFlight,
  kEnded,
  kCaptured,  // in a graph: may run any time
  kFailed,    // was one of the first two when its redistributor went
};

struct CallHead {
  bool is_first = false;   // of its program
  uint32_t num_done = 1;   // events that it will end with, as far as is known
  uint32_t num_after = 0;  // that it comes after
  int64_t call = 0;
  const std::shared_ptr<const CallText>* text = nullptr;
};

// What is known once a call is issued.
struct CallTail {
  EventList* done = nullptr;  // the first `num_done` are to be reached; stay the caller's too
  size_t num_done = 0;
  EventList* after = nullptr;  // what it comes after; given away for others
  size_t num_after = 0;
  int64_t after_number = -1;  // it comes after calls up to this number
};

// Two cache lines: each call reads and writes a slot that the caches have lost since
// (bench/record_cost.h).
struct alignas(128) CallSlot {
  // By Begin.
  int64_t number = -1;  // of the engine
  int64_t call = 0;     // of the source
  int64_t issued = 0;   // ticks
  std::shared_ptr<const CallText> text;
  uint32_t source : 31 = 0;
  bool is_first : 1 = false;
  int32_t thread = 0;
  // By End, while its state is kIssuing.
  uint32_t num_done = 0;
  uint32_t num_after = 0;
  EventList done;
  EventList after;
  int64_t after_number = -1;
  // By Begin, -1; then by Look.
  int64_t started_ns = -1;  // until it has ended: when what it comes after was reached
  int64_t ended_ns = -1;
};
static_assert(sizeof(CallSlot) == 128);

// A call as it was at one time; times on the steady clock, -1 where not known.
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

// The oldest call of a source that has not ended.
struct OldestCall {
  bool found = false;
  RecordedCall call;
  // Since when it could run; none where it still waits for what it comes after.
  std::optional<int64_t> since_ns;
  int64_t after_number = -1;
};

// Safe for concurrent use.
class CallRing {
 public:
  using Reporter = std::function<void(const EndedCall&)>;
  // `engine` must outlive all calls, and `report` may be null.
  CallRing(Engine* engine, int64_t size, Reporter report);

  // Its number: the next one, or that of a source that was removed, of which nothing is remembered.
  uint32_t AddSource();
  // Nobody waits for its calls any more; they are remembered as they are.
  void CloseSource(uint32_t source);
  // Its calls have ended, or nobody asks for them any more: their events are let go.
  void RemoveSource(uint32_t source);

  // Makes the events that the first call would.
  void Reserve();
  // A call begins. Its first events in `done` become such as may be marked anew. Null: there is no
  // room, since all calls of the ring are being issued.
  ABSL_ATTRIBUTE_HOT CallSlot* Begin(uint32_t source, const CallHead& head, EventList* done);
  // It is issued. Of the thread that began it.
  ABSL_ATTRIBUTE_HOT void End(CallSlot* slot, const CallTail& tail);

  // Finds out which calls have ended, and the oldest that has not, by source.
  void Look(std::vector<OldestCall>* oldest);
  // All calls that are remembered, in the order of their numbers.
  std::vector<RecordedCall> Snapshot();

 private:
  struct Source {
    bool removed = false;
    bool closed = false;
    bool has_forgotten = false;  // calls that have ended, since the last look
    int64_t last_ended_ns = 0;   // of its calls before the oldest
    int64_t oldest = -1;         // number, when last looked at
    int64_t oldest_since_ns = 0;
    // The oldest call in flight, where its place in the ring was needed.
    std::unique_ptr<CallSlot> pinned;
  };
  using State = std::atomic<CallState>;

  State& StateOf(const CallSlot& slot) { return states_[&slot - slots_.data()]; }
  size_t Next(size_t place) const { return place + 1 == slots_.size() ? 0 : place + 1; }
  bool IsReached(const CallSlot& slot) const;
  void Evict(CallSlot* slot) MESHIFT_REQUIRES(mutex_);
  void MakeSpare() MESHIFT_REQUIRES(mutex_);
  // For so many events, in all places.
  void MakeRoom(size_t num_events) MESHIFT_REQUIRES(mutex_);
  // Lets go of its events.
  void Recycle(CallSlot* slot) MESHIFT_REQUIRES(mutex_);
  // Looks at the oldest calls that have events, until one that has not ended.
  void Harvest() MESHIFT_REQUIRES(mutex_);
  // Replaces those of the first `size` that others hold too, as far as there are others.
  void TakeEvents(size_t size, EventList* events) MESHIFT_REQUIRES(mutex_);
  // Whether it has ended; then its times are there.
  bool LookAt(CallSlot* slot, const TickClock::Reading& now) MESHIFT_REQUIRES(mutex_);
  void Report(const CallSlot& slot) const MESHIFT_REQUIRES(mutex_);
  void Consider(const CallSlot& slot, CallState state, const TickClock::Reading& now,
                std::vector<OldestCall>* oldest) MESHIFT_REQUIRES(mutex_);
  void Date(const TickClock::Reading& now, OldestCall* oldest) MESHIFT_REQUIRES(mutex_);
  RecordedCall Copy(const CallSlot& slot, CallState state, const TickClock::Reading& now) const
      MESHIFT_REQUIRES(mutex_);

  Engine* const engine_;
  const Reporter report_;
  const TickClock clock_;
  const size_t max_spare_;
  std::atomic<size_t> most_done_{1};  // events that a call has ended with
  Mutex mutex_;
  size_t room_ MESHIFT_GUARDED_BY(mutex_) = 1;  // for events, that each place has
  size_t at_ MESHIFT_GUARDED_BY(mutex_) = 0;    // the next place
  // The first of so many places before it that may have events.
  size_t harvest_at_ MESHIFT_GUARDED_BY(mutex_) = 0;
  size_t unharvested_ MESHIFT_GUARDED_BY(mutex_) = 0;
  int64_t next_number_ MESHIFT_GUARDED_BY(mutex_) = 0;
  // Written by whoever issues the call, and by others under the lock while nobody does.
  std::vector<CallSlot> slots_;
  std::unique_ptr<State[]> states_;
  std::vector<Source> sources_ MESHIFT_GUARDED_BY(mutex_);
  // Events that nobody else holds, to be marked anew.
  bool has_made_spare_ MESHIFT_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Event>> spare_ MESHIFT_GUARDED_BY(mutex_);
};

}  // namespace meshift

#endif  // MESHIFT_COMM_RECORD_CALL_RING_H_
