#include "comm/program/program_segments.h"

#include <algorithm>
#include <cstddef>

namespace meshift {

std::vector<ProgramSegment> SegmentsOf(const Program& program, bool by_step) {
  const std::vector<Instruction>& instructions = program.instructions;
  int steps = program.num_steps;
  for (const Instruction& instruction : instructions) steps = std::max(steps, instruction.step + 1);
  // The group of each step is that of its last call. A step without a call takes the group of the
  // step before it.
  std::vector<int> group_of(steps, -1);
  for (const Instruction& instruction : instructions) {
    if (instruction.group >= 0) group_of[instruction.step] = instruction.group;
  }
  int last = -1;
  for (int& group : group_of) {
    if (group < 0) group = last;
    last = group;
  }
  const auto first = std::find_if(group_of.begin(), group_of.end(), [](int g) { return g >= 0; });
  if (first != group_of.end()) std::fill(group_of.begin(), first, *first);

  std::vector<ProgramSegment> segments;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const int step = instructions[i].step;
    const int group = group_of[step];
    if (segments.empty() || segments.back().group != group ||
        (by_step && segments.back().step != step)) {
      segments.push_back(
          {.group = group, .step = step, .instructions = {static_cast<int32_t>(i), 0}});
    }
    ++segments.back().instructions.size;
  }
  if (segments.empty()) segments.emplace_back();
  return segments;
}

}  // namespace meshift
