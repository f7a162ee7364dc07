// What the engine's record has of calls.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/redistribution/describe_call.h"
#include "comm/redistribution/run_core.h"

namespace meshift::run_internal {

void RunCore::JoinRecord() {
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

CallSlot* RunCore::BeginRecord(const std::shared_ptr<const CallText>& text, bool* has_run,
                               uint32_t num_done, Run* run) {
  CallHead head{.is_first = !*has_run, .num_done = num_done, .call = num_calls_, .text = &text};
  if (run != nullptr) head.num_after = static_cast<uint32_t>(run->after_streams.size());
  CallSlot* const slot = recorder_->Begin(head, run == nullptr ? nullptr : &run->done);
  *has_run = true;
  if (run != nullptr && slot != nullptr) run->number = slot->number;
  return slot;
}

void RunCore::EndRecord(CallSlot* slot, Run* run) {
  if (run == nullptr) return recorder_->End(slot, {});
  int64_t after_number = -1;
  for (const Run* earlier : run->after_runs) after_number = std::max(after_number, earlier->number);
  recorder_->End(slot, {.done = &run->done,
                        .num_done = run->num_done,
                        .after = &run->after,
                        .num_after = run->after_streams.size(),
                        .after_number = after_number});
}

void RunCore::Describe(BoundProgram* program, const std::string& text) {
  program->call_text = DescribeCall(text, {&program->program});
}

void RunCore::Describe(MergedCall* call) {
  std::vector<const Program*> programs;
  for (const MergedCall::Part& part : call->parts) programs.push_back(&part.program->program);
  call->call_text = DescribeCall(*call->text, programs);
}

}  // namespace meshift::run_internal
