// What a rank's program sends, from the arguments of its calls; knows nothing of the planner's
// estimates.
//
//   RecordOf(*Lower(plan, 3)).bytes_sent;   // {1560, 80}: at most the plan's steps()[i].bytes_sent
#ifndef MESHIFT_COMM_PROGRAM_PROGRAM_BYTES_H_
#define MESHIFT_COMM_PROGRAM_PROGRAM_BYTES_H_

#include <cstdint>

#include "comm/program/program.h"
#include "meshift/engine.h"

namespace meshift {

// A run's bytes, by the conventions of docs/plan_format.md, and its calls, by step.
RunRecord RecordOf(const Program& program);
// The bytes of one instruction; 0 where that is no call of a group.
int64_t InstructionBytes(const Program& program, const Instruction& instruction);

}  // namespace meshift

#endif  // MESHIFT_COMM_PROGRAM_PROGRAM_BYTES_H_
