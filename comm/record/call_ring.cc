#include "comm/record/call_ring.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace meshift {
namespace {

// The number of slots that Poll() checks per lock, so that Begin() waits only shortly.
constexpr size_t kPollAtOnce = 64;

int32_t ThreadNumber() {
  static thread_local const auto number = static_cast<int32_t>(syscall(SYS_gettid));
  return number;
}

// When the last of the events was reached, but at least `least_ns`; `now_ns` if an event has no
// time. -1: one has not been reached.
int64_t LastReached(absl::Span<const std::shared_ptr<Event>> events, int64_t least_ns,
                    int64_t now_ns) {
  int64_t last_ns = least_ns;
  for (const std::shared_ptr<Event>& event : events) {
    if (event == nullptr) continue;
    if (!event->IsReached()) return -1;
    const int64_t ns = event->ReachedNs();
    last_ns = std::max(last_ns, ns < 0 ? now_ns : ns);
  }
  return std::min(last_ns, std::max(least_ns, now_ns));
}

}  // namespace

CallRing::CallRing(Engine* engine, int64_t size, Reporter report)
    : engine_(engine),
      report_(std::move(report)),
      max_spare_(2 * std::min<size_t>(static_cast<size_t>(size), 2048)),
      slots_(static_cast<size_t>(size)),
      states_(new State[static_cast<size_t>(size)]) {
  spare_.reserve(max_spare_);
  spare_lists_.reserve(max_spare_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    states_[i].store(CallState::kNone, std::memory_order_relaxed);
  }
}

uint32_t CallRing::AddSource() {
  constexpr size_t kManySources = 64;  // up to it, a new number is cheaper than the search
  const MutexLock lock(mutex_);
  for (uint32_t i = 0; sources_.size() > kManySources && i < sources_.size(); ++i) {
    if (!sources_[i].removed) continue;
    const bool remembered = std::any_of(slots_.begin(), slots_.end(), [i](const CallSlot& slot) {
      return slot.number >= 0 && slot.source == i;
    });
    if (remembered) continue;
    sources_[i] = {};
    return i;
  }
  sources_.emplace_back();
  return static_cast<uint32_t>(sources_.size() - 1);
}

void CallRing::CloseSource(uint32_t source) {
  const MutexLock lock(mutex_);
  sources_[source].closed = true;
}

void CallRing::RemoveSource(uint32_t source) {
  const TickClock::Reading now = clock_.Read();
  const MutexLock lock(mutex_);
  const bool was_closed = sources_[source].closed;
  sources_[source].removed = sources_[source].closed = true;
  if (sources_[source].pinned != nullptr) Recycle(sources_[source].pinned.get());
  sources_[source].pinned = nullptr;
  for (CallSlot& slot : slots_) {
    if (slot.number < 0 || slot.source != source) continue;
    const CallState state = StateOf(slot).load(std::memory_order_acquire);
    if (state == CallState::kIssuing || state == CallState::kInFlight) {
      const bool ended = state == CallState::kInFlight && !was_closed && PollSlot(&slot, now);
      StateOf(slot).store(ended ? CallState::kEnded : CallState::kFailed,
                          std::memory_order_release);
      if (ended) Report(slot);
    }
    // The caller may destroy its events now.
    if (slot.done != nullptr && slot.kept == nullptr) {
      slot.done->slot = nullptr;
      slot.done = nullptr;
    }
  }
  const bool last =
      std::all_of(sources_.begin(), sources_.end(), [](const Source& s) { return s.removed; });
  if (!last) return;
  // Events must not outlive the engine.
  for (CallSlot& slot : slots_) {
    slot.done = nullptr;
    slot.kept = nullptr;
    slot.after.clear();
    slot.num_done = slot.num_after = 0;
  }
  spare_.clear();
  spare_lists_.clear();
  has_made_spare_ = false;
}

void CallRing::Reserve() {
  const MutexLock lock(mutex_);
  MakeSpare();
}

// Makes events early, since none can be made while a later call is captured in a graph.
void CallRing::MakeSpare() {
  constexpr size_t kFirstSpare = 32;
  if (std::exchange(has_made_spare_, true)) return;
  const auto stream = engine_->CreateStream();
  if (!stream.ok()) return;  // then each call makes its own events
  // GiveBack takes a list before TakeEvents finds out that no event is left.
  while (spare_lists_.size() < kFirstSpare + 1) {
    spare_lists_.push_back(std::make_unique<DoneEvents>());
  }
  while (spare_.size() < kFirstSpare) {
    std::shared_ptr<Event> event;
    if (!engine_->RecordInto(**stream, &event).ok()) return;
    spare_.push_back(std::move(event));
  }
}

void CallRing::MakeRoom(size_t num_events) {
  for (CallSlot& slot : slots_) {
    if (StateOf(slot).load(std::memory_order_acquire) == CallState::kIssuing) continue;
    slot.after.reserve(num_events);
    if (slot.kept != nullptr) slot.kept->events.reserve(num_events);
  }
  for (const std::unique_ptr<DoneEvents>& list : spare_lists_) list->events.reserve(num_events);
  room_ = num_events;
}

void CallRing::Release(absl::Span<std::shared_ptr<Event>> events, bool may_reuse) {
  for (std::shared_ptr<Event>& event : events) {
    if (may_reuse && event.use_count() == 1 && spare_.size() < max_spare_) {
      spare_.push_back(std::move(event));
    }
    event = nullptr;
  }
}

void CallRing::Recycle(CallSlot* slot) {
  // The work of a failed source may never end.
  const bool may_reuse = slot->number >= 0 && !sources_[slot->source].closed;
  if (slot->kept != nullptr) {
    Release(absl::MakeSpan(slot->kept->events), may_reuse);
    spare_lists_.push_back(std::move(slot->kept));
  } else if (slot->done != nullptr) {
    slot->done->slot = nullptr;
  }
  slot->done = nullptr;
  Release(absl::MakeSpan(slot->after.data(), slot->num_after), may_reuse);
  slot->num_done = slot->num_after = 0;
}

void CallRing::GiveBack(DoneEvents* done, bool has_ended) {
  CallSlot* const slot = std::exchange(done->slot, nullptr);
  if (has_ended && EndAtOnce(slot)) return;
  if (spare_lists_.empty()) spare_lists_.push_back(std::make_unique<DoneEvents>());
  slot->kept = std::move(spare_lists_.back());
  spare_lists_.pop_back();
  EventList& events = slot->kept->events;
  // Not clear(), which would free its memory.
  if (events.size() < slot->num_done) events.resize(slot->num_done);
  for (size_t i = 0; i < slot->num_done; ++i) events[i] = std::move(done->events[i]);
  slot->done = slot->kept.get();
}

bool CallRing::EndAtOnce(CallSlot* slot) {
  Source& source = sources_[slot->source];
  if (slot->num_done != 1 || slot->num_after > 0 || report_ != nullptr || source.closed ||
      source.pinned != nullptr) {
    return false;
  }
  const std::shared_ptr<Event>& event = slot->done->events[0];
  // The engine may use an event a little longer than the call.
  const int64_t ns = event.use_count() == 1 ? event->ReachedNs() : -1;
  if (ns < 0) return false;
  slot->ended_ns = ns;
  source.last_ended_ns = std::max(source.last_ended_ns, ns);
  slot->done = nullptr;
  StateOf(*slot).store(CallState::kEnded, std::memory_order_release);
  return true;
}

void CallRing::RecycleEnded() {
  constexpr size_t kAtOnce = 16;  // bounds the time under the lock
  const TickClock::Reading now = clock_.Read();
  // The last slot is that of the call that begins now.
  for (size_t i = 0; i < kAtOnce && unrecycled_ > 1; ++i) {
    CallSlot& slot = slots_[recycle_at_];
    const CallState state = StateOf(slot).load(std::memory_order_acquire);
    const bool closed = sources_[slot.source].closed;
    if (state == CallState::kIssuing && !closed) return;
    if (state == CallState::kInFlight && !closed) {
      if (!PollSlot(&slot, now)) return;
      StateOf(slot).store(CallState::kEnded, std::memory_order_release);
      Report(slot);
    }
    // A slot that is being issued belongs to its thread.
    if (state != CallState::kIssuing) Recycle(&slot);
    recycle_at_ = Next(recycle_at_);
    --unrecycled_;
  }
}

void CallRing::TakeEvents(size_t size, EventList* events) {
  if (events->size() < size) events->resize(size);
  for (size_t i = 0; i < size; ++i) {
    std::shared_ptr<Event>& event = (*events)[i];
    if (event.use_count() == 1) continue;
    if (spare_.empty()) RecycleEnded();
    if (event.use_count() == 1 || spare_.empty()) continue;
    event = std::move(spare_.back());
    spare_.pop_back();
  }
}

void CallRing::SkipRecycled() {
  // Two a call: then they never accumulate.
  for (int i = 0; i < 2 && unrecycled_ > 1; ++i) {
    const CallSlot& slot = slots_[recycle_at_];
    if (StateOf(slot).load(std::memory_order_acquire) != CallState::kEnded ||
        slot.done != nullptr || slot.num_after > 0) {
      return;
    }
    recycle_at_ = Next(recycle_at_);
    --unrecycled_;
  }
}

CallSlot* CallRing::Begin(uint32_t source, const CallHead& head, DoneEvents* done) {
  const int64_t now = clock_.Now();
  const int32_t thread = ThreadNumber();
  const MutexLock lock(mutex_);
  if (!has_made_spare_) [[unlikely]]
    MakeSpare();
  if (std::max(head.num_done, head.num_after) > room_) [[unlikely]]
    MakeRoom(std::max(head.num_done, head.num_after));
  if (done != nullptr && done->slot != nullptr) GiveBack(done, head.has_ended);
  SkipRecycled();
  CallSlot* slot = nullptr;
  for (size_t tries = 0; slot == nullptr; ++tries) {
    if (tries == slots_.size()) return nullptr;
    slot = &slots_[at_];
    at_ = Next(at_);
    if (unrecycled_ == slots_.size()) {
      recycle_at_ = at_;
    } else {
      ++unrecycled_;
    }
    const CallState state = StateOf(*slot).load(std::memory_order_acquire);
    if (state == CallState::kIssuing) [[unlikely]]
      slot = nullptr;
    if (state == CallState::kInFlight) Evict(slot);
  }
  if (slot->done != nullptr || slot->num_after > 0) Recycle(slot);
  if (done != nullptr) TakeEvents(head.num_done, &done->events);
  if (head.num_after > 0) TakeEvents(head.num_after, &slot->after);
  slot->source = source;
  slot->number = next_number_++;
  slot->call = head.call;
  slot->issued = now;
  if (slot->text != *head.text) slot->text = *head.text;
  slot->thread = thread;
  slot->is_first = head.is_first;
  slot->started_ns = slot->ended_ns = -1;
  StateOf(*slot).store(CallState::kIssuing, std::memory_order_release);
  return slot;
}

void CallRing::End(CallSlot* slot, const CallTail& tail) {
  bool captured = false;
  for (size_t i = 0; i < tail.num_done; ++i) {
    captured = captured || tail.done->events[i]->InGraph();
  }
  slot->num_done = static_cast<uint32_t>(tail.num_done);
  // The end of captured calls is not looked for.
  if (tail.done != nullptr && !captured) {
    slot->done = tail.done;
    tail.done->slot = slot;
  }
  if (slot->after.size() < tail.num_after) [[unlikely]]
    slot->after.resize(tail.num_after);
  for (size_t i = 0; i < tail.num_after; ++i) std::swap(slot->after[i], (*tail.after)[i]);
  slot->num_after = static_cast<uint32_t>(tail.num_after);
  slot->after_number = tail.after_number;
  StateOf(*slot).store(captured ? CallState::kCaptured : CallState::kInFlight,
                       std::memory_order_release);
}

bool CallRing::IsReached(const CallSlot& slot) const { return LastReached(slot.Done(), 0, 0) >= 0; }

void CallRing::Evict(CallSlot* slot) {
  Source& source = sources_[slot->source];
  if (source.closed) return;
  if (IsReached(*slot)) {
    source.has_forgotten = true;
    if (report_ != nullptr) PollSlot(slot, clock_.Read());
    return Report(*slot);
  }
  if (source.pinned != nullptr) return Report(*slot);
  source.pinned = std::make_unique<CallSlot>(std::move(*slot));
  if (source.pinned->kept == nullptr && source.pinned->done != nullptr) {
    source.pinned->done->slot = source.pinned.get();
  }
  *slot = {};
}

bool CallRing::PollSlot(CallSlot* slot, const TickClock::Reading& now) {
  const int64_t issued_ns = now.ToNs(slot->issued);
  // Set once, since two readings of the clock would give different nanoseconds.
  if (slot->started_ns < 0) {
    slot->started_ns =
        slot->num_after == 0 ? issued_ns : LastReached(slot->After(), issued_ns, now.ns);
  }
  const int64_t ended_ns = LastReached(slot->Done(), issued_ns, now.ns);
  if (ended_ns < 0) return false;
  Source& source = sources_[slot->source];
  slot->ended_ns = ended_ns;
  slot->started_ns = std::max(issued_ns, slot->started_ns);
  if (source.last_ended_ns <= slot->ended_ns) {
    slot->started_ns = std::max(slot->started_ns, source.last_ended_ns);
  }
  slot->started_ns = std::min(slot->started_ns, slot->ended_ns);
  source.last_ended_ns = std::max(source.last_ended_ns, slot->ended_ns);
  return true;
}

void CallRing::Report(const CallSlot& slot) const {
  if (report_ == nullptr) return;
  const CallText& text = *slot.text;
  report_({.call = slot.call,
           .groups = text.all_groups,
           .plan = text.plan,
           .bytes = text.bytes,
           .ns = slot.ended_ns >= 0 ? slot.ended_ns - slot.started_ns : -1});
}

RecordedCall CallRing::Copy(const CallSlot& slot, CallState state,
                            const TickClock::Reading& now) const {
  RecordedCall call = {.number = slot.number,
                       .source = slot.source,
                       .call = slot.call,
                       .state = state,
                       .issued_ns = now.ToNs(slot.issued),
                       .started_ns = slot.started_ns,
                       .ended_ns = -1,
                       .thread = slot.thread,
                       .is_first = slot.is_first,
                       .text = slot.text};
  if (state == CallState::kEnded) {
    call.ended_ns = std::max(slot.ended_ns, call.issued_ns);
    call.started_ns = std::clamp(slot.started_ns, call.issued_ns, call.ended_ns);
  }
  return call;
}

void CallRing::Consider(const CallSlot& slot, CallState state, const TickClock::Reading& now,
                        std::vector<OldestCall>* oldest) {
  OldestCall& of_source = (*oldest)[slot.source];
  if (of_source.found && of_source.call.number < slot.number) return;
  of_source.found = true;
  of_source.call = Copy(slot, state, now);
  of_source.since_ns = std::nullopt;
  if (state == CallState::kIssuing) of_source.since_ns = of_source.call.issued_ns;
  if (state == CallState::kInFlight && slot.started_ns >= 0) of_source.since_ns = slot.started_ns;
  of_source.after_number = state == CallState::kInFlight ? slot.after_number : -1;
}

void CallRing::SetSince(const TickClock::Reading& now, OldestCall* oldest) {
  Source& source = sources_[oldest->call.source];
  if (source.oldest != oldest->call.number) {
    source.oldest = oldest->call.number;
    source.oldest_since_ns = source.has_forgotten ? now.ns : source.last_ended_ns;
  }
  source.has_forgotten = false;
  if (oldest->since_ns) {
    oldest->since_ns = std::max(*oldest->since_ns, source.oldest_since_ns);
  } else {
    source.oldest_since_ns = now.ns;
  }
}

void CallRing::Poll(std::vector<OldestCall>* oldest) {
  size_t first = 0;
  {
    const MutexLock lock(mutex_);
    oldest->assign(sources_.size(), {});
    first = at_;
    const TickClock::Reading now = clock_.Read();
    for (Source& source : sources_) {
      if (source.pinned == nullptr || source.closed) continue;
      if (PollSlot(source.pinned.get(), now)) {
        Report(*source.pinned);
        Recycle(source.pinned.get());
        source.pinned = nullptr;
      } else {
        Consider(*source.pinned, CallState::kInFlight, now, oldest);
      }
    }
  }
  for (size_t begin = 0; begin < slots_.size(); begin += kPollAtOnce) {
    const MutexLock lock(mutex_);
    // Sources added meanwhile are skipped.
    const TickClock::Reading now = clock_.Read();
    for (size_t i = begin; i < std::min(begin + kPollAtOnce, slots_.size()); ++i) {
      CallSlot& slot = slots_[(first + i) % slots_.size()];
      const CallState state = StateOf(slot).load(std::memory_order_acquire);
      if (state != CallState::kIssuing && state != CallState::kInFlight) continue;
      if (slot.source >= oldest->size() || sources_[slot.source].closed) continue;
      if (state == CallState::kInFlight && PollSlot(&slot, now)) {
        StateOf(slot).store(CallState::kEnded, std::memory_order_release);
        Report(slot);
        Recycle(&slot);
        continue;
      }
      Consider(slot, state, now, oldest);
    }
  }
  const MutexLock lock(mutex_);
  const TickClock::Reading now = clock_.Read();
  int64_t first_open = next_number_;
  for (const OldestCall& each : *oldest) {
    if (each.found) first_open = std::min(first_open, each.call.number);
  }
  for (OldestCall& each : *oldest) {
    if (!each.found) continue;
    if (each.after_number >= first_open) each.since_ns = std::nullopt;
    SetSince(now, &each);
  }
}

std::vector<RecordedCall> CallRing::Snapshot() {
  std::vector<OldestCall> oldest;
  Poll(&oldest);
  std::vector<RecordedCall> calls;
  {
    const MutexLock lock(mutex_);
    const TickClock::Reading now = clock_.Read();
    calls.reserve(slots_.size());
    for (const Source& source : sources_) {
      if (source.pinned == nullptr) continue;
      calls.push_back(Copy(*source.pinned, CallState::kInFlight, now));
    }
    for (const CallSlot& slot : slots_) {
      const CallState state = StateOf(slot).load(std::memory_order_acquire);
      if (state != CallState::kNone) calls.push_back(Copy(slot, state, now));
    }
  }
  std::sort(calls.begin(), calls.end(),
            [](const RecordedCall& a, const RecordedCall& b) { return a.number < b.number; });
  // A call of a source starts after the ends of its earlier calls, in whatever order they were
  // found.
  std::vector<int64_t> last_ended_ns;
  for (RecordedCall& call : calls) {
    if (call.state != CallState::kEnded) continue;
    if (call.source >= last_ended_ns.size()) last_ended_ns.resize(call.source + 1, 0);
    int64_t& last_ns = last_ended_ns[call.source];
    if (last_ns <= call.ended_ns) call.started_ns = std::max(call.started_ns, last_ns);
    last_ns = std::max(last_ns, call.ended_ns);
  }
  return calls;
}

}  // namespace meshift
