// What the engine's record has of calls.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/redistribution/describe_call.h"
#include "comm/redistribution/redistributor_impl.h"

namespace meshift::run_internal {

void RedistributorImpl::JoinRecord() {
  std::vector<int64_t> ranks;
  // Of as many redistributors as there are ranks, in one process, the lists would be a square.
  if (record_->remembers() || record_->logs()) {
    ranks = mesh_.Ranks();
    std::sort(ranks.begin(), ranks.end());
  }
  source_ = record_->Join(
      {.ranks = std::move(ranks),
       .on_failure = [this](int64_t call,
                            const absl::Status& status) { FailCall(call, status).IgnoreError(); },
       .health = [this] { return groups_->Health(); }});
  if (record_->remembers()) recorder_ = source_.get();
}

CallSlot* RedistributorImpl::BeginRecord(Call& call, Run* run) {
  if (call.call_text == nullptr) [[unlikely]] {
    std::vector<const Program*> programs;
    for (const Call::Part& part : call.parts) programs.push_back(&part.program->program);
    call.call_text = DescribeCall(*call.text, programs);
  }
  // To prepare it is of the phase of setup.
  CallHead head{.is_first = run == nullptr || !call.has_run,
                .num_done = run == nullptr ? 0 : call.num_done,
                .call = num_calls_,
                .text = &call.call_text};
  if (run == nullptr) return recorder_->Begin(head, nullptr);
  head.num_after = static_cast<uint32_t>(run->after_streams.size());
  CallSlot* const slot = recorder_->Begin(head, &run->done);
  call.has_run = true;
  if (slot != nullptr) run->number = slot->number;
  return slot;
}

void RedistributorImpl::EndRecord(CallSlot* slot, Run* run) {
  if (run == nullptr) return recorder_->End(slot, {});
  int64_t after_number = -1;
  for (const Run* earlier : run->after_runs) after_number = std::max(after_number, earlier->number);
  recorder_->End(slot, {.done = &run->done,
                        .num_done = run->num_done,
                        .after = &run->after,
                        .num_after = run->after_streams.size(),
                        .after_number = after_number});
}

}  // namespace meshift::run_internal
