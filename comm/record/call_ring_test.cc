#include "comm/record/call_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/record/call_record.h"
#include "comm/record/call_text.h"
#include "comm/record/tick_clock.h"
#include "testing/allocation_count.h"
#include "testing/internal/noop_engine.h"

namespace meshift {
namespace {

class ManualEvent final : public Event {
 public:
  int64_t ReachedNs() const override { return reached_ns.load(); }
  std::atomic<int64_t> reached_ns{-1};
};

// An engine whose events the test reaches.
class ManualEngine final : public NoopEngine {
 public:
  ManualEngine() : NoopEngine(0, 2) {}
  absl::Status RecordInto(Stream&, std::shared_ptr<Event>* event) override {
    if (event->use_count() != 1) {
      *event = std::make_shared<ManualEvent>();
      ++made;
    }
    static_cast<ManualEvent*>(event->get())->reached_ns = -1;
    return absl::OkStatus();
  }
  int made = 0;
};

void Reach(const std::shared_ptr<Event>& event) {
  static_cast<ManualEvent*>(event.get())->reached_ns = SteadyNowNs();
}

class CallRingTest : public testing::Test {
 protected:
  // Makes a call as a redistributor does. The caller reuses `run`.
  CallSlot* Call(uint32_t source, int64_t call, DoneEvents* run, EventList* after = nullptr,
                 int64_t after_number = -1) {
    CallHead head{.call = call, .text = &text_};
    head.num_after = after == nullptr ? 0 : 1;
    CallSlot* const slot = ring_.Begin(source, head, run);
    if (slot == nullptr) return nullptr;
    EXPECT_TRUE(engine_.RecordInto(*stream_, run->events.data()).ok());
    ring_.End(slot, {.done = run,
                     .num_done = 1,
                     .after = after,
                     .num_after = head.num_after,
                     .after_number = after_number});
    return slot;
  }
  std::vector<OldestCall> Poll() {
    std::vector<OldestCall> oldest;
    ring_.Poll(&oldest);
    return oldest;
  }

  ManualEngine engine_;
  std::unique_ptr<Stream> stream_ = engine_.CreateStream().value();
  std::vector<int64_t> ended_;
  std::shared_ptr<const CallText> text_ = std::make_shared<CallText>();
  CallRing ring_{&engine_, 8, [this](const EndedCall& call) { ended_.push_back(call.call); }};
};

TEST_F(CallRingTest, TheOldestCallThatHasNotEndedIsFound) {
  const uint32_t source = ring_.AddSource();
  EXPECT_FALSE(Poll()[source].found);
  DoneEvents a;
  DoneEvents b;
  const int64_t begin_ns = SteadyNowNs();
  Call(source, 0, &a);
  Call(source, 1, &b);
  OldestCall oldest = Poll()[source];
  EXPECT_TRUE(oldest.found);
  EXPECT_EQ(oldest.call.call, 0);
  EXPECT_GE(*oldest.since_ns, begin_ns - 1000);
  EXPECT_LE(*oldest.since_ns, SteadyNowNs());
  EXPECT_TRUE(ended_.empty());

  // The second call could run from the end of the first.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Reach(a.events[0]);
  const int64_t reached_ns = a.events[0]->ReachedNs();
  oldest = Poll()[source];
  EXPECT_EQ(oldest.call.call, 1);
  EXPECT_EQ(*oldest.since_ns, reached_ns);
  EXPECT_EQ(ended_, std::vector<int64_t>{0});
  Reach(b.events[0]);
  EXPECT_FALSE(Poll()[source].found);
  EXPECT_EQ(ended_, (std::vector<int64_t>{0, 1}));

  const std::vector<RecordedCall> calls = ring_.Snapshot();
  ASSERT_EQ(calls.size(), 2);
  EXPECT_EQ(calls[0].state, CallState::kEnded);
  EXPECT_EQ(calls[0].ended_ns, reached_ns);
  EXPECT_GE(calls[1].started_ns, reached_ns);
  EXPECT_LE(calls[1].started_ns, calls[1].ended_ns);
  EXPECT_NE(calls[1].thread, 0);
}

TEST_F(CallRingTest, WhatACallComesAfterCountsNotAgainstIt) {
  const uint32_t source = ring_.AddSource();
  DoneEvents run;
  EventList after(1);
  ASSERT_TRUE(engine_.RecordInto(*stream_, after.data()).ok());
  const std::shared_ptr<Event> producer = after[0];
  Call(source, 0, &run, &after);
  EXPECT_TRUE(Poll()[source].found);
  EXPECT_FALSE(Poll()[source].since_ns);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Reach(producer);
  EXPECT_GE(*Poll()[source].since_ns, producer->ReachedNs());
}

TEST_F(CallRingTest, NorCallsOfOtherSources) {
  const uint32_t first = ring_.AddSource();
  const uint32_t second = ring_.AddSource();
  DoneEvents a;
  DoneEvents b;
  const CallSlot* const before = Call(first, 7, &a);
  Call(second, 0, &b, nullptr, before->number);
  EXPECT_TRUE(Poll()[first].since_ns);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const int64_t before_ns = SteadyNowNs();
  EXPECT_FALSE(Poll()[second].since_ns);
  Reach(a.events[0]);
  EXPECT_GE(*Poll()[second].since_ns, before_ns);
}

TEST_F(CallRingTest, ACallThatIsBeingIssuedIsSeen) {
  const uint32_t source = ring_.AddSource();
  DoneEvents run;
  CallHead head{.is_first = true, .call = 3, .text = &text_};
  CallSlot* const slot = ring_.Begin(source, head, &run);
  const OldestCall oldest = Poll()[source];
  EXPECT_EQ(oldest.call.state, CallState::kIssuing);
  EXPECT_TRUE(oldest.call.is_first);
  EXPECT_TRUE(oldest.since_ns);
  // Other calls do not get its slot.
  DoneEvents others[20];
  for (int i = 0; i < 20; ++i) {
    Call(source, 4 + i, &others[i]);
    Reach(others[i].events[0]);
  }
  EXPECT_EQ(Poll()[source].call.call, 3);
  ring_.End(slot, {});
  EXPECT_FALSE(Poll()[source].found);
}

// The ring has eight slots; the hanging call is kept outside.
TEST_F(CallRingTest, TheOldestCallIsKeptWhateverComesAfter) {
  const uint32_t stuck = ring_.AddSource();
  const uint32_t busy = ring_.AddSource();
  DoneEvents a;
  Call(stuck, 0, &a);
  const int64_t since_ns = *Poll()[stuck].since_ns;
  std::vector<DoneEvents> runs(100);
  for (int i = 0; i < 100; ++i) {
    Call(busy, i, &runs[i]);
    Reach(runs[i].events[0]);
  }
  const OldestCall oldest = Poll()[stuck];
  EXPECT_TRUE(oldest.found);
  EXPECT_EQ(oldest.call.call, 0);
  EXPECT_EQ(*oldest.since_ns, since_ns);
  const std::vector<RecordedCall> calls = ring_.Snapshot();
  ASSERT_EQ(calls.size(), 9);
  EXPECT_EQ(calls[0].source, stuck);
  EXPECT_EQ(calls[0].state, CallState::kInFlight);
  EXPECT_EQ(calls[8].call, 99);
  EXPECT_EQ(ended_.size(), 100);  // also those that were evicted before Poll()
  Reach(a.events[0]);
  EXPECT_FALSE(Poll()[stuck].found);
}

TEST_F(CallRingTest, CallsOfAFailedSourceStayAsTheyWere) {
  const uint32_t source = ring_.AddSource();
  DoneEvents run;
  Call(source, 0, &run);
  ring_.CloseSource(source);
  Reach(run.events[0]);  // as an abort does
  EXPECT_FALSE(Poll()[source].found);
  EXPECT_EQ(ring_.Snapshot()[0].state, CallState::kInFlight);
  ring_.RemoveSource(source);
  EXPECT_EQ(ring_.Snapshot()[0].state, CallState::kFailed);
}

TEST_F(CallRingTest, TheEventsOfACallThatHasEndedAreMarkedAgain) {
  CallRing ring(&engine_, 8, nullptr);
  const uint32_t source = ring.AddSource();
  DoneEvents run;
  const auto call = [&](int i, bool has_ended) {
    CallSlot* const slot =
        ring.Begin(source, {.has_ended = has_ended, .call = i, .text = &text_}, &run);
    ASSERT_TRUE(engine_.RecordInto(*stream_, run.events.data()).ok());
    ring.End(slot, {.done = &run, .num_done = 1});
  };
  call(0, false);
  const std::shared_ptr<Event> event = run.events[0];
  Reach(event);
  const int64_t reached_ns = event->ReachedNs();
  // The engine, or this test, still uses it.
  call(1, true);
  EXPECT_NE(run.events[0], event);
  const Event* const second = run.events[0].get();
  Reach(run.events[0]);
  call(2, true);
  EXPECT_EQ(run.events[0].get(), second);
  // Another event if the end is not known.
  Reach(run.events[0]);
  call(3, false);
  EXPECT_NE(run.events[0].get(), second);
  const std::vector<RecordedCall> calls = ring.Snapshot();
  ASSERT_EQ(calls.size(), 4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(calls[i].state, CallState::kEnded);
  EXPECT_EQ(calls[0].ended_ns, reached_ns);
  EXPECT_EQ(calls[3].state, CallState::kInFlight);
}

// Callers may find out in any order that calls have ended, and reuse what they have.
TEST_F(CallRingTest, ACallBeginsAfterTheCallsBeforeIt) {
  CallRing ring(&engine_, 16, nullptr);
  const uint32_t source = ring.AddSource();
  DoneEvents runs[4];
  std::vector<int64_t> reached_ns;
  const auto call = [&](int i, DoneEvents* run) {
    CallSlot* const slot =
        ring.Begin(source, {.has_ended = run->slot != nullptr, .call = i, .text = &text_}, run);
    ASSERT_TRUE(engine_.RecordInto(*stream_, run->events.data()).ok());
    ring.End(slot, {.done = run, .num_done = 1});
  };
  for (int i = 0; i < 8; ++i) {
    call(i, &runs[i < 4 ? i : 7 - i]);
    if (i % 4 != 3) continue;
    for (int j = i - 3; j <= i; ++j) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const std::shared_ptr<Event>& event = runs[j < 4 ? j : 7 - j].events[0];
      Reach(event);
      reached_ns.push_back(event->ReachedNs());
    }
  }
  const std::vector<RecordedCall> calls = ring.Snapshot();
  ASSERT_EQ(calls.size(), 8);
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].ended_ns, reached_ns[i]);
    EXPECT_LE(calls[i].issued_ns, calls[i].started_ns);
    EXPECT_TRUE(i % 4 == 0 || calls[i].started_ns == calls[i - 1].ended_ns);
  }
}

TEST_F(CallRingTest, ReportsAreInTheOrderOfCalls) {
  const uint32_t source = ring_.AddSource();
  DoneEvents runs[3];
  for (int i = 0; i < 3; ++i) Call(source, i, &runs[i]);
  for (DoneEvents& run : runs) Reach(run.events[0]);
  Call(source, 3, &runs[2]);
  Poll();
  EXPECT_EQ(ended_, (std::vector<int64_t>{0, 1, 2}));
}

TEST_F(CallRingTest, TheEventsOfACallInFlightAreKept) {
  const uint32_t source = ring_.AddSource();
  DoneEvents run;
  Call(source, 0, &run);
  Event* const first = run.events[0].get();
  Call(source, 1, &run);
  EXPECT_NE(run.events[0].get(), first);
  Reach(run.events[0]);
  EXPECT_EQ(Poll()[source].call.call, 0);
  EXPECT_EQ(ended_, std::vector<int64_t>{1});
  static_cast<ManualEvent*>(first)->reached_ns = SteadyNowNs();
  EXPECT_FALSE(Poll()[source].found);
  EXPECT_EQ(ended_, (std::vector<int64_t>{1, 0}));
}

// Its slot was needed, then its caller's events.
TEST_F(CallRingTest, AHangingCallKeepsItsEventsWithoutASlot) {
  const uint32_t source = ring_.AddSource();
  DoneEvents hangs;
  DoneEvents run;
  Call(source, 0, &hangs);
  Event* const first = hangs.events[0].get();
  for (int i = 1; i < 20; ++i) {
    Call(source, i, &run);
    Reach(run.events[0]);
  }
  Call(source, 20, &hangs);
  EXPECT_NE(hangs.events[0].get(), first);
  Reach(hangs.events[0]);
  EXPECT_EQ(Poll()[source].call.call, 0);
  static_cast<ManualEvent*>(first)->reached_ns = SteadyNowNs();
  Call(source, 21, &hangs);
  Reach(hangs.events[0]);
  EXPECT_FALSE(Poll()[source].found);
  EXPECT_EQ(ended_.size(), 22);
}

// Also for calls with several events, which the ring keeps.
TEST_F(CallRingTest, CallsInFlightAllocateNothing) {
  CallRing ring(&engine_, 64, nullptr);
  const uint32_t source = ring.AddSource();
  DoneEvents run;
  run.events.resize(3);
  const auto calls = [&](int n) {
    for (int i = 0; i < n; ++i) {
      CallSlot* const slot = ring.Begin(source, {.num_done = 3, .call = i, .text = &text_}, &run);
      for (std::shared_ptr<Event>& event : run.events) {
        ASSERT_TRUE(engine_.RecordInto(*stream_, &event).ok());
        Reach(event);
      }
      ring.End(slot, {.done = &run, .num_done = 3});
    }
  };
  calls(200);
  const int made = engine_.made;
  const int64_t before = NumAllocations();
  calls(1000);
  EXPECT_EQ(engine_.made, made);
  EXPECT_EQ(NumAllocations(), before);
}

TEST_F(CallRingTest, EventsAreMarkedAnew) {
  const uint32_t source = ring_.AddSource();
  DoneEvents runs[3];
  EventList after(1);
  const auto calls = [&](int n) {
    for (int i = 0; i < n; ++i) {
      DoneEvents& run = runs[i * 7 % 3];
      ASSERT_TRUE(engine_.RecordInto(*stream_, after.data()).ok());
      Reach(after[0]);
      Call(source, i, &run, &after);
      Reach(run.events[0]);
    }
  };
  calls(10);
  ended_.reserve(2000);
  const int made = engine_.made;
  EXPECT_LE(made, 40);
  const int64_t before = NumAllocations();
  calls(1000);
  EXPECT_EQ(engine_.made, made);
  EXPECT_EQ(NumAllocations(), before);
}

// Whatever was called before.
TEST_F(CallRingTest, CallsThatWaitForOthersFindTheirEvents) {
  CallRing large(&engine_, 2000, nullptr);
  const uint32_t source = large.AddSource();
  DoneEvents run;
  EventList after(1);
  const auto calls = [&](int n, bool wait) {
    for (int i = 0; i < n; ++i) {
      CallHead head{.has_ended = run.slot != nullptr, .call = i, .text = &text_};
      head.num_after = wait ? 1 : 0;
      if (wait) {
        ASSERT_TRUE(engine_.RecordInto(*stream_, after.data()).ok());
        Reach(after[0]);
      }
      CallSlot* const slot = large.Begin(source, head, &run);
      ASSERT_TRUE(engine_.RecordInto(*stream_, run.events.data()).ok());
      Reach(run.events[0]);
      large.End(slot, {.done = &run, .num_done = 1, .after = &after, .num_after = head.num_after});
    }
  };
  calls(3000, false);
  calls(1, true);
  const int made = engine_.made;
  calls(3000, true);
  EXPECT_EQ(engine_.made, made);
}

// Not one event per remembered call.
TEST_F(CallRingTest, EventsAreAsManyAsAreInFlight) {
  CallRing large(&engine_, 2000, nullptr);
  const uint32_t source = large.AddSource();
  std::vector<DoneEvents> runs(100);
  const auto calls = [&](int n) {
    for (int i = 0; i < n; ++i) {
      DoneEvents& run = runs[static_cast<size_t>(i)];
      CallSlot* const slot = large.Begin(source, {.call = i, .text = &text_}, &run);
      ASSERT_TRUE(engine_.RecordInto(*stream_, run.events.data()).ok());
      large.End(slot, {.done = &run, .num_done = 1});
    }
    for (const DoneEvents& run : runs) Reach(run.events[0]);
  };
  calls(100);
  const int made = engine_.made;
  for (int i = 0; i < 10; ++i) calls(100);
  EXPECT_LE(engine_.made, made + 40);
  EXPECT_EQ(large.Snapshot().size(), 1100);
  for (const RecordedCall& call : large.Snapshot()) EXPECT_GE(call.ended_ns, call.issued_ns);
}

TEST_F(CallRingTest, ACallThatFailedWhileItWasIssuedKeepsNoEventsFromOthers) {
  CallRing large(&engine_, 2000, nullptr);
  const uint32_t failed = large.AddSource();
  const uint32_t source = large.AddSource();
  DoneEvents run;
  large.Begin(failed, {.call = 0, .text = &text_}, &run);
  large.CloseSource(failed);
  for (int i = 0; i < 1000; ++i) {
    CallSlot* const slot = large.Begin(source, {.call = i, .text = &text_}, &run);
    ASSERT_TRUE(engine_.RecordInto(*stream_, run.events.data()).ok());
    Reach(run.events[0]);
    large.End(slot, {.done = &run, .num_done = 1});
  }
  EXPECT_LE(engine_.made, 100);
}

TEST_F(CallRingTest, ThreadsCallAndPollAtOnce) {
  constexpr int kThreads = 3;
  std::atomic<bool> stop = false;
  std::thread poller([&] {
    while (!stop) {
      Poll();
      ring_.Snapshot();
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const uint32_t source = ring_.AddSource();
        DoneEvents run;
        for (int i = 0; i < 1000; ++i) {
          CallHead head{.call = i, .text = &text_};
          CallSlot* const slot = ring_.Begin(source, head, &run);
          if (slot == nullptr) continue;
          auto event = std::make_shared<ManualEvent>();
          event->reached_ns = i % 3 == 0 ? -1 : SteadyNowNs();
          run.events[0] = event;
          ring_.End(slot, {.done = &run, .num_done = 1});
        }
        ring_.RemoveSource(source);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  poller.join();
}

TEST(TickClockTest, KeepsTheTimeOfTheSteadyClock) {
  const TickClock clock;
  int64_t before = SteadyNowNs();
  std::vector<std::pair<int64_t, int64_t>> times;  // ticks, ns
  for (int i = 0; i < 20; ++i) {
    times.emplace_back(clock.Now(), SteadyNowNs());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const TickClock::Reading now = clock.Read();
  for (const auto& [ticks, ns] : times) {
    const int64_t told = now.ToNs(ticks);
    EXPECT_GE(told, before - 100'000);
    EXPECT_LE(told, ns + 100'000);
    before = ns;
  }
}

TEST_F(CallRingTest, CallsThatEndedAreReportedWhenTheirSourceLeaves) {
  const uint32_t source = ring_.AddSource();
  DoneEvents a;
  DoneEvents b;
  Call(source, 0, &a);
  Call(source, 1, &b);
  Reach(a.events[0]);
  ring_.RemoveSource(source);
  EXPECT_EQ(ended_, std::vector<int64_t>{0});
}

TEST(CallRecordTest, NamesOfManyRanksAreShort) {
  NoopEngine engine(0, 2);
  const auto record = CallRecord::Of(&engine);
  const auto name_of = [&](std::vector<int64_t> ranks) {
    return record->Join({.ranks = std::move(ranks), .on_failure = nullptr, .health = nullptr})
        ->name();
  };
  EXPECT_EQ(name_of({0, 1, 2, 3}), "ranks 0-3 #0");
  std::vector<int64_t> even;
  for (int64_t rank = 0; rank < 2000; rank += 2) even.push_back(rank);
  const std::string first = name_of(even);
  EXPECT_TRUE(first.starts_with("ranks 0,2,4,")) << first;
  EXPECT_NE(first.find(",... (1000, "), std::string::npos) << first;
  EXPECT_LT(first.size(), 140);
  even.back() = 1999;
  EXPECT_NE(name_of(even), first);
}

}  // namespace
}  // namespace meshift
