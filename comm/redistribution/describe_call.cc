#include "comm/redistribution/describe_call.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/ranges_text.h"
#include "comm/program/program_bytes.h"

namespace meshift::run_internal {
namespace {

// The number of the group with this text; made where there is room.
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

}  // namespace

std::shared_ptr<const CallText> DescribeCall(const std::string& text,
                                             absl::Span<const Program* const> programs) {
  auto described = std::make_shared<CallText>();
  described->plan = text.substr(0, CallText::kMaxPlanBytes);
  for (const Program* program : programs) {
    for (const Instruction& instruction : program->instructions) {
      if (instruction.group >= 0) AddStep(*program, instruction, described.get());
    }
  }
  for (const std::string& group : described->groups) {
    described->all_groups += (described->all_groups.empty() ? "{" : " {") + group + "}";
  }
  return described;
}

}  // namespace meshift::run_internal
