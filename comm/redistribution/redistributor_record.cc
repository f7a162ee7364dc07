// Implements the functions of RedistributorImpl (redistributor_impl.h) that enter its calls in the
// engine's record (comm/record/call_record.h). An entry lists the collectives of a call's programs,
// not their local steps, up to the limits of CallText; the rest is left out. The entry of a call on
// symmetric memory describes the ordinary program that it replaces.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ranges_text.h"
#include "comm/program/program.h"
#include "comm/program/program_bytes.h"
#include "comm/record/call_text.h"
#include "comm/redistribution/redistributor_impl.h"

namespace meshift::run_internal {
namespace {

// The number of the group with this text, which is added if it is new; -1 if the list is full.
int GroupOf(const std::string& ranks, CallText* text) {
  const auto found = std::find(text->groups.begin(), text->groups.end(), ranks);
  if (found == text->groups.end() && text->groups.size() == CallText::kMaxGroups) return -1;
  const auto number = static_cast<int>(found - text->groups.begin());
  if (found == text->groups.end()) text->groups.push_back(ranks);
  return number;
}

int64_t CountOf(const Program& program, const ListRange& messages) {
  int64_t count = 0;
  for (const ProgramMessage& message : program.MessagesOf(messages)) count += message.count;
  return count;
}

void AddStep(const Program& program, const Instruction& instruction, CallText* text) {
  CallText::Step step{.step = instruction.step, .op = Name(instruction.kind)};
  step.dtype = instruction.dtype;
  step.bytes = InstructionBytes(program, instruction);
  step.count_in = step.count_out = instruction.count;
  switch (instruction.kind) {
    case Instruction::Kind::kReduceScatter:
      step.count_in = program.BlocksCount(instruction);
      break;
    case Instruction::Kind::kAllGather:
      step.count_out = program.BlocksCount(instruction);
      break;
    case Instruction::Kind::kSendRecv:
      step.count_in = CountOf(program, instruction.sends);
      step.count_out = CountOf(program, instruction.recvs);
      break;
    default:
      break;
  }
  text->bytes += step.bytes;
  ++text->num_steps;
  if (text->steps.size() == CallText::kMaxSteps) return;
  step.group = GroupOf(RangesText(program.groups[instruction.group].ranks), text);
  text->steps.push_back(step);
}

// Describes the collective calls of all programs, in order.
std::shared_ptr<const CallText> DescribeCall(const Call& call) {
  auto described = std::make_shared<CallText>();
  described->plan = call.text->substr(0, CallText::kMaxPlanBytes);
  for (const Call::Part& part : call.parts) {
    const Program& program = part.program->program;
    for (const Instruction& instruction : program.instructions) {
      if (instruction.group >= 0) AddStep(program, instruction, described.get());
    }
  }
  for (const std::string& group : described->groups) {
    described->all_groups += (described->all_groups.empty() ? "{" : " {") + group + "}";
  }
  return described;
}

}  // namespace

void RedistributorImpl::JoinRecord() {
  std::vector<int64_t> ranks;
  // Only if necessary: a process with a redistributor per rank would need memory for ranks * ranks
  // numbers.
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
  if (call.call_text == nullptr) [[unlikely]]
    call.call_text = DescribeCall(call);
  // Preparing a call counts as setup.
  CallHead head{.is_first = run == nullptr || !call.has_run,
                .num_done = run == nullptr ? 0 : call.num_done,
                .call = num_calls_,
                .text = &call.call_text};
  if (run == nullptr) return recorder_->Begin(head, nullptr);
  head.num_after = static_cast<uint32_t>(run->after_streams.size());
  head.has_ended = run->is_done.load(std::memory_order_relaxed);
  if (head.has_ended) run->is_done.store(false, std::memory_order_relaxed);
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
