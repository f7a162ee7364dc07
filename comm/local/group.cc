#include "comm/local/group.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ranges_text.h"
#include "base/status.h"
#include "comm/local/collective.h"
#include "comm/local/reduction_order.h"
#include "comm/local/scheduler.h"
#include "meshift/communicator.h"
#include "meshift/dtype.h"
#include "meshift/placement.h"
#include "meshift/status.h"

namespace meshift {
namespace {

using Kind = CollectiveCall::Kind;

absl::Status CheckPointer(const void* data, int64_t count, const CollectiveCall& call) {
  if (data != nullptr || count == 0) return absl::OkStatus();
  return InvalidArgument("{}: a buffer of {} elements is null", call.ToString(), count);
}

absl::Status CheckMessages(absl::Span<const PeerMessage> messages, const MemberCall& call,
                           int size) {
  for (const PeerMessage& m : messages) {
    if (m.peer < 0 || m.peer >= size || m.peer == call.member) {
      return InvalidArgument("{}: member {} of {} has a message for member {}",
                             call.call.ToString(), call.member, size, m.peer);
    }
    CollectiveCall one = call.call;
    one.count = m.count;
    MESHIFT_RETURN_IF_ERROR(one.Check(size));
    MESHIFT_RETURN_IF_ERROR(CheckPointer(m.data, m.count, call.call));
  }
  return absl::OkStatus();
}

absl::Status CheckCall(const MemberCall& call, int size) {
  MESHIFT_RETURN_IF_ERROR(call.call.Check(size));
  switch (call.call.kind) {
    case Kind::kBarrier:
      return absl::OkStatus();
    case Kind::kSendRecv:
      MESHIFT_RETURN_IF_ERROR(CheckMessages(call.sends, call, size));
      return CheckMessages(call.recvs, call, size);
    case Kind::kBroadcast:
      return CheckPointer(call.buffers.recv, call.call.count, call.call);
    default: {
      // With given block sizes, one buffer has all blocks, the other this member's.
      const bool gathers = call.call.kind == Kind::kAllGather;
      const bool ragged = !call.call.begins.empty();
      const int64_t own = ragged ? call.call.BlockCount(call.member) : call.call.count;
      MESHIFT_RETURN_IF_ERROR(
          CheckPointer(call.buffers.send, gathers ? own : call.call.count, call.call));
      return CheckPointer(call.buffers.recv, gathers ? call.call.count : own, call.call);
    }
  }
}

ReduceSpec SpecFor(const CollectiveCall& call, const Group& group,
                   const ReductionSettings& settings) {
  ReduceSpec spec;
  spec.dtype = call.dtype;
  spec.reduction = call.reduction;
  if (!call.Reduces() || IsExact(call.reduction.op, call.dtype)) return spec;
  if (settings.order == ReductionOrder::kAdversarial) spec.shift = group.number() + 1;
  if (settings.order == ReductionOrder::kTopology) {
    int64_t domain = -1;
    for (const int64_t rank : group.ranks()) {
      if (rank / settings.domain_size != domain) spec.runs.push_back(0);
      domain = rank / settings.domain_size;
      ++spec.runs.back();
    }
  }
  return spec;
}

std::string Seconds(std::chrono::nanoseconds time) {
  return fmt::format("{} s", std::chrono::duration<double>(time).count());
}

// "rank 3", "ranks 0-2,7".
std::string Ranks(absl::Span<const int64_t> ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", RangesText(ranks));
}

}  // namespace

Collective::Collective(std::shared_ptr<Group> group, int64_t number, const MemberCall& first,
                       const ReductionSettings& settings)
    : group_(std::move(group)),
      number_(number),
      first_member_(first.member),
      members_(group_->size()) {
  work_.call = first.call;
  work_.members.resize(members_.size());
  work_.spec = SpecFor(first.call, *group_, settings);
}

std::string Collective::Name() const {
  return fmt::format("call {} of {}", number_, group_->ToString());
}

absl::Status Collective::Add(const MemberCall& call) {
  if (!(call.call == work_.call)) {
    return FailedPrecondition("{}: rank {} made {}, and rank {} made {}", Name(),
                              group_->ranks()[first_member_], work_.call.ToString(),
                              group_->ranks()[call.member], call.call.ToString());
  }
  members_[call.member].stream = call.stream;
  work_.members[call.member] = call.buffers;
  for (const PeerMessage& m : call.sends) {
    sends_.push_back({call.member, m.peer, m.count, m.data, nullptr});
  }
  for (const PeerMessage& m : call.recvs) {
    recvs_.push_back({m.peer, call.member, m.count, nullptr, m.data});
  }
  if (++called_ < group_->size()) return absl::OkStatus();
  const absl::Status status = PairTransfers(group_->ranks(), &sends_, &recvs_, &work_.transfers);
  if (!status.ok()) return Annotate(status, Name() + ", " + work_.call.ToString());
  set_num_parts(work_.NumParts());
  return absl::OkStatus();
}

absl::Status Collective::Arrive(Scheduler& scheduler, int member, const absl::Status& status) {
  if (!status.ok()) group_->Fail(scheduler, status);
  if (!group_->status().ok()) return group_->status();
  members_[member].arrived = true;
  if (++arrived_ == group_->size()) scheduler.MakeReady(this);
  return absl::OkStatus();
}

void Collective::Done(Scheduler& scheduler) {
  const std::shared_ptr<Collective> keep = shared_from_this();
  done_ = true;
  End(scheduler, absl::OkStatus());
  group_->OnDone();
}

void Collective::End(Scheduler& scheduler, const absl::Status& status) {
  for (const Member& member : members_) {
    if (member.arrived) scheduler.Resume(*member.stream, status);
  }
}

void Collective::TimeOut(Scheduler& scheduler) {
  std::vector<int64_t> not_called;
  std::vector<int64_t> not_arrived;
  for (int i = 0; i < group_->size(); ++i) {
    if (members_[i].arrived) continue;
    (members_[i].stream == nullptr ? not_called : not_arrived).push_back(group_->ranks()[i]);
  }
  std::string text = fmt::format("{}, {}: not begun within {}", Name(), work_.call.ToString(),
                                 Seconds(scheduler.timeout()));
  if (!not_called.empty()) text += fmt::format("; {} did not call it", Ranks(not_called));
  if (!not_arrived.empty()) {
    text += fmt::format("; {} {} not finished {} earlier work", Ranks(not_arrived),
                        not_arrived.size() == 1 ? "has" : "have",
                        not_arrived.size() == 1 ? "its" : "their");
  }
  group_->Fail(scheduler, absl::DeadlineExceededError(text));
}

Group::Group(RankList ranks, int64_t number, int64_t id)
    : ranks_(std::move(ranks)), number_(number), id_(id), calls_(ranks_.size()) {}

std::string Group::ToString() const { return "group " + RangesText(ranks_); }

absl::StatusOr<std::shared_ptr<Collective>> Group::Add(const MemberCall& call,
                                                       const ReductionSettings& settings) {
  if (!aborted_.ok()) return aborted_;
  MESHIFT_RETURN_IF_ERROR(status_);
  MESHIFT_RETURN_IF_ERROR(CheckCall(call, size()));
  const int64_t number = calls_[call.member]++;
  const auto index = static_cast<size_t>(number - first_number_);
  if (index == in_progress_.size()) {
    in_progress_.push_back(
        std::make_shared<Collective>(shared_from_this(), number, call, settings));
  }
  std::shared_ptr<Collective> collective = in_progress_[index];
  MESHIFT_RETURN_IF_ERROR(collective->Add(call));
  return collective;
}

absl::Status Group::Call(Scheduler& scheduler, const MemberCall& call,
                         const ReductionSettings& settings) {
  absl::StatusOr<std::shared_ptr<Collective>> collective = Add(call, settings);
  absl::Status status = collective.status();
  Task task;
  if (status.ok()) {
    task.rendezvous = *std::move(collective);
    task.member = call.member;
  } else {
    Fail(scheduler, status);
    task.error = status;
  }
  scheduler.EnqueueLocked(*call.stream, std::move(task));
  return status;
}

void Group::Fail(Scheduler& scheduler, const absl::Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  // A collective in which all members have arrived is running, and finishes.
  for (const std::shared_ptr<Collective>& collective : in_progress_) {
    if (collective->arrived_ < size()) collective->End(scheduler, status);
  }
  in_progress_.clear();
}

void Group::Abort(Scheduler& scheduler, int64_t by_rank) {
  if (!aborted_.ok()) return;
  std::string text = fmt::format("{} was aborted by rank {}", ToString(), by_rank);
  if (!status_.ok()) text += ", after: " + status_.ToString();
  aborted_ = absl::AbortedError(text);
  Fail(scheduler, aborted_);
}

void Group::OnDone() {
  while (!in_progress_.empty() && in_progress_.front()->done_) {
    in_progress_.pop_front();
    ++first_number_;
  }
}

}  // namespace meshift
